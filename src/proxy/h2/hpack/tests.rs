//! Both sides together, and blocks that nobody means well.

use super::*;
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A name and a value, and whether the value is a secret.
type Line = (String, Vec<u8>, bool);

/// Something that happens between two blocks or makes a block.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// The other side's settings arrive.
    Size(usize),
    /// A block is written: its pseudo-headers, then its fields.
    Block(Vec<Line>),
}

fn name() -> impl Strategy<Value = String> {
    let known = select(vec![
        ":authority",
        ":method",
        ":path",
        ":protocol",
        ":scheme",
        ":status",
        "accept",
        "accept-encoding",
        "authorization",
        "content-length",
        "cookie",
        "date",
        "etag",
        "server",
        "set-cookie",
        "te",
        "user-agent",
        "via",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-request-id",
    ]);
    prop_oneof![8 => known.prop_map(str::to_owned), 1 => "[a-z][a-z0-9_-]{0,20}"]
}

fn value(name: String) -> BoxedStrategy<Line> {
    let known = |values: &[&'static str]| {
        let values: Vec<Vec<u8>> = values.iter().map(|value| value.as_bytes().to_vec()).collect();
        select(values).boxed()
    };
    let values = match name.as_str() {
        ":method" => known(&["GET", "POST", "PUT", "DELETE", "BREW"]),
        ":status" => known(&["200", "204", "404", "418", "503", "599"]),
        ":scheme" => known(&["http", "https", "ws"]),
        ":path" => known(&["/", "/index.html", "/a", "/b?c=d", "*"]),
        "accept-encoding" => known(&["gzip, deflate", "gzip", ""]),
        _ => prop_oneof![
            6 => known(&["", "1", "2", "a longer value of some words", "*/*", "10.0.0.1"]),
            2 => vec(prop_oneof![8 => b' '..=b'~', 1 => 0x80..=0xff_u8, 1 => Just(b'\t')], 0..100),
            1 => (500..3000_usize).prop_map(|length| vec![b'v'; length]),
        ]
        .boxed(),
    };
    let secret = !name.starts_with(':');
    (Just(name), values, prop::bool::weighted(0.05))
        .prop_map(move |(name, value, sensitive)| (name, value, secret && sensitive))
        .boxed()
}

fn event() -> impl Strategy<Value = Event> {
    let size = prop_oneof![0..200_usize, 0..6000_usize, Just(0), Just(4096)];
    prop_oneof![
        1 => size.prop_map(Event::Size),
        6 => vec(name().prop_flat_map(value), 0..12).prop_map(Event::Block),
    ]
}

/// What happens on a connection.
pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
    vec(event(), 1..40)
}

/// A block of these fields.
pub(crate) fn encode(encoder: &mut Encoder, lines: &[Line]) -> Bytes {
    let mut out = BytesMut::new();
    encoder.begin(&mut out);
    for (name, value, sensitive) in lines {
        match name.as_str() {
            ":authority" => encoder.authority(value, &mut out),
            ":method" => encoder.method(&Method::from_bytes(value).unwrap(), &mut out),
            ":path" => encoder.path(value, &mut out),
            ":protocol" => encoder.protocol(value, &mut out),
            ":scheme" => encoder.scheme(value, &mut out),
            ":status" => encoder.status(StatusCode::from_bytes(value).unwrap(), &mut out),
            _ => {
                let mut value = HeaderValue::from_bytes(value).unwrap();
                value.set_sensitive(*sensitive);
                encoder.field(&HeaderName::from_bytes(name.as_bytes()).unwrap(), &value, &mut out);
            }
        }
    }
    out.freeze()
}

/// The fields of a block, or why they are malformed.
pub(crate) fn decode(
    decoder: &mut Decoder,
    block: &Bytes,
) -> Result<Vec<Result<Line, Malformed>>, CompressionError> {
    let mut lines = Vec::new();
    decoder.decode(block, |field| {
        lines.push(field.map(|Field { name, value }| {
            (name.as_str().to_owned(), value.as_bytes().to_vec(), value.is_sensitive())
        }));
    })?;
    Ok(lines)
}

/// Whether a field must be written so that no table keeps it.
fn is_secret((name, value, sensitive): &Line) -> bool {
    let short_cookie = name == "cookie" && value.len() < 20;
    *sensitive || short_cookie || name == "authorization" || name == "proxy-authorization"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_encoded_is_decoded(events in events()) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        for event in events {
            match event {
                Event::Size(size) => encoder.set_max_table_size(size),
                Event::Block(lines) => {
                    let block = encode(&mut encoder, &lines);
                    let expected: Vec<_> = lines
                        .into_iter()
                        .map(|line| { let secret = is_secret(&line); Ok((line.0, line.1, secret)) })
                        .collect();
                    prop_assert_eq!(decode(&mut decoder, &block), Ok(expected));
                }
            }
        }
    }

    #[test]
    fn any_octets_are_fields_or_an_error(blocks in vec(vec(any::<u8>(), 0..200), 1..5)) {
        let mut decoder = Decoder::new(4096);
        for block in blocks {
            let block = Bytes::from(block);
            let mut text = 0;
            let mut count = 0;
            let result = decoder.decode(&block, |field| {
                count += 1;
                text += field.map_or(0, |field| field.value.len());
            });
            // An octet makes one field at most, and what an octet refers to is in a table.
            prop_assert!(count <= block.len());
            prop_assert!(text <= block.len() * 4096);
            if result.is_err() {
                break;
            }
        }
    }

    #[test]
    fn changed_blocks_are_fields_or_an_error(
        events in events(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        for event in events {
            match event {
                Event::Size(size) => encoder.set_max_table_size(size),
                Event::Block(lines) => {
                    let mut block = encode(&mut encoder, &lines).to_vec();
                    if !block.is_empty() {
                        for (place, octet) in &changes {
                            let place = place.index(block.len());
                            block[place] = *octet;
                        }
                    }
                    if decode(&mut decoder, &block.into()).is_err() {
                        break;
                    }
                }
            }
        }
    }
}

/// A head that repeats costs an octet for each field that the tables may keep.
#[test]
fn a_head_that_repeats_is_indexes() {
    let lines: Vec<Line> = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "www.example.com"),
        (":path", "/some/path?x=1"),
        ("user-agent", "h2load nghttp2/1.52.0"),
        ("accept", "*/*"),
        ("x-forwarded-for", "10.1.2.3"),
    ]
    .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec(), false))
    .to_vec();
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
    let blocks = [(); 3].map(|()| encode(&mut encoder, &lines));
    assert_eq!(blocks.each_ref().map(Bytes::len), [71, 7, 7]);
    for block in &blocks {
        let expected = lines.iter().cloned().map(Ok).collect();
        assert_eq!(decode(&mut decoder, block), Ok(expected));
    }
}
