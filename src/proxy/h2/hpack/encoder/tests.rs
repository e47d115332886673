use super::super::Name;
use super::*;
use std::fmt::Write;

/// What `write` writes in a block of its own, in hexadecimal.
fn block(encoder: &mut Encoder, write: impl FnOnce(&mut Encoder, &mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    encoder.begin(&mut out);
    write(encoder, &mut out);
    let mut text = String::new();
    out.iter().for_each(|octet| write!(text, "{octet:02x}").unwrap());
    text
}

/// What one field is written as.
fn field(encoder: &mut Encoder, name: &'static str, value: &str) -> String {
    let (name, value) = (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    block(encoder, |encoder, out| encoder.field(&name, &value, out))
}

#[test]
fn requests_of_rfc_7541_c_4() {
    let mut encoder = Encoder::new();
    let first = block(&mut encoder, |encoder, out| {
        encoder.method(&Method::GET, out);
        encoder.scheme(b"http", out);
        encoder.path(b"/", out);
        encoder.authority(b"www.example.com", out);
    });
    assert_eq!(first, "828684418cf1e3c2e5f23a6ba0ab90f4ff");
    let mut fields = HeaderMap::new();
    fields.insert("cache-control", HeaderValue::from_static("no-cache"));
    let second = block(&mut encoder, |encoder, out| {
        encoder.method(&Method::GET, out);
        encoder.scheme(b"http", out);
        encoder.path(b"/", out);
        encoder.authority(b"www.example.com", out);
        encoder.fields(&fields, out);
    });
    assert_eq!(second, "828684be5886a8eb10649cbf");
    fields.clear();
    fields.insert("custom-key", HeaderValue::from_static("custom-value"));
    let third = block(&mut encoder, |encoder, out| {
        encoder.method(&Method::GET, out);
        encoder.scheme(b"https", out);
        encoder.path(b"/index.html", out);
        encoder.authority(b"www.example.com", out);
        encoder.fields(&fields, out);
    });
    assert_eq!(third, "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf");
}

#[test]
fn statuses_are_indexed() {
    let mut encoder = Encoder::new();
    let mut status = |status| {
        block(&mut encoder, |encoder, out| {
            encoder.status(StatusCode::from_u16(status).unwrap(), out);
        })
    };
    let known = [200, 204, 206, 304, 400, 404, 500].map(&mut status);
    assert_eq!(known, ["88", "89", "8a", "8b", "8c", "8d", "8e"]);
    assert_eq!(status(302), "48826402");
    assert_eq!(status(302), "be");
    assert_eq!(status(307), "4803333037");
    assert_eq!(status(302), "bf");
}

#[test]
fn a_method_other_than_get_and_post_is_indexed() {
    let mut encoder = Encoder::new();
    let mut method =
        |method: Method| block(&mut encoder, |encoder, out| encoder.method(&method, out));
    assert_eq!(method(Method::POST), "83");
    assert!(method(Method::DELETE).starts_with("42"));
    assert_eq!(method(Method::DELETE), "be");
}

#[test]
fn protocols_are_written_with_their_name() {
    let mut encoder = Encoder::new();
    let mut protocol = || block(&mut encoder, |encoder, out| encoder.protocol(b"websocket", out));
    assert!(protocol().starts_with("40"));
    assert_eq!(protocol(), "be");
}

#[test]
fn a_value_that_the_static_table_has_is_indexed() {
    assert_eq!(field(&mut Encoder::new(), "accept-encoding", "gzip, deflate"), "90");
}

#[test]
fn values_of_one_message_stay_out_of_the_table() {
    let mut encoder = Encoder::new();
    for _ in 0..2 {
        assert_eq!(field(&mut encoder, "content-length", "12"), "0f0d023132");
        assert_eq!(field(&mut encoder, "etag", "\"a\""), "0f1303226122");
        assert_eq!(field(&mut encoder, "set-cookie", "a=b"), "0f2803613d62");
    }
}

#[test]
fn secrets_may_enter_no_table() {
    let mut encoder = Encoder::new();
    for _ in 0..2 {
        assert_eq!(field(&mut encoder, "authorization", "a"), "1f080161");
        assert_eq!(field(&mut encoder, "proxy-authorization", "a"), "1f220161");
        assert_eq!(field(&mut encoder, "cookie", "a=b"), "1f1103613d62");
        assert!(field(&mut encoder, "cookie", "a=0123456789abcdefgh").starts_with("0f11"));
        let mut secret = HeaderValue::from_static("gzip, deflate");
        secret.set_sensitive(true);
        let written = block(&mut encoder, |encoder, out| {
            encoder.field(&http::header::ACCEPT_ENCODING, &secret, out);
        });
        assert!(written.starts_with("1f01"), "{written}");
    }
}

#[test]
fn a_secret_is_written_with_the_index_of_its_name() {
    let mut encoder = Encoder::new();
    field(&mut encoder, "x-key", "a");
    let (name, mut secret) = (HeaderName::from_static("x-key"), HeaderValue::from_static("b"));
    secret.set_sensitive(true);
    let written = block(&mut encoder, |encoder, out| encoder.field(&name, &secret, out));
    assert_eq!(written, "1f2f0162");
}

#[test]
fn values_that_come_once_fill_the_table_slowly() {
    let mut encoder = Encoder::new();
    let mut id = |id: u32| field(&mut encoder, "x-request-id", &format!("id-{id}"));
    assert!(id(0).starts_with("40"));
    for next in 1..=32 {
        assert!(id(next).starts_with("0f2f"), "{next}");
    }
    assert!(id(33).starts_with("7e"), "after so many, another is tried");
    assert!(id(34).starts_with("0f2f"));
}

#[test]
fn a_value_that_was_used_makes_way_at_once() {
    let mut encoder = Encoder::new();
    let mut date = |date| field(&mut encoder, "date", date);
    assert!(date("Mon, 21 Oct 2013 20:13:21 GMT").starts_with("61"));
    assert_eq!(date("Mon, 21 Oct 2013 20:13:21 GMT"), "be");
    assert!(date("Mon, 21 Oct 2013 20:13:22 GMT").starts_with("61"));
    assert!(date("Mon, 21 Oct 2013 20:13:23 GMT").starts_with("0f12"));
    assert_eq!(date("Mon, 21 Oct 2013 20:13:21 GMT"), "bf");
    assert_eq!(date("Mon, 21 Oct 2013 20:13:22 GMT"), "be");
    assert!(date("Mon, 21 Oct 2013 20:13:24 GMT").starts_with("61"));
}

#[test]
fn names_of_one_chain_are_told_apart() {
    // The same length and ends.
    let names = ["x-abcdef-1-uvwxyz0", "x-abcdef-2-uvwxyz0", "x-abcdef-3-uvwxyz0"];
    let mut encoder = Encoder::new();
    for name in names {
        assert!(field(&mut encoder, name, "1").starts_with("40"));
    }
    assert_eq!(names.map(|name| field(&mut encoder, name, "1")), ["c0", "bf", "be"]);
    // Each has been used, so each makes way.
    for name in names {
        field(&mut encoder, name, "2");
        assert_eq!(field(&mut encoder, name, "2"), "be");
    }
}

#[test]
fn a_large_value_stays_out_of_the_table() {
    let mut encoder = Encoder::new();
    let value = "v".repeat(2048 - 32 - 4);
    assert!(field(&mut encoder, "vary", &value).starts_with("7b"));
    assert_eq!(field(&mut encoder, "vary", &value), "be");
    assert!(field(&mut encoder, "via", &(value + "vv")).starts_with("0f2d"));
}

#[test]
fn a_size_is_written_once_at_the_head_of_a_block() {
    let mut encoder = Encoder::new();
    let mut get = |sizes: &[usize]| {
        for &size in sizes {
            encoder.set_max_table_size(size);
        }
        block(&mut encoder, |encoder, out| encoder.method(&Method::GET, out))
    };
    assert_eq!(get(&[]), "82");
    assert_eq!(get(&[4096]), "82");
    assert_eq!(get(&[65_536]), "82", "never more than 4,096");
    assert_eq!(get(&[30]), "3e82");
    assert_eq!(get(&[]), "82");
    assert_eq!(get(&[0, 100, 50]), "203f1382", "the smallest, then the last");
    assert_eq!(get(&[70, 40]), "3f0982");
    assert_eq!(get(&[100, 40]), "3f0982");
    assert_eq!(get(&[1_000_000]), "3fe11f82");
}

#[test]
fn a_smaller_table_forgets_the_oldest() {
    let mut encoder = Encoder::new();
    field(&mut encoder, "a", "1");
    field(&mut encoder, "b", "1");
    // One entry of 34 octets. A new one may count half of this, so there is none.
    encoder.set_max_table_size(34);
    assert_eq!(field(&mut encoder, "b", "1"), "3f03be");
    assert_eq!(field(&mut encoder, "a", "1"), "0001610131");
    encoder.set_max_table_size(0);
    assert_eq!(field(&mut encoder, "b", "1"), "200001620131");
}

#[test]
fn each_known_name_has_its_own_index() {
    for (place, entry) in known::TABLE.iter().enumerate() {
        let Ok(Name::Field(name)) = &entry.name else { continue };
        let (index, _) = known::of_name(name);
        assert_eq!(usize::from(index), place + 1, "{name}");
    }
    assert_eq!(known::of_name(&HeaderName::from_static("te")), (0, Policy::Index));
}
