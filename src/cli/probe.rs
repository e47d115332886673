//! `probe`: a container's health check without a shell.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use super::complain;

/// How long each step of the question may take.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn probe(admin: SocketAddr) -> ExitCode {
    match status(admin) {
        Ok(line) if line.split(' ').nth(1) == Some("200") => ExitCode::SUCCESS,
        Ok(line) => {
            complain(&format!("{admin} is not ready: {}", line.trim_end()));
            ExitCode::FAILURE
        }
        Err(error) => {
            complain(&format!("{admin} does not answer: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// The status line that `/readyz` is answered with.
fn status(admin: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}
