//! Frame by frame, what no library would send.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::raw::{Frame, block, frame, frames, head, settings, within};
use crate::proxy::h2::wire::frame::{END_HEADERS, END_STREAM, PREFACE, kind};
use crate::proxy::h2::wire::{Builder, Error, Reason, RecvStream, SendResponse, ServerConnection};

pub(super) const ENDS: u8 = END_HEADERS | END_STREAM;

pub(super) type Ended = Result<(), Error>;

/// A server that accepts everything and answers nothing, and its client.
pub(super) struct Served {
    far: DuplexStream,
    server: ServerConnection<DuplexStream>,
    accepted: Vec<(Request<RecvStream>, SendResponse)>,
    pub(super) ended: Option<Ended>,
}

impl Served {
    pub(super) async fn new(builder: Builder) -> Self {
        let (near, mut far) = duplex(1 << 20);
        far.write_all(PREFACE).await.unwrap();
        far.write_all(&frame(kind::SETTINGS, 0, 0, &[])).await.unwrap();
        let server = builder.serve(near).await.unwrap();
        Self { far, server, accepted: Vec::new(), ended: None }
    }

    /// The client sends these frames, and the server works on them.
    pub(super) async fn hears(&mut self, bytes: &[u8]) {
        self.far.write_all(bytes).await.unwrap();
        self.runs().await;
    }

    async fn runs(&mut self) {
        while self.ended.is_none() {
            match within(Duration::from_millis(1), self.server.accept()).await {
                None => return,
                Some(Some(Ok(accepted))) => self.accepted.push(accepted),
                Some(Some(Err(error))) => self.ended = Some(Err(error)),
                Some(None) => self.ended = Some(Ok(())),
            }
        }
    }

    /// What the server has said since the last call, apart from settings and windows.
    pub(super) async fn said(&mut self) -> Vec<Frame> {
        self.runs().await;
        let mut bytes = vec![0; 1 << 20];
        let mut read = 0;
        while let Some(Ok(more)) =
            within(Duration::from_millis(1), self.far.read(&mut bytes[read..])).await
            && more > 0
        {
            read += more;
        }
        let said = frames(&bytes[..read]).into_iter();
        said.filter(|frame| ![kind::SETTINGS, kind::WINDOW_UPDATE].contains(&frame.kind)).collect()
    }

    pub(super) fn reason(&self) -> Option<Reason> {
        self.ended.as_ref()?.as_ref().err()?.reason()
    }
}

fn reset(stream: u32, reason: Reason) -> Frame {
    let payload = reason.code().to_be_bytes().to_vec();
    Frame { kind: kind::RST_STREAM, flags: 0, stream, payload }
}

pub(super) fn asks(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, ENDS, stream, &head("GET", "/a", &[]))
}

pub(super) fn uploads(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, END_HEADERS, stream, &head("POST", "/a", &[]))
}

#[tokio::test(start_paused = true)]
async fn a_broken_frame_ends_the_connection() {
    let broken = [
        (frame(kind::DATA, 0, 0, b"x"), Reason::PROTOCOL_ERROR),
        (frame(kind::DATA, 0, 7, b"x"), Reason::PROTOCOL_ERROR),
        (frame(kind::DATA, 8, 1, &[9]), Reason::PROTOCOL_ERROR),
        (frame(kind::DATA, END_STREAM, 3, b"x"), Reason::STREAM_CLOSED),
        (frame(kind::HEADERS, ENDS, 0, &head("GET", "/", &[])), Reason::PROTOCOL_ERROR),
        (frame(kind::HEADERS, ENDS, 2, &head("GET", "/", &[])), Reason::PROTOCOL_ERROR),
        (frame(kind::HEADERS, ENDS, 3, &head("GET", "/", &[])), Reason::STREAM_CLOSED),
        (frame(kind::HEADERS, ENDS, 5, &[0xff; 9]), Reason::COMPRESSION_ERROR),
        (frame(kind::HEADERS, ENDS, 5, &[0xbe]), Reason::COMPRESSION_ERROR),
        (frame(kind::CONTINUATION, END_HEADERS, 1, &[]), Reason::PROTOCOL_ERROR),
        ([frame(kind::HEADERS, 0, 5, &[]), asks(7)].concat(), Reason::PROTOCOL_ERROR),
        (frame(kind::RST_STREAM, 0, 1, &[0; 5]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::RST_STREAM, 0, 0, &[0; 4]), Reason::PROTOCOL_ERROR),
        (frame(kind::RST_STREAM, 0, 9, &[0; 4]), Reason::PROTOCOL_ERROR),
        (frame(kind::SETTINGS, 0, 1, &[]), Reason::PROTOCOL_ERROR),
        (frame(kind::SETTINGS, 0, 0, &[0; 5]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::SETTINGS, 1, 0, &[0; 6]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::SETTINGS, 1, 0, &[]).repeat(2), Reason::PROTOCOL_ERROR),
        (frame(kind::SETTINGS, 0, 0, &settings(&[(4, 1 << 31)])), Reason::FLOW_CONTROL_ERROR),
        (frame(kind::PING, 0, 0, &[0; 7]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::PING, 0, 1, &[0; 8]), Reason::PROTOCOL_ERROR),
        (frame(kind::GOAWAY, 0, 0, &[0; 7]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), Reason::PROTOCOL_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 9, &[0, 0, 0, 1]), Reason::PROTOCOL_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]), Reason::FLOW_CONTROL_ERROR),
        (frame(kind::PRIORITY, 0, 0, &[0; 5]), Reason::PROTOCOL_ERROR),
        (frame(kind::PRIORITY, 0, 1, &[0; 4]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::PUSH_PROMISE, 4, 1, &[0; 4]), Reason::PROTOCOL_ERROR),
        (vec![0xff; 9], Reason::FRAME_SIZE_ERROR),
        (frame(kind::DATA, 0, 1, &vec![0; 16_385]), Reason::FRAME_SIZE_ERROR),
    ];
    for (broken, reason) in broken {
        let mut served = Served::new(Builder::new()).await;
        served.hears(&[uploads(1), asks(3)].concat()).await;
        served.hears(&broken).await;
        assert_eq!(served.reason(), Some(reason), "{broken:?}");
        assert!(served.ended.as_ref().unwrap().as_ref().unwrap_err().is_library());
        let said = served.said().await;
        let last = said.last().unwrap();
        assert_eq!((last.kind, last.number(4)), (kind::GOAWAY, reason.code()), "{broken:?}");
        // What was being answered has ended.
        let (_, respond) = &mut served.accepted[0];
        assert!(poll_fn(|cx| respond.poll_reset(cx)).await.is_ok());
        assert!(respond.send_response(Response::new(()), true).is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn what_means_nothing_is_ignored() {
    let mut served = Served::new(Builder::new()).await;
    served.hears(&uploads(1)).await;
    let nothing = [
        frame(0xbe, 0xff, 1, b"unknown"),
        // RFC 9113 §5.3.2: priorities are, also where a stream would depend on itself.
        frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 9]),
        frame(kind::PRIORITY, 0, 99, &[0, 0, 0, 3, 9]),
        frame(kind::PING, 1, 0, &[7; 8]),
        frame(kind::SETTINGS, 0, 0, &settings(&[(0x99, 5)])),
    ];
    served.hears(&nothing.concat()).await;
    let padded = [&[2][..], &head("GET", "/padded", &[]), &[0, 0]].concat();
    served.hears(&frame(kind::HEADERS, ENDS | 8, 3, &padded)).await;
    let depends = [&[0, 0, 0, 5, 9][..], &head("GET", "/depends", &[])].concat();
    served.hears(&frame(kind::HEADERS, ENDS | 0x20, 5, &depends)).await;
    assert!(served.ended.is_none());
    let paths: Vec<_> = served.accepted.iter().map(|(request, _)| request.uri().path()).collect();
    assert_eq!(paths, ["/a", "/padded", "/depends"]);
    assert_eq!(served.said().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_message_is_reset_and_told() {
    let builder = Builder::new().max_concurrent_streams(2).max_header_list_size(2000);
    let mut served = Served::new(builder).await;
    let upper = block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), ("X-Up", "1")]);
    let malformed = [
        head("GET", "/a b", &[]),
        head("GET", "", &[]),
        head("GET", "/a#b", &[]),
        head("GET", "/a", &[("connection", "close")]),
        head("GET", "/a", &[(":path", "/late")]),
        head("GET", "/a", &[("content-length", "5")]),
        head("GET", "/a", &[("content-length", "x")]),
        upper,
    ];
    let count = malformed.len();
    for (stream, head) in (1..).step_by(2).zip(malformed) {
        served.hears(&frame(kind::HEADERS, ENDS, stream, &head)).await;
        assert_eq!(served.said().await, [reset(stream, Reason::PROTOCOL_ERROR)]);
    }
    assert_eq!(served.server.take_refused(), vec![Some(Reason::PROTOCOL_ERROR); count]);
    // Too many, and too large.
    served.hears(&[uploads(101), uploads(103), asks(105)].concat()).await;
    assert_eq!(served.said().await, [reset(105, Reason::REFUSED_STREAM)]);
    let large = head("GET", "/a", &[("x", &"y".repeat(3000))]);
    served.hears(&frame(kind::HEADERS, ENDS, 107, &large)).await;
    let said = served.said().await;
    assert_eq!((said.len(), said[0].kind, said[0].flags), (1, kind::HEADERS, ENDS));
    assert_eq!(served.server.take_refused(), [Some(Reason::REFUSED_STREAM), None]);
    assert_eq!(served.accepted.len(), 2);
    // Trailers, too: those that do not end, that have a pseudo-header, that come too early.
    let trailers = block(&[("x", "1")]);
    served.hears(&frame(kind::HEADERS, END_HEADERS, 101, &trailers)).await;
    assert_eq!(served.said().await, [reset(101, Reason::PROTOCOL_ERROR)]);
    served.hears(&frame(kind::HEADERS, ENDS, 103, &block(&[(":status", "200")]))).await;
    assert_eq!(served.said().await, [reset(103, Reason::PROTOCOL_ERROR)]);
    let short = frame(kind::HEADERS, 4, 109, &head("PUT", "/a", &[("content-length", "2")]));
    served.hears(&[short, frame(kind::HEADERS, ENDS, 109, &trailers)].concat()).await;
    assert_eq!(served.said().await, [reset(109, Reason::PROTOCOL_ERROR)]);
    let (request, _) = &mut served.accepted[0];
    let error = request.body_mut().data().await.unwrap().unwrap_err();
    assert!(error.is_reset() && error.is_library() && !error.is_remote());
}

#[tokio::test(start_paused = true)]
async fn a_body_is_as_long_as_its_head_says() {
    let uploads = |length| head("PUT", "/a", &[("content-length", length)]);
    let data = |flags, size| frame(kind::DATA, flags, 1, &vec![b'd'; size]);
    for (length, pieces, fits) in [
        ("5", vec![data(0, 2), data(END_STREAM, 3)], true),
        ("5", vec![data(0, 5), frame(kind::HEADERS, ENDS, 1, &block(&[("x", "1")]))], true),
        ("5", vec![data(END_STREAM, 4)], false),
        ("5", vec![data(0, 6)], false),
        ("0", vec![data(END_STREAM, 0)], true),
    ] {
        let mut served = Served::new(Builder::new()).await;
        served.hears(&frame(kind::HEADERS, END_HEADERS, 1, &uploads(length))).await;
        served.hears(&pieces.concat()).await;
        let wanted = if fits { vec![] } else { vec![reset(1, Reason::PROTOCOL_ERROR)] };
        assert_eq!(served.said().await, wanted, "{length} {pieces:?}");
        assert_eq!(served.server.take_refused(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn windows_hold_and_reopen_as_the_body_is_taken() {
    let mut served = Served::new(Builder::new().initial_window_size(70_000)).await;
    served.hears(&frame(kind::SETTINGS, 1, 0, &[])).await;
    served.hears(&[uploads(1), frame(kind::DATA, 0, 1, &[0; 16_384]).repeat(3)].concat()).await;
    served.said().await;
    let (request, _) = &mut served.accepted[0];
    for _ in 0..3 {
        let piece = request.body_mut().data().await.unwrap().unwrap();
        request.body_mut().release_capacity(piece.len());
    }
    served.runs().await;
    let mut bytes = [0; 26];
    served.far.read_exact(&mut bytes).await.unwrap();
    let mut told = frames(&bytes);
    told.sort_by_key(|frame| frame.stream);
    let told: Vec<_> = told.iter().map(|it| (it.kind, it.stream, it.number(0))).collect();
    assert_eq!(told, [(kind::WINDOW_UPDATE, 0, 49_152), (kind::WINDOW_UPDATE, 1, 49_152)]);
    // What is beyond the connection's window is a fault of the connection, and beyond the stream's one of the stream.
    served.hears(&frame(kind::DATA, 0, 1, &[0; 13_107]).repeat(5)).await;
    assert!(served.ended.is_none());
    served.hears(&frame(kind::DATA, 0, 1, &[0])).await;
    assert_eq!(served.reason(), Some(Reason::FLOW_CONTROL_ERROR));
    let mut served = Served::new(Builder::new().initial_connection_window_size(200_000)).await;
    served.hears(&[uploads(1), frame(kind::DATA, 0, 1, &[0; 13_107]).repeat(5)].concat()).await;
    assert_eq!(served.said().await, []);
    served.hears(&frame(kind::DATA, 0, 1, &[0])).await;
    assert_eq!(served.said().await, [reset(1, Reason::FLOW_CONTROL_ERROR)]);
}

#[tokio::test(start_paused = true)]
async fn frames_on_a_stream_that_was_reset_here_are_ignored_and_counted() {
    let mut served = Served::new(Builder::new()).await;
    served.hears(&uploads(1)).await;
    served.accepted.clear();
    assert_eq!(served.said().await, [reset(1, Reason::CANCEL)]);
    // More than the window in all, which is given back.
    for _ in 0..10 {
        served.hears(&frame(kind::DATA, 0, 1, &[0; 16_384])).await;
    }
    let trailers = frame(kind::HEADERS, ENDS, 1, &block(&[("x", "1")]));
    served.hears(&[trailers, frame(kind::RST_STREAM, 0, 1, &[0; 4])].concat()).await;
    assert_eq!((served.said().await, served.ended.is_none()), (vec![], true));
    // One that the client has ended is not such a stream.
    served.hears(&[uploads(3), frame(kind::RST_STREAM, 0, 3, &[0; 4])].concat()).await;
    served.hears(&frame(kind::DATA, 0, 3, b"x")).await;
    assert_eq!(served.said().await, [reset(3, Reason::STREAM_CLOSED)]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_before_the_end_of_its_request_lets_the_rest_go() {
    let mut served = Served::new(Builder::new()).await;
    served.hears(&uploads(1)).await;
    let (request, mut respond) = served.accepted.pop().unwrap();
    respond.send_response(Response::new(()), true).unwrap();
    drop((request, respond));
    let said = served.said().await;
    assert_eq!(said[0].kind, kind::HEADERS);
    assert_eq!(said[1..], [reset(1, Reason::NO_ERROR)]);
}

#[tokio::test(start_paused = true)]
async fn a_farewell_is_said_twice_and_later_streams_are_ignored() {
    let mut served = Served::new(Builder::new()).await;
    served.hears(&uploads(1)).await;
    served.server.graceful_shutdown();
    let said = served.said().await;
    assert_eq!((said[0].kind, said[0].number(0)), (kind::GOAWAY, (1 << 31) - 1));
    assert_eq!(said[1].kind, kind::PING);
    // One that was on its way is served.
    served.hears(&asks(3)).await;
    served.hears(&frame(kind::PING, 1, 0, &said[1].payload)).await;
    let said = served.said().await;
    assert_eq!((said.len(), said[0].kind, said[0].number(0)), (1, kind::GOAWAY, 3));
    served.hears(&[uploads(5), frame(kind::DATA, 0, 5, b"x")].concat()).await;
    assert_eq!((served.accepted.len(), served.ended.is_none()), (2, true));
    for (_, respond) in &mut served.accepted {
        respond.send_response(Response::new(()), true).unwrap();
    }
    served.accepted.clear();
    let said = served.said().await;
    assert!(said.iter().all(|frame| frame.kind != kind::GOAWAY), "{said:?}");
    assert!(matches!(served.ended, Some(Ok(()))));
}

#[tokio::test(start_paused = true)]
async fn a_window_that_shrinks_holds_data_until_it_opens() {
    let mut served = Served::new(Builder::new()).await;
    served.hears(&asks(1)).await;
    let (request, mut respond) = served.accepted.pop().unwrap();
    let mut stream = respond.send_response(Response::new(()), false).unwrap();
    stream.reserve_capacity(1000);
    assert_eq!(stream.capacity(), 1000);
    served.hears(&frame(kind::SETTINGS, 0, 0, &settings(&[(4, 10)]))).await;
    assert_eq!(stream.capacity(), 10);
    stream.send_data(Bytes::from(vec![b'd'; 30]), true).unwrap();
    drop((request, respond, stream));
    let sizes = |said: &[Frame]| {
        said.iter().map(|it| (it.kind, it.payload.len(), it.flags)).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&served.said().await)[1..], [(kind::DATA, 10, 0)]);
    served.hears(&frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 5])).await;
    assert_eq!(sizes(&served.said().await), [(kind::DATA, 5, 0)]);
    served.hears(&frame(kind::SETTINGS, 0, 0, &settings(&[(4, 1000)]))).await;
    assert_eq!(sizes(&served.said().await), [(kind::DATA, 15, END_STREAM)]);
    assert!(served.ended.is_none());
}
