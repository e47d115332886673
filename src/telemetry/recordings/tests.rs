use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use tokio::time::Instant;

use super::*;
use crate::telemetry::record::tests::{self, answer, request};

/// A folder of its own, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mwl-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn body(bytes: &'static [u8], passed: u64) -> CopiedBody {
    let whole = passed == bytes.len() as u64;
    CopiedBody { bytes: Bytes::from_static(bytes), passed, whole }
}

fn copied(body: Option<CopiedBody>) -> Copied {
    let field = |(name, value): (&'static str, &str)| {
        (http::HeaderName::from_static(name), value.parse().unwrap())
    };
    let sent = [("host", "a.test"), ("cookie", "a=b"), ("x-a", "Bearer b"), ("accept", "*/*")];
    let got = [("location", "https://a.test/?sig=b"), ("set-cookie", "a=b")];
    Copied {
        method: Method::POST,
        target: "/charge?token=s3cret&a=1".into(),
        version: Version::HTTP_11,
        headers: sent.map(field).into_iter().collect(),
        body,
        answer: Some((StatusCode::OK, got.map(field).into_iter().collect(), None)),
    }
}

fn execution(id: &str) -> Arc<Execution> {
    Arc::new(tests::execution(request(id), false, answer(200, Instant::now(), 1), 1))
}

fn recording(id: &str, copied: &Copied) -> Recording {
    let request = RecordedRequest::of(copied);
    let id = folder::id("2026-11-29T08:52:00Z", id, "00000000000000ff");
    let execution = json!({ "execution": id });
    let answer = copied.answer.as_ref();
    let answer =
        answer.map(|(status, fields, body)| RecordedAnswer::of(*status, fields, body.as_ref()));
    Recording { version: form::VERSION, id, listener: None, request, answer, execution }
}

#[tokio::test]
async fn what_is_kept_is_written_read_and_holds_no_credential() {
    let place = Place::new("recorded");
    let metrics = Metrics::new();
    let recordings = Recordings::start(&place.0, &metrics).unwrap();
    recordings.listen(&["0.0.0.0:8080".parse().unwrap()]);
    recordings.keep(copied(Some(body(b"{\"card\":1}", 10))), execution("one"));
    recordings.flush(Duration::MAX);
    let [name] = place.names().try_into().unwrap();
    let text = fs::read_to_string(place.0.join(&name)).unwrap();
    for secret in ["s3cret", "a=b", "Bearer", "sig=b"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let listed = recordings.to_json(&Selection::default());
    let id = listed["recordings"][0]["id"].as_str().unwrap();
    assert_eq!(format!("{id}.json"), name);
    assert_eq!(listed["recordings"][0]["target"], "/charge?token=***&a=1");
    let read = recordings.read(id).unwrap();
    assert_eq!(read.listener.as_deref(), Some("http://127.0.0.1:8080"));
    let hidden = ["the header cookie", "the header x-a", "the query's token"];
    assert_eq!(read.request.hidden(), hidden);
    assert_eq!(read.request.sendable_target(), "/charge?a=1");
    assert_eq!(read.request.body.unwrap().content().unwrap(), b"{\"card\":1}");
    let other = Selection { execution: Some("two".into()), ..Selection::default() };
    assert_eq!(recordings.to_json(&other)["recordings"], json!([]));
    for none in ["", "..", "../../etc/passwd", &id.replace('2', "3")] {
        assert!(matches!(recordings.read(none), Err(ReadError::Unknown(_))), "{none}");
    }
}

#[test]
fn the_oldest_go_and_nothing_else() {
    let place = Place::new("bounded");
    fs::write(place.0.join("mine.json"), "{}").unwrap();
    let open = || Folder::open(&place.0, (3, 1 << 20)).unwrap();
    let folder = open();
    for number in 0..5 {
        folder.write(&recording(&number.to_string(), &copied(None))).unwrap();
    }
    let kept = place.names();
    let wanted = ["-2-", "-3-", "-4-"];
    assert!(kept.iter().zip(wanted).all(|(name, wanted)| name.contains(wanted)), "{kept:?}");
    assert_eq!(kept.last().unwrap(), "mine.json");
    // The next process knows them, and goes on.
    let next = open();
    next.list_earlier().unwrap();
    next.write(&recording("5", &copied(None))).unwrap();
    let (listed, count, bytes) = next.latest(2, |_| true);
    assert_eq!((listed.len(), count), (2, 3));
    assert!(listed[0]["id"].as_str().unwrap().contains("-5-"), "{listed:?}");
    // So many bytes, too.
    let small = Folder::open(&place.0, (3, bytes - 1)).unwrap();
    small.list_earlier().unwrap();
    assert_eq!((small.latest(9, |_| true).1, place.names().len()), (2, 3));
}

#[test]
fn bodies_are_text_or_base64_and_say_what_is_missing() {
    let of = |bytes, passed| {
        let request = RecordedRequest::of(&copied(Some(body(bytes, passed))));
        (json!(request.body), request.obstacle())
    };
    assert_eq!(of(b"", 0), (json!({ "bytes": 0, "text": "" }), None));
    assert_eq!(of(b"\xff\x00", 2), (json!({ "bytes": 2, "base64": "/wA=" }), None));
    // Cut off within a character.
    let (cut, obstacle) = of(b"a\xc3", 4);
    assert_eq!(cut, json!({ "bytes": 4, "text": "a", "truncated": true }));
    insta::assert_snapshot!(obstacle.unwrap(), @"its body was not kept whole: 1 of 4 bytes that passed");
    let mut upgrade = copied(None);
    upgrade.headers.insert("upgrade", "websocket".parse().unwrap());
    assert!(RecordedRequest::of(&upgrade).obstacle().unwrap().contains("another protocol"));
    let mut grpc = copied(None);
    grpc.version = Version::HTTP_2;
    grpc.headers.insert("content-type", "application/grpc+proto".parse().unwrap());
    assert!(RecordedRequest::of(&grpc).obstacle().unwrap().contains("gRPC"));
}
