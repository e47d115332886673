//! What bodies cost the program, in resident memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::size;
use crate::support::client::request;
use crate::support::message::{Framing, Reader, broken};
use crate::support::program::Proxy;
use crate::support::stack::retry;
use crate::support::watched::Gate;

/// A route that may send anything again.
const RETRYING: &str = concat!(
    "  - name: all\n    match: { pathPrefix: / }\n    upstream: u\n    middleware:\n",
    retry!("match: { codes: [Provider.Call.*] }, attempts: 3"),
);

/// The most that may be resident, in KiB.
const MOST: u64 = 64 << 10;

/// One MiB that is no repetition of anything shorter.
fn mebibyte() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(1 << 20);
    while bytes.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// How many MiB go each way.
fn mebibytes() -> usize {
    size(96, 1024)
}

fn wanted() -> Vec<u8> {
    let piece = mebibyte();
    let mut digest = Sha256::new();
    for _ in 0..mebibytes() {
        digest.update(&piece);
    }
    digest.finalize().to_vec()
}

/// An upstream for one connection.
fn serve_one<T: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = thread::spawn(move || serve(listener.accept().unwrap().0));
    (address, thread)
}

#[test]
fn a_long_upload_passes_through_a_retry_and_waits_for_the_upstream() {
    let gate = Gate::default();
    let opened = gate.clone();
    let (address, upstream) = serve_one(move |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        let head = reader.head().unwrap().unwrap();
        opened.pass();
        let mut digest = Sha256::new();
        let take = |piece: &[u8]| {
            digest.update(piece);
            true
        };
        reader.body(head.framing().unwrap(), take).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstored").unwrap();
        digest.finalize().to_vec()
    });
    let proxy = Proxy::before(&[("u", address)], RETRYING);
    let piece = mebibyte();
    let length = mebibytes() * piece.len();
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    let head = format!("PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // As long as the upstream reads nothing, what the client can send is what the sockets hold.
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut written = 0;
    while written < length {
        match stream.write(&piece[written % piece.len()..]) {
            Ok(size) => written += size,
            Err(error) => {
                assert!(!broken(&error), "{error}");
                break;
            }
        }
    }
    assert!(written < length.min(64 << 20), "{written} bytes were taken for nobody");
    assert!(proxy.program().memory("VmHWM:") < MOST);
    gate.open();
    stream.set_write_timeout(None).unwrap();
    while written < length {
        let from = written % piece.len();
        stream.write_all(&piece[from..]).unwrap();
        written += piece.len() - from;
    }
    let mut reader = Reader::new(stream);
    assert_eq!(reader.head().unwrap().unwrap().line, "HTTP/1.1 200 OK");
    assert!(upstream.join().unwrap() == wanted(), "not what was sent");
    peak("upload", &proxy);
}

#[test]
fn a_long_download_passes_through_a_retry_and_waits_for_the_client() {
    let (address, upstream) = serve_one(|mut stream| {
        Reader::new(stream.try_clone().unwrap()).head().unwrap().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let piece = mebibyte();
        for _ in 0..mebibytes() {
            stream.write_all(b"100000\r\n").unwrap();
            stream.write_all(&piece).unwrap();
            stream.write_all(b"\r\n").unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
        // Until the proxy closes it.
        let _end = stream.read(&mut [0]);
    });
    let mut proxy = Proxy::before(&[("u", address)], RETRYING);
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.write_all(&request("GET", "/", &[], b"")).unwrap();
    let mut reader = Reader::new(stream);
    let head = reader.head().unwrap().unwrap();
    assert_eq!(head.framing(), Some(Framing::Chunked));
    let mut digest = Sha256::new();
    let take = |piece: &[u8]| {
        digest.update(piece);
        true
    };
    reader.body(Framing::Chunked, take).unwrap();
    assert!(digest.finalize().to_vec() == wanted(), "not what was sent");
    peak("download", &proxy);
    drop(reader);
    proxy.stop();
    upstream.join().unwrap();
}

#[expect(clippy::print_stderr, reason = "the figures of an endurance run are read by people")]
fn peak(what: &str, proxy: &Proxy) {
    let peak = proxy.program().memory("VmHWM:");
    eprintln!("{what} of {} MiB: at most {peak} KiB resident", mebibytes());
    assert!(peak < MOST, "{what}: {peak} KiB were resident");
}
