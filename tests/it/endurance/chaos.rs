//! An upstream that answers, sends Retry-After, resets, hangs and closes at random, with a seed.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use socket2::SockRef;

use crate::support::message::{Framing, Reader};

/// The upstream. When dropped, it accepts no more connections.
#[derive(Debug)]
pub(super) struct Chaos {
    pub(super) address: SocketAddr,
    listener: TcpListener,
    served: Arc<AtomicU64>,
}

impl Chaos {
    /// Starts one that handles each request at random, decided by `seed` and the request's number.
    pub(super) fn start(seed: u64) -> Self {
        Self::by(move |number| {
            let mut random = StdRng::seed_from_u64(seed ^ (number << 20));
            let fate = random.random_range(0..100);
            (fate, random.random_range(0..32 << 10))
        })
    }

    /// Starts one that answers everything with 204.
    pub(super) fn sink() -> Self {
        Self::by(|_| (255, 0))
    }

    fn by(fate: impl Fn(u64) -> (u8, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::new(AtomicU64::new(0));
        let (accepting, count) = (listener.try_clone().unwrap(), Arc::clone(&served));
        let fate = Arc::new(fate);
        thread::spawn(move || {
            for stream in accepting.incoming() {
                let Ok(stream) = stream else { return };
                let (fate, count) = (Arc::clone(&fate), Arc::clone(&count));
                thread::spawn(move || {
                    // An error means that either side ended the connection.
                    serve(&stream, &*fate, &count).ok();
                });
            }
        });
        Self { address, listener, served }
    }

    /// How many complete requests have arrived.
    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        // This ends the accepting thread.
        SockRef::from(&self.listener).shutdown(Shutdown::Both).ok();
    }
}

fn serve(
    mut stream: &TcpStream,
    fate: &dyn Fn(u64) -> (u8, usize),
    served: &AtomicU64,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = Reader::new(stream.try_clone()?);
    while let Some(head) = reader.head()? {
        let framing = head.framing().unwrap_or(Framing::Empty);
        reader.body(framing, |_| true)?;
        let (fate, size) = fate(served.fetch_add(1, Ordering::Relaxed));
        match fate {
            0..60 => stream.write_all(&answer("200 OK", "", &vec![b'x'; size]))?,
            60..70 => stream.write_all(&answer("503 No", "", b"down"))?,
            70..76 => stream.write_all(&answer("429 Wait", "Retry-After: 0\r\n", b""))?,
            // In the middle of an answer, before one, or at once.
            76..81 => {
                let whole = answer("200 OK", "", &vec![b'x'; size + 1]);
                return stream.write_all(&whole[..whole.len() - 1]);
            }
            81..88 => return Ok(()),
            88..95 => return SockRef::from(stream).set_linger(Some(Duration::ZERO)),
            95..100 => {
                // Until the other side gives up.
                reader.ended();
                return Ok(());
            }
            _ => stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?,
        }
    }
    Ok(())
}

fn answer(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}
