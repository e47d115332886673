//! Heads of responses, against a parser that knows only the grammar.

use super::{answers, exchange};

/// A response's head.
struct Head {
    status: u16,
    reason: Vec<u8>,
    fields: Vec<(String, Vec<u8>)>,
}

const REQUEST: &[u8] = b"GET /plain HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
/// Fields about one connection, or about the framing, which is new for the client; and those that the proxy adds.
const OWN: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authenticate",
    "content-length",
    "date",
    "proxy-status",
    "proxy-authentication-info",
];

/// Lets an upstream send a head, and compares what the client gets with it.
///
/// # Panics
/// When an invalid head is accepted, or a status, a reason phrase or a field does not reach the client as it came.
pub fn answer_head(data: &[u8]) {
    let response = [data, b"\r\n\r\n"].concat();
    let said = exchange(REQUEST, &response);
    answers(&said, false);
    let Some(got) = finals(&said) else { return };
    if got.fields.iter().any(|(name, _)| name == "proxy-status") {
        // The proxy's own answer: the head was refused, or what follows it was.
        return;
    }
    let sent = finals(&response).unwrap_or_else(|| {
        panic!("an invalid head was accepted: {}", response.escape_ascii());
    });
    assert_eq!((got.status, &got.reason), (sent.status, &sent.reason));
    // Fields that the response's `Connection` names are about its connection, too.
    let listed: Vec<String> = named(&sent.fields, "connection")
        .flat_map(|value| {
            String::from_utf8_lossy(value)
                .to_ascii_lowercase()
                .split(',')
                .map(|name| name.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    for (name, _) in &sent.fields {
        if OWN.contains(&name.as_str()) || listed.contains(name) {
            continue;
        }
        let values =
            |head: &Head| named(&head.fields, name).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(values(&got), values(&sent), "{name}");
    }
}

fn named<'a>(fields: &'a [(String, Vec<u8>)], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_slice())
}

/// The first head in `bytes` that is not an interim response's. `None` if it is not valid or not complete.
fn finals(mut bytes: &[u8]) -> Option<Head> {
    loop {
        let (head, size) = parse(bytes)?;
        if head.status >= 200 {
            return Some(head);
        }
        bytes = &bytes[size..];
    }
}

/// The head at the start of `bytes` and its size (RFC 9112 §4, §5).
fn parse(bytes: &[u8]) -> Option<(Head, usize)> {
    let mut at = 0;
    let first = line(bytes, &mut at)?;
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0' | b'1', b' ', rest @ ..] = first else {
        return None;
    };
    let (digits, reason) = rest.split_at_checked(3)?;
    let status = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let reason = match reason {
        [] => &[],
        [b' ', reason @ ..] if reason.iter().copied().all(is_visible) => reason,
        _ => return None,
    };
    if !(100..600).contains(&status) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut fields = Vec::new();
    loop {
        let field = line(bytes, &mut at)?;
        if field.is_empty() {
            return Some((Head { status, reason: reason.to_vec(), fields }, at));
        }
        fields.push(read(field)?);
    }
}

/// The next line, which ends in CR and LF and contains neither.
fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = &bytes[*at..];
    let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'))?;
    *at += end + 2;
    rest[end..].starts_with(b"\r\n").then(|| &rest[..end])
}

/// A field. Spaces before the colon of a response's field are removed.
fn read(field: &[u8]) -> Option<(String, Vec<u8>)> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    let name = std::str::from_utf8(&field[..colon]).ok()?.trim_end_matches([' ', '\t']);
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let value = field[colon + 1..].trim_ascii();
    let valid =
        !name.is_empty() && name.bytes().all(token) && value.iter().copied().all(is_visible);
    valid.then(|| (name.to_ascii_lowercase(), value.to_vec()))
}

fn is_visible(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}
