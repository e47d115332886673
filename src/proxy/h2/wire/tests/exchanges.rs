//! Whole exchanges, in both roles, however the pipe cuts them and whatever the windows are.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use proptest::prelude::*;
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinSet;

use super::raw::within;

use crate::proxy::h2::wire::{
    Builder, Error, Reason, RecvStream, SendRequest, SendResponse, SendStream,
};

/// A message: the pieces of its body and its trailer.
#[derive(Clone, Debug)]
struct Message {
    pieces: Vec<usize>,
    trailer: Option<u8>,
    fields: usize,
}

impl Message {
    fn any() -> impl Strategy<Value = Self> {
        let piece = prop_oneof![Just(0), 1..50_usize, 1000..40_000_usize, Just(70_000)];
        let fields = prop_oneof![4 => 0..4_usize, 1 => Just(600)];
        (prop::collection::vec(piece, 0..5), any::<Option<u8>>(), fields)
            .prop_map(|(pieces, trailer, fields)| Self { pieces, trailer, fields })
    }

    fn body(&self) -> Vec<u8> {
        let size = self.pieces.iter().sum::<usize>();
        (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    fn head(&self) -> HeaderMap {
        let field = |at: usize| {
            (format!("x-{at}").parse().unwrap(), "a value of some length".parse().unwrap())
        };
        (0..self.fields).map(field).collect::<HeaderMap>()
    }

    fn trailers(&self) -> Option<HeaderMap> {
        let trailer = self.trailer?;
        Some(HeaderMap::from_iter([("x-sum".parse().unwrap(), u16::from(trailer).into())]))
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.trailer.is_none()
    }
}

/// What was received: the body and the trailers.
type Received = (HeaderMap, Vec<u8>, Option<HeaderMap>);

fn wanted(message: &Message) -> Received {
    (message.head(), message.body(), message.trailers())
}

async fn send(mut stream: SendStream, message: Message) -> Result<(), Error> {
    let mut body = Bytes::from(message.body());
    let mut pieces = message.pieces.iter().peekable();
    while let Some(piece) = pieces.next() {
        let mut piece = body.split_to(*piece);
        let last = pieces.peek().is_none() && message.trailer.is_none();
        loop {
            stream.reserve_capacity(piece.len());
            while !piece.is_empty() && stream.capacity() == 0 {
                let capacity = poll_fn(|cx| stream.poll_capacity(cx)).await;
                capacity.ok_or_else(|| Error::from(Reason::CANCEL))??;
            }
            let part = piece.split_to(stream.capacity().min(piece.len()));
            stream.send_data(part, last && piece.is_empty())?;
            if piece.is_empty() {
                break;
            }
        }
    }
    if let Some(trailers) = message.trailers() {
        stream.send_trailers(trailers)?;
    }
    Ok(())
}

async fn receive(head: HeaderMap, mut stream: RecvStream) -> Result<Received, Error> {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.release_capacity(data.len());
        body.extend_from_slice(&data);
    }
    Ok((head, body, stream.trailers().await?))
}

fn h2_send(mut stream: h2::SendStream<Bytes>, message: &Message) {
    let mut body = Bytes::from(message.body());
    let mut pieces = message.pieces.iter().peekable();
    while let Some(piece) = pieces.next() {
        let last = pieces.peek().is_none() && message.trailer.is_none();
        stream.send_data(body.split_to(*piece), last).unwrap();
    }
    if let Some(trailers) = message.trailers() {
        stream.send_trailers(trailers).unwrap();
    }
}

async fn h2_receive(head: HeaderMap, mut stream: h2::RecvStream) -> Received {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data.unwrap();
        stream.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    (head, body, stream.trailers().await.unwrap())
}

fn asked(message: &Message) -> Request<()> {
    let mut request = Request::new(());
    *request.uri_mut() = "http://t/path".parse().unwrap();
    *request.method_mut() = http::Method::POST;
    *request.headers_mut() = message.head();
    request
}

fn answered(message: &Message) -> Response<()> {
    let mut response = Response::new(());
    *response.headers_mut() = message.head();
    response
}

fn builder(window: u32) -> Builder {
    Builder::new()
        .initial_window_size(window)
        .initial_connection_window_size(2 * window)
        .max_concurrent_streams(5)
        .max_send_buffer_size(20_000)
        .max_header_list_size(1 << 20)
}

/// Serves with ours: each request gets the answer with its number.
async fn serve(io: DuplexStream, window: u32, answers: Vec<Message>) -> Vec<Received> {
    let mut connection = builder(window).serve(io).await.unwrap();
    let mut serving = JoinSet::new();
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted.unwrap();
        let number: usize = request.headers()["number"].to_str().unwrap().parse().unwrap();
        serving.spawn(answer(request, respond, answers[number].clone()));
    }
    serving.join_all().await
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse,
    with: Message,
) -> Received {
    let (mut head, stream) = request.into_parts();
    head.headers.remove("number");
    let sent = respond.send_response(answered(&with), with.is_empty()).unwrap();
    let sending = async { if with.is_empty() { Ok(()) } else { send(sent, with).await } };
    let (sent, received) = tokio::join!(sending, receive(head.headers, stream));
    sent.unwrap();
    received.unwrap()
}

/// The same with the crate.
async fn h2_serve(io: DuplexStream, window: u32, answers: Vec<Message>) -> Vec<Received> {
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(2 * window);
    builder.max_concurrent_streams(3);
    let mut connection = builder.handshake::<_, Bytes>(io).await.unwrap();
    let mut serving = JoinSet::new();
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = match accepted {
            Ok(accepted) => accepted,
            // The client has all that it asked for and is gone, and the crate still had a window to open. What has arrived counts.
            Err(error) if error.is_io() => break,
            Err(error) => panic!("{error}"),
        };
        let number: usize = request.headers()["number"].to_str().unwrap().parse().unwrap();
        let with = answers[number].clone();
        serving.spawn(async move {
            let (mut head, stream) = request.into_parts();
            head.headers.remove("number");
            let sent = respond.send_response(answered(&with), with.is_empty()).unwrap();
            let sending = async {
                if !with.is_empty() {
                    h2_send(sent, &with);
                }
            };
            tokio::join!(sending, h2_receive(head.headers, stream)).1
        });
    }
    serving.join_all().await
}

/// Asks with ours.
async fn ask(io: DuplexStream, window: u32, all: Vec<Message>) -> Vec<Received> {
    let (sender, connection) = builder(window).connect(io);
    let driving = tokio::spawn(connection);
    let mut asking = JoinSet::new();
    for (number, message) in all.into_iter().enumerate() {
        asking.spawn(ask_one(sender.clone(), number, message));
    }
    drop(sender);
    let mut received = asking.join_all().await;
    driving.await.unwrap().unwrap();
    received.sort_by_key(|(number, _)| *number);
    received.into_iter().map(|(_, received)| received).collect()
}

async fn ask_one(sender: SendRequest, number: usize, message: Message) -> (usize, Received) {
    let mut request = asked(&message);
    request.headers_mut().insert("number", number.into());
    let (response, stream) = sender.send_request(request, message.is_empty()).unwrap();
    let sending = async { if message.is_empty() { Ok(()) } else { send(stream, message).await } };
    let receiving = async {
        let (head, stream) = response.await.unwrap().into_parts();
        receive(head.headers, stream).await
    };
    let (sent, received) = tokio::join!(sending, receiving);
    sent.unwrap();
    (number, received.unwrap())
}

/// The same with the crate.
async fn h2_ask(io: DuplexStream, window: u32, all: Vec<Message>) -> Vec<Received> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(2 * window);
    let (sender, connection) = builder.handshake::<_, Bytes>(io).await.unwrap();
    let driving = tokio::spawn(connection);
    let mut asking = JoinSet::new();
    for (number, message) in all.into_iter().enumerate() {
        let sender = sender.clone();
        asking.spawn(async move {
            let mut request = asked(&message);
            request.headers_mut().insert("number", number.into());
            let mut sender = sender.ready().await.unwrap();
            let (response, stream) = sender.send_request(request, message.is_empty()).unwrap();
            let sending = async {
                if !message.is_empty() {
                    h2_send(stream, &message);
                }
            };
            let receiving = async {
                let (head, stream) = response.await.unwrap().into_parts();
                h2_receive(head.headers, stream).await
            };
            (number, tokio::join!(sending, receiving).1)
        });
    }
    drop(sender);
    let mut received = asking.join_all().await;
    driving.await.unwrap().unwrap();
    received.sort_by_key(|(number, _)| *number);
    received.into_iter().map(|(_, received)| received).collect()
}

#[derive(Clone, Copy, Debug)]
enum Ours {
    Serves,
    Asks,
    Both,
}

fn run<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let limit = Duration::from_mins(10);
    runtime.block_on(async { within(limit, future).await.expect("it hangs") })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the messages, the windows and the pipe: what was sent arrives.
    #[test]
    fn what_is_sent_arrives(
        requests in prop::collection::vec(Message::any(), 1..12),
        answers in prop::collection::vec(Message::any(), 12),
        holds in prop_oneof![40..300_usize, Just(1 << 20)],
        window in prop_oneof![Just(1_u32 << 16), 1000..20_000_u32],
        other in prop_oneof![Just(1_u32 << 16), 1000..20_000_u32],
        pair in prop_oneof![Just(Ours::Serves), Just(Ours::Asks), Just(Ours::Both)],
    ) {
        let (near, far) = duplex(holds);
        let all = requests.clone();
        let (mut served, got) = run(async {
            match pair {
                Ours::Serves => {
                    tokio::join!(serve(near, window, answers.clone()), h2_ask(far, other, all))
                }
                Ours::Asks => {
                    tokio::join!(h2_serve(near, window, answers.clone()), ask(far, other, all))
                }
                Ours::Both => {
                    tokio::join!(serve(near, window, answers.clone()), ask(far, other, all))
                }
            }
        });
        for (got, sent) in got.iter().zip(&answers) {
            prop_assert_eq!(got, &wanted(sent));
        }
        for message in &requests {
            let wanted = wanted(message);
            let at = served.iter().position(|served| *served == wanted);
            prop_assert!(at.is_some());
            served.swap_remove(at.unwrap());
        }
        prop_assert!(served.is_empty());
    }
}
