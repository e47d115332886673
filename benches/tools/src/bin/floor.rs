//! The floor: what the HTTP library alone costs. `floor PORT ORIGIN [THREADS]` forwards every request to
//! one origin over kept connections. Each worker is a thread with its own runtime, socket and pool.
//! Nothing is checked, counted, timed or logged, and fields that must not be forwarded are.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Sender = SendRequest<Incoming>;

/// The idle connections of one worker.
#[derive(Clone, Default)]
struct Pool(Rc<RefCell<Vec<Sender>>>);

/// A body that returns its connection to the pool once it was read.
struct Answer {
    body: Incoming,
    sender: Option<Sender>,
    pool: Pool,
}

impl Pool {
    async fn sender(&self, origin: SocketAddr) -> io::Result<Sender> {
        loop {
            let idle = self.0.borrow_mut().pop();
            let Some(mut sender) = idle else {
                break;
            };
            if sender.is_ready() || sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        let stream = TcpStream::connect(origin).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::task::spawn_local(async move {
            // The connection's request fails with it.
            driver.await.ok();
        });
        Ok(sender)
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take().filter(|_| self.body.is_end_stream()) {
            self.pool.0.borrow_mut().push(sender);
        }
    }
}

async fn forward(
    request: Request<Incoming>,
    pool: Pool,
    origin: SocketAddr,
) -> io::Result<Response<Answer>> {
    let mut sender = pool.sender(origin).await?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    Ok(response.map(|body| Answer { body, sender: Some(sender), pool }))
}

fn worker(address: SocketAddr, origin: SocketAddr) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        let listener = TcpListener::from_std(socket.into())?;
        let pool = Pool::default();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            stream.set_nodelay(true)?;
            let pool = pool.clone();
            tokio::task::spawn_local(async move {
                let service = service_fn(move |request| forward(request, pool.clone(), origin));
                // A client that leaves is not an error of the floor.
                http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
            });
        }
    })
}

fn main() -> io::Result<()> {
    let numbers: Result<Vec<u16>, _> = std::env::args().skip(1).map(|text| text.parse()).collect();
    let numbers = numbers.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let [port, origin, rest @ ..] = numbers.as_slice() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "floor PORT ORIGIN [THREADS]"));
    };
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (port, origin) = (at(*port), at(*origin));
    for _ in 1..rest.first().copied().unwrap_or(1) {
        std::thread::spawn(move || worker(port, origin));
    }
    worker(port, origin)
}
