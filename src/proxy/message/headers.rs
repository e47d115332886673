//! Header fields: which belong to one connection, which pass, and how expressions read them.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::id;
use crate::language::value::{Map, Missing, Value};

/// Fields about one connection (RFC 9110 §7.6.1), whether `Connection` names them or not.
static HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Whether a request has fields about this hop, so that more must be done than passing it on: the fields that
/// [`strip_hop_by_hop`] removes, `Expect`, or `Trailer`. Most requests have none, and looking at each name once
/// is cheaper than looking each of these up.
pub(crate) fn concerns_this_hop(headers: &HeaderMap) -> bool {
    let ours = |name: &HeaderName| *name == header::EXPECT || *name == header::TRAILER;
    headers.keys().any(|name| is_hop_by_hop(name) || ours(name))
}

/// Removes `Connection` if it is the only field about this hop and only says whether the connection stays open, which is what
/// most messages with such a field have. Returns whether that was so.
pub(crate) fn strip_plain_connection(headers: &mut HeaderMap) -> bool {
    let plain = {
        let ours = |name: &HeaderName| *name == header::EXPECT || *name == header::TRAILER;
        let mut about = headers.keys().filter(|name| is_hop_by_hop(name) || ours(name));
        let only = about.next() == Some(&header::CONNECTION) && about.next().is_none();
        only && headers.get_all(header::CONNECTION).iter().all(is_plain)
    };
    if plain {
        headers.remove(header::CONNECTION);
    }
    plain
}

/// Whether the body has no transfer coding except `chunked`, once. Any other coding would have to be decoded
/// before the body could be sent on with our own framing (RFC 9112 §6.1).
fn is_coding_known(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let chunked =
        |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    codings.next().is_none_or(chunked) && codings.next().is_none()
}

/// Removes fields about one connection: the known ones and those that `Connection` names. `Content-Length` and
/// `Host` stay even if `Connection` names them: a client must not be able to take them from the next hop.
/// Returns false if the body has an unknown transfer coding: see [`is_coding_known`].
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) -> bool {
    // Most messages have none, and looking at each name once is cheaper than six lookups.
    if !headers.keys().any(is_hop_by_hop) {
        return true;
    }
    if strip_plain_connection(headers) {
        return true;
    }
    let known = is_coding_known(headers);
    let mut connection = headers.get_all(header::CONNECTION).iter();
    if !connection.all(is_plain) {
        for name in named_by_connection(headers) {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    known
}

/// Whether there is at most one `Content-Length`, and it is a number. The HTTP/1.1 parser checks this itself.
/// HTTP/2 is not framed by this field, so it must be checked here: it must not give the next hop's message two
/// framings (RFC 9110 §8.6).
pub(crate) fn is_length_sound(headers: &HeaderMap) -> bool {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let is_number = |value: &HeaderValue| {
        let text = value.as_bytes();
        text.iter().all(u8::is_ascii_digit)
            && value.to_str().is_ok_and(|n| n.parse::<u64>().is_ok())
    };
    lengths.next().is_none_or(is_number) && lengths.next().is_none()
}

/// Fields of which a request may have only one. Servers read the first of two, or the last; so two of these could name
/// two users or two meanings. `Host` and `Content-Length` are checked where they are used. Other fields of this kind,
/// such as `User-Agent`, decide nothing here and pass unchanged.
static SINGLE: [HeaderName; 7] = [
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    header::CONTENT_TYPE,
    header::CONTENT_RANGE,
    header::MAX_FORWARDS,
    header::ORIGIN,
    HeaderName::from_static("idempotency-key"),
];

/// Checks a request with repeated fields: none of them may be of [`SINGLE`] (RFC 9110 §5.3). Several request ids are
/// removed, so that the request gets a new one.
///
/// # Errors
/// The name of a field that must not be repeated.
pub(crate) fn check_single(headers: &mut HeaderMap) -> Result<(), &'static str> {
    let several = |name: &HeaderName| headers.get_all(name).iter().nth(1).is_some();
    if let Some(name) = SINGLE.iter().find(|name| several(name)) {
        return Err(name.as_str());
    }
    if several(&id::REQUEST_ID) {
        headers.remove(&id::REQUEST_ID);
    }
    Ok(())
}

/// Whether `TE` says that the sender accepts trailers.
pub(crate) fn takes_trailers(headers: &HeaderMap) -> bool {
    let all = headers.get_all(header::TE).iter();
    let mut codings = all.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(name.as_str().len(), 2 | 7 | 10 | 16 | 17) && HOP_BY_HOP.contains(name)
}

/// The common values, which name no other field.
fn is_plain(connection: &HeaderValue) -> bool {
    let plain = |text: &str| connection.as_bytes().eq_ignore_ascii_case(text.as_bytes());
    plain("keep-alive") || plain("close")
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| name != header::CONTENT_LENGTH && name != header::HOST)
        .collect()
}

/// The fields as the object that expressions read: names in lower case, repeated fields joined by `, `, but
/// `set-cookie` always as an array, because its values contain commas. Bytes that are not UTF-8 become U+FFFD.
pub(crate) fn to_value(headers: &HeaderMap) -> Value {
    let member = |name: &HeaderName| Some((name.as_str().into(), field(headers, name.as_str())?));
    Value::Object(Arc::new(headers.keys().filter_map(member).collect::<Map>()))
}

/// The value at `path` in [`to_value`]. Only this member is made.
pub(crate) fn at(headers: &HeaderMap, path: &[Arc<str>]) -> Result<Value, Missing> {
    match path.split_first() {
        None => Ok(to_value(headers)),
        Some((name, rest)) => Missing::follow(field(headers, name), rest),
    }
}

/// The member `name` of [`to_value`].
fn field(headers: &HeaderMap, name: &str) -> Option<Value> {
    // The map would find it in any case.
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    let mut texts =
        headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let first = texts.next()?;
    if name == header::SET_COOKIE.as_str() {
        let all = std::iter::once(first).chain(texts);
        return Some(Value::array(all.map(Value::string).collect()));
    }
    let joined = texts.fold(first, |mut joined, next| {
        let all = joined.to_mut();
        all.push_str(", ");
        all.push_str(&next);
        joined
    });
    Some(Value::string(joined))
}

/// Whether the field `name` is present, with the value `wanted` if that is given.
pub(crate) fn has(headers: &HeaderMap, name: &HeaderName, wanted: Option<&str>) -> bool {
    let mut all = headers.get_all(name).iter();
    match wanted {
        None => all.next().is_some(),
        Some(wanted) => all.any(|value| value.as_bytes() == wanted.as_bytes()),
    }
}

/// Converts the fields of an HTTP/2 request to the form of any version: the crumbs of a cookie are joined (RFC
/// 9113 §8.2.3).
pub(crate) fn join_crumbs(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else {
        return;
    };
    let mut whole = first.as_bytes().to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        whole.extend_from_slice(b"; ");
        whole.extend_from_slice(crumb.as_bytes());
    }
    // The crumbs were field values, and so is the joined cookie.
    if let Ok(whole) = HeaderValue::from_bytes(&whole) {
        headers.insert(header::COOKIE, whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn stripped(fields: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = map(&[]);
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        strip_hop_by_hop(&mut headers);
        let mut kept: Vec<_> = headers.keys().map(ToString::to_string).collect();
        kept.sort_unstable();
        kept
    }

    #[test]
    fn a_connection_that_only_says_whether_it_stays_is_no_concern_of_this_hop() {
        for (fields, plain) in [
            (&[("x-y", "1"), ("connection", "close")][..], true),
            (&[("connection", "Keep-Alive"), ("x-y", "1")], true),
            (&[("connection", "close, x-y"), ("x-y", "1")], false),
            (&[("connection", "upgrade"), ("upgrade", "foo")], false),
            (&[("connection", "close"), ("te", "trailers")], false),
            (&[("connection", "close"), ("expect", "100-continue")], false),
            (&[("x-y", "1")], false),
        ] {
            let mut headers = map(fields);
            assert_eq!(strip_plain_connection(&mut headers), plain, "{fields:?}");
            assert_eq!(headers.len(), fields.len() - usize::from(plain), "{fields:?}");
        }
    }

    #[test]
    fn fields_of_one_connection_do_not_pass() {
        let kept = stripped(&[
            ("keep-alive", "x"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers, gzip"),
            ("upgrade", "foo"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "Basic eA=="),
            ("x-y", "1"),
        ]);
        assert_eq!(kept, ["proxy-authorization", "x-y"]);
        assert!(stripped(&[("connection", "upgrade")]).is_empty());
    }

    #[test]
    fn each_field_of_one_connection_is_seen_alone() {
        for name in &HOP_BY_HOP {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("x"));
            strip_hop_by_hop(&mut headers);
            assert!(headers.is_empty(), "{headers:?}");
        }
    }

    #[test]
    fn only_chunks_are_a_known_coding() {
        let known = |codings: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for coding in codings {
                headers.append(header::TRANSFER_ENCODING, HeaderValue::from_static(coding));
            }
            is_coding_known(&headers)
        };
        assert!(known(&[]) && known(&["chunked"]) && known(&["Chunked "]));
        for unknown in [&["gzip, chunked"][..], &["chunked, chunked"], &["gzip", "chunked"], &[""]]
        {
            assert!(!known(unknown), "{unknown:?}");
        }
        assert!(known(&["chunked"]) && !known(&["chunked", "chunked"]));
    }

    #[test]
    fn an_expectation_is_about_this_hop_and_common_fields_are_not() {
        assert!(concerns_this_hop(&map(&[("expect", "100-continue")])));
        assert!(concerns_this_hop(&map(&[("connection", "close")])));
        assert!(!concerns_this_hop(&map(&[("accept", "*/*"), ("content-length", "1")])));
    }

    #[test]
    fn fields_that_connection_names_do_not_pass() {
        let fields = [
            ("connection", "close, X-Drop ,,"),
            ("connection", "x-too, bad name"),
            ("x-drop", "1"),
            ("x-too", "1"),
            ("x-keep", "1"),
        ];
        assert_eq!(stripped(&fields), ["x-keep"]);
    }

    #[test]
    fn connection_cannot_take_the_framing_away() {
        let fields =
            [("connection", "content-length, host"), ("content-length", "5"), ("host", "t")];
        assert_eq!(stripped(&fields), ["content-length", "host"]);
    }

    #[test]
    fn a_length_is_one_number() {
        let sound = |lengths: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for length in lengths {
                headers.append(header::CONTENT_LENGTH, HeaderValue::from_static(length));
            }
            is_length_sound(&headers)
        };
        assert!(sound(&[]) && sound(&["0"]) && sound(&["18446744073709551615"]));
        for bad in [&["5", "6"][..], &["5", "5"], &["5, 5"], &["+5"], &["-1"], &[""], &["0x5"]] {
            assert!(!sound(bad), "{bad:?}");
        }
        assert!(!sound(&["9999999999999999999999999"]));
    }

    #[test]
    fn te_says_whether_trailers_are_taken() {
        let takes = |te| takes_trailers(&map(&[("te", te)]));
        assert!(takes("trailers") && takes("gzip;q=0.5, Trailers"));
        assert!(!takes("gzip") && !takes_trailers(&map(&[])));
    }

    #[test]
    fn repeated_fields_join_and_cookies_do_not() {
        let mut headers = map(&[("x-a", "1"), ("set-cookie", "a=1")]);
        headers.append("x-a", HeaderValue::from_static("2"));
        headers.append("x-b", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(
            to_value(&headers).to_string(),
            r#"{"x-a":"1, 2","set-cookie":["a=1"],"x-b":"�"}"#
        );
    }

    #[test]
    fn one_field_reads_as_in_the_whole() {
        let mut headers = map(&[("x-a", "1"), ("set-cookie", "a=1")]);
        headers.append("x-a", HeaderValue::from_static("2"));
        let whole = to_value(&headers);
        for path in ["", "x-a", "X-A", "set-cookie", "x-b", "bad name", "x-a more", "set-cookie 0"]
        {
            let path: Vec<Arc<str>> = path.split_whitespace().map(Arc::from).collect();
            assert_eq!(at(&headers, &path), whole.at(&path), "{path:?}");
        }
        assert_eq!(at(&headers, &["x-a".into()]), Ok(Value::from("1, 2")));
    }

    #[test]
    fn crumbs_make_one_cookie() {
        let mut headers = HeaderMap::new();
        for crumb in ["a=1", "b=2", "c=3"] {
            headers.append(header::COOKIE, HeaderValue::from_static(crumb));
            join_crumbs(&mut headers);
        }
        let all: Vec<_> = headers.get_all(header::COOKIE).iter().collect();
        assert_eq!(all, ["a=1; b=2; c=3"]);
    }
}
