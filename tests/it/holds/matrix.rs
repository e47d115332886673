//! {client's protocol} × {upstream's protocol} × {body} × {first attempt's outcome} × {method}, with a Retry of
//! everything retryable. [`Cell::expected`] computes the expected results from the rules.

use bytes::Bytes;
use http::{Method, Response, Version};
use hyper::body::Incoming;

use super::{one_route, retrying};
use crate::support::peer::{ALL, Act, Arrival, DIGEST, Peer, Protocol, STORED, digest};
use crate::support::proxy::Proxy;
use crate::support::user::{Ask, Framing, Got, User, nothing, piecewise};

/// The two halves of every body. The second is held back when the response comes early.
const HALF: usize = 1500;

/// The outcome of the first attempt. The second is always stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Stored,
    /// 503 after the whole request.
    Unavailable,
    /// Broken off before any of the body was taken.
    BrokenBefore,
    /// Broken off after half of the body was taken.
    BrokenWithin,
    /// Broken off after half of the response was sent.
    Halved,
    /// 503 after half of the body was taken, while the client still has the other half.
    Early,
}

/// The request's method, and whether it may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Head,
    Get,
    KeyedPost,
    Post,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    client: Protocol,
    upstream: Protocol,
    framing: Framing,
    first: First,
    kind: Kind,
}

/// The expected result of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fate {
    status: u16,
    /// The body that the client got: what the upstream stored, or nothing.
    body: String,
    whole: bool,
    /// Whether the upstream says that it stored the exact bytes.
    stored: bool,
    /// How many requests the upstream saw, and whether it saw the whole body of the last one.
    requests: usize,
    last_whole: bool,
    /// How many connections to the upstream were used, and how many after one more request.
    connections: usize,
    connections_after: usize,
    /// Whether the client's connection can carry another request. `None` if that depends on how much of an
    /// unwanted body had arrived.
    serves_on: Option<bool>,
}

impl Cell {
    fn bodied(self) -> bool {
        self.framing != Framing::None
    }

    /// By RFC 9110 §9.2.2, or because of a key.
    fn repeatable(self) -> bool {
        self.kind != Kind::Post
    }

    /// The rules: a retryable failure is repeated once and then stored; any other goes to the client.
    fn expected(self) -> Fate {
        let stored = Fate {
            status: 200,
            body: if self.kind == Kind::Head { "" } else { STORED }.to_owned(),
            whole: true,
            stored: true,
            requests: 1,
            last_whole: true,
            connections: 1,
            connections_after: 1,
            serves_on: Some(true),
        };
        let first = match self.first {
            First::Halved if self.kind == Kind::Head => First::Stored,
            // Without a body, a response cannot come before its end.
            First::Early if !self.bodied() => First::Unavailable,
            other => other,
        };
        // An HTTP/1.1 connection that broke off, or on which a request was not completed, is not reused. A
        // stream of HTTP/2 does not affect its connection.
        let lost =
            self.upstream == Protocol::One && !matches!(first, First::Stored | First::Unavailable);
        let again = 1 + usize::from(lost);
        if matches!(first, First::Stored) {
            return stored;
        }
        if first == First::Halved {
            // The response was accepted, so nothing is repeated, and the client sees that it is incomplete.
            return Fate {
                body: STORED.split_at(STORED.len() / 2).0.to_owned(),
                whole: false,
                stored: false,
                connections_after: again,
                serves_on: Some(self.client == Protocol::Two),
                ..stored
            };
        }
        if self.repeatable() {
            return Fate { requests: 2, connections: again, connections_after: again, ..stored };
        }
        let refused = matches!(first, First::BrokenBefore | First::BrokenWithin);
        // The upstream did not take what the client sent. How much of it the proxy has read is chance.
        let chance = self.client == Protocol::One && self.bodied() && first != First::Unavailable;
        Fate {
            status: if refused { 502 } else { 503 },
            body: String::new(),
            stored: false,
            last_whole: first == First::Unavailable || !self.bodied(),
            connections_after: again,
            serves_on: (!chance).then_some(true),
            ..stored
        }
    }

    fn act(self) -> Act {
        match self.first {
            First::Stored => Act::Store,
            First::Unavailable => Act::Say(ALL, 503),
            First::BrokenBefore => Act::Break(0),
            First::BrokenWithin => Act::Break(HALF),
            // The answer to a HEAD has no body that could break off.
            First::Halved if self.kind == Kind::Head => Act::Store,
            First::Halved => Act::Half,
            First::Early => Act::Say(HALF, 503),
        }
    }

    fn ask(self) -> Ask {
        let (method, fields) = match self.kind {
            Kind::Head => (Method::HEAD, vec![]),
            Kind::Get => (Method::GET, vec![]),
            Kind::KeyedPost => (Method::POST, vec![("idempotency-key", "k-1".to_owned())]),
            Kind::Post => (Method::POST, vec![]),
        };
        Ask { method, path: "/cell".to_owned(), fields, framing: self.framing }
    }

    const fn version(self) -> Version {
        match self.upstream {
            Protocol::One => Version::HTTP_11,
            Protocol::Two => Version::HTTP_2,
        }
    }

    /// Runs the cell.
    async fn run(self) -> Fate {
        let peer = Peer::play(self.upstream, &[self.act()]).await;
        let proxy = Proxy::start(&one_route(&peer, self.upstream, &retrying(3)));
        let mut user = User::connect(proxy.address, self.client).await;
        let body: Vec<u8> = (0..251).cycle().take(2 * HALF).collect();
        let got = self.exchange(&peer, &mut user, &body).await;
        let connections = peer.connections();
        let seen = peer.arrivals();
        let sent: &[u8] = if self.bodied() { &body } else { b"" };
        self.judge(&seen, sent);
        let after = user.get("/after").await;
        let serves_on = Some(after.is_some());
        let after = match after {
            Some(after) => after,
            None => User::connect(proxy.address, self.client).await.get("/after").await.unwrap(),
        };
        assert_eq!((after.status, after.body.as_slice()), (200, STORED.as_bytes()));
        assert_eq!(peer.arrivals().len(), seen.len() + 1, "nothing else became a request");
        // The status already says that the connection was lost.
        let told = if got.status == 502 { Vec::new() } else { got.body.clone() };
        Fate {
            status: got.status,
            body: String::from_utf8(told).unwrap(),
            whole: got.whole,
            stored: got.field(DIGEST) == digest(sent),
            requests: seen.len(),
            last_whole: seen.last().is_some_and(|arrival| arrival.whole),
            connections,
            connections_after: peer.connections(),
            serves_on,
        }
    }

    /// The upstream saw what was sent, with one framing.
    fn judge(self, seen: &[Arrival], sent: &[u8]) {
        let method = self.ask().method;
        let declared = matches!(self.framing, Framing::Length(_)).then(|| sent.len().to_string());
        // A POST without a body may have a length of 0 (RFC 9110 §8.6).
        let empty = if self.bodied() { None } else { Some("0") };
        for arrival in seen {
            assert_eq!((&arrival.method, arrival.version), (&method, self.version()));
            let length = arrival.headers.get("content-length");
            let length = length.map(|length| length.to_str().unwrap());
            assert!(length == declared.as_deref() || length == empty, "{self:?}: {arrival:?}");
            assert!(sent.starts_with(&arrival.body), "{arrival:?}");
        }
    }

    fn answered(self, response: hyper::Result<Response<Incoming>>) -> Response<Incoming> {
        response.unwrap_or_else(|error| panic!("{self:?}: {error:?}"))
    }

    async fn exchange(self, peer: &Peer, user: &mut User, body: &[u8]) -> Got {
        let ask = self.ask();
        if !self.bodied() {
            let response = user.send(&ask, nothing()).await;
            return Got::read_with(self.answered(response), || peer.go()).await;
        }
        let (pieces, upload) = piecewise();
        let (first, second) = body.split_at(HALF);
        let (first, second) = (Bytes::copy_from_slice(first), Bytes::copy_from_slice(second));
        let send = async {
            // A proxy that has answered may have stopped reading.
            let _taken = pieces.send(first).await.is_ok();
            match (self.first, self.repeatable()) {
                (First::BrokenWithin, _) => {
                    let half = |first: &Arrival| first.body.len() == HALF;
                    peer.until(|seen| seen.first().is_some_and(half)).await;
                }
                (First::Early, true) => peer.until(|seen| seen.len() == 2).await,
                (First::Early, false) => return Some((pieces, second)),
                _ => {}
            }
            let _taken = pieces.send(second).await.is_ok();
            None
        };
        let (response, held) = tokio::join!(user.send(&ask, upload), send);
        let got = Got::read_with(self.answered(response), || peer.go()).await;
        if let Some((pieces, second)) = held {
            let _taken = pieces.send(second).await.is_ok();
        }
        got
    }
}

/// Runs all cells of two protocols and lists what is wrong.
async fn matrix(client: Protocol, upstream: Protocol) {
    let framings = [Framing::None, Framing::Length(2 * HALF), Framing::Open];
    let firsts = [
        First::Stored,
        First::Unavailable,
        First::BrokenBefore,
        First::BrokenWithin,
        First::Halved,
        First::Early,
    ];
    let kinds = [Kind::Head, Kind::Get, Kind::KeyedPost, Kind::Post];
    let mut wrong = Vec::new();
    let mut count = 0;
    for framing in framings {
        for first in firsts {
            for kind in kinds {
                let cell = Cell { client, upstream, framing, first, kind };
                let expected = cell.expected();
                let mut fate = cell.run().await;
                if expected.serves_on.is_none() {
                    fate.serves_on = None;
                }
                if fate != expected {
                    wrong.push(format!("{cell:?}\n  expected {expected:?}\n  came to  {fate:?}"));
                }
                count += 1;
            }
        }
    }
    assert_eq!(count, 72);
    assert!(wrong.is_empty(), "{} of {count} cells:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn http_1_to_http_1() {
    matrix(Protocol::One, Protocol::One).await;
}

#[tokio::test]
async fn http_1_to_http_2() {
    matrix(Protocol::One, Protocol::Two).await;
}

#[tokio::test]
async fn http_2_to_http_1() {
    matrix(Protocol::Two, Protocol::One).await;
}

#[tokio::test]
async fn http_2_to_http_2() {
    matrix(Protocol::Two, Protocol::Two).await;
}
