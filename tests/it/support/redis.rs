//! A Redis or Valkey server of the test's own. It needs `redis-server` or `valkey-server`, which `.ci/run` installs; a test
//! without it fails and says so.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::program::Directory;
use super::tls::{Authority, Issued};

/// A running server.
pub(crate) struct Redis {
    pub(crate) address: SocketAddr,
    arguments: Vec<String>,
    process: Option<Child>,
}

impl Redis {
    /// Starts one on a free port.
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// The same, with these further arguments.
    pub(crate) async fn with(arguments: &[&str]) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut redis = Self { address, arguments, process: None };
        redis.run().await;
        redis
    }

    /// The same, which also speaks TLS, with this certificate, to clients that this authority has vouched for. Returns its
    /// address for that.
    pub(crate) async fn with_tls(
        shows: &Issued,
        lets: &Authority,
        directory: &Directory,
    ) -> (Self, SocketAddr) {
        let secured = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let files = [
            ("server.pem", shows.chain()),
            ("server.key", shows.key()),
            ("clients.pem", lets.pem()),
        ];
        let [certificate, key, clients] =
            files.map(|(name, text)| directory.write(name, &text).to_str().unwrap().to_owned());
        let port = secured.port().to_string();
        let arguments = [
            "--tls-port",
            &port,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &clients,
        ];
        (Self::with(&arguments).await, secured)
    }

    /// Starts it, again on the same port.
    pub(crate) async fn run(&mut self) {
        let port = self.address.port().to_string();
        let fixed = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let started = ["redis-server", "valkey-server"].iter().find_map(|program| {
            let mut command = Command::new(program);
            command.args(fixed).args(&self.arguments).current_dir("/tmp");
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
        });
        let missing =
            "neither redis-server nor valkey-server is installed: `apt-get install redis-server`";
        self.process = Some(started.expect(missing));
        for _ in 0..2_000 {
            if self.answers().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("redis-server does not answer on {}", self.address);
    }

    /// Whether it answers at all, be it that it wants a password.
    async fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address).await else {
            return false;
        };
        let mut answer = [0; 5];
        stream.write_all(b"PING\r\n").await.is_ok()
            && stream.read_exact(&mut answer).await.is_ok()
            && (answer == *b"+PONG" || answer == *b"-NOAU")
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Lets it do nothing, with all its connections open, until it is [woken](Self::wake).
    pub(crate) fn stall(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub(crate) fn wake(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let process = self.process.as_ref().unwrap().id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &process]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().ok();
            process.wait().ok();
        }
    }
}
