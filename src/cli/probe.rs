//! `probe`: a health check for containers without a shell.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use super::output::fail;

/// How long each step of the probe may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn probe(admin: SocketAddr) -> ExitCode {
    match status(admin) {
        Ok(line) if line.split(' ').nth(1) == Some("200") => ExitCode::SUCCESS,
        Ok(line) => fail(&format!("{admin} is not ready: {line}")),
        Err(error) => fail(&format!("{admin} does not answer: {error}")),
    }
}

/// The status line of the response from `/readyz`.
fn status(admin: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, STEP_TIMEOUT)?;
    stream.set_read_timeout(Some(STEP_TIMEOUT))?;
    stream.set_write_timeout(Some(STEP_TIMEOUT))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}
