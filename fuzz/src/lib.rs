//! The bodies of the fuzz targets. Each takes any bytes and returns; when it finds a fault, it panics.
//!
//! They are plain functions, so that libFuzzer (`fuzz_targets/`) and the driver for a stable toolchain
//! (`src/drive.rs`) run the same code.

mod chunked;
mod frames;
mod heads;
mod targets;

pub use chunked::chunked_body;
pub use frames::{h2_frames, seeds as frame_seeds};
pub use heads::answer_head;
pub use targets::request_target;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mwl_proxy::config::{self, Origin};
use mwl_proxy::language::code::CodePattern;
use mwl_proxy::language::definition::{Strictness, compile};
use mwl_proxy::language::engine::{Start, run};
use mwl_proxy::language::expr::{Bindings, Program, Root, Roots};
use mwl_proxy::language::provider::Catalog;
use mwl_proxy::language::temporal::{Span, Timestamp};
use mwl_proxy::language::uri::ProviderUri;
use mwl_proxy::language::value::Value;
use mwl_proxy::proxy::testing::{alone, proxied_by};
use mwl_proxy::proxy::{Runtime, UpstreamRegistry};
use mwl_proxy::source::{Format, Sources};
use mwl_proxy::telemetry::metrics::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

/// A target, by name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 14] = [
    ("definition", definition),
    ("expression", expression),
    ("duration", duration),
    ("timestamp", timestamp),
    ("uri", uri),
    ("pattern", pattern),
    ("config", config),
    ("request_head", request_head),
    ("response_head", response_head),
    ("h2_frames", h2_frames),
    ("request_target", request_target),
    ("chunked_body", chunked_body),
    ("answer_head", answer_head),
    ("proxy_header", proxy_header),
];

/// The virtual time after which a run is cancelled. It must then end.
const RUN: Duration = Duration::from_hours(1);

/// The most polls of one run; after these it is dropped. A graph may loop without ever waiting.
const POLLS: u32 = 2000;

/// How long one run may take, in real time.
const PATIENCE: Duration = Duration::from_secs(1);

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// Parses, compiles with the providers that the specification defines, and runs.
///
/// # Panics
/// When a cancelled run gives no Result.
pub fn definition(data: &[u8]) {
    let Some(text) = text(data) else { return };
    for format in [Format::Json, Format::Yaml] {
        let mut sources = Sources::default();
        let node = match sources.parse("fuzz", text, format) {
            Ok(node) => node,
            Err(diagnostics) => {
                assert!(!sources.render(&diagnostics).is_empty());
                continue;
            }
        };
        for strictness in [Strictness::Load, Strictness::Runtime] {
            match compile(&node, &Catalog::spec_defined(None), strictness) {
                Err(diagnostics) => {
                    assert!(diagnostics.has_errors());
                    assert!(!sources.render(&diagnostics).is_empty());
                }
                Ok((plan, advice)) => {
                    assert!(!advice.has_errors());
                    run_bounded(&plan);
                }
            }
        }
    }
}

/// Runs a plan in paused time, cancelled after [`RUN`], for at most [`POLLS`] polls.
fn run_bounded(plan: &mwl_proxy::language::plan::Plan) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let token = CancellationToken::new();
        let cancel = token.clone();
        tokio::spawn(async move {
            tokio::time::sleep(RUN).await;
            cancel.cancel();
        });
        let mut start = Start { cancel: Some(token), ..Start::new("fuzz") };
        let running = run(plan, &mut start, Value::empty_object(), Value::from(1));
        let mut running = std::pin::pin!(running);
        let mut polls = 0;
        let begun = std::time::Instant::now();
        std::future::poll_fn(move |context| {
            polls += 1;
            // A graph that never ends may take long. One poll may not, which the driver notices.
            if polls > POLLS || begun.elapsed() > PATIENCE {
                return std::task::Poll::Ready(());
            }
            running.as_mut().poll(context).map(|outcome| {
                assert!(outcome.to_value().get("type").is_some());
            })
        })
        .await;
    });
}

/// Bindings in which every root holds the same document.
struct Everywhere(Value);

impl Bindings for Everywhere {
    fn root(&self, _: Root) -> Option<Value> {
        Some(self.0.clone())
    }

    fn now(&self) -> i128 {
        1_705_311_000_250_000_000
    }

    fn wall_time(&self) -> i128 {
        1_705_311_001_000_000_000
    }
}

/// Compiles and evaluates.
///
/// # Panics
/// When a compile error points outside of the text, or one text gives two values.
pub fn expression(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let body = Program::body(text).unwrap_or(text);
    match Program::compile(body, Roots::of(&Root::ALL)) {
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(error.offset <= body.chars().count(), "{error:?}");
            }
        }
        Ok(program) => {
            let member = Value::object([
                ("value", Value::from(2)),
                ("items", Value::array(vec![Value::from("a"), Value::Null])),
            ]);
            let bindings = Everywhere(Value::object([
                ("input", member.clone()),
                ("result", member.clone()),
                ("metadata", member),
                ("name", Value::from("name")),
            ]));
            let first = program.evaluate(&bindings);
            let second = program.evaluate(&bindings);
            if let (Ok(first), Ok(second)) = (first, second) {
                assert_eq!(first.to_string(), second.to_string());
            }
        }
    }
}

/// Parses, prints, parses: the same instant.
///
/// # Panics
/// When it is another one, although RFC 3339 can express it.
pub fn timestamp(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(instant) = Timestamp::parse(text) {
        let shown = instant.to_string();
        let read = Timestamp::parse(&shown);
        assert_eq!(read.map(|read| read.to_string()).as_deref(), Some(&*shown), "{text}");
    }
}

/// Parses, prints, parses: the same span.
///
/// # Panics
/// When it is another one.
pub fn duration(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(span) = Span::parse(text) {
        let wait = span.to_duration();
        let shown = Span::from_duration(wait).to_string();
        let read = Span::parse(&shown).map(Span::to_duration);
        assert_eq!(read, Some(wait), "{text} {shown}");
    }
}

/// A URI has one spelling.
///
/// # Panics
/// When an accepted URI is printed differently, or split differently than it is written.
pub fn uri(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match ProviderUri::parse(text) {
        Err(problem) => assert!(problem.contains("provider URI"), "{problem}"),
        Ok(uri) => {
            assert_eq!(uri.as_str(), text);
            assert!(text.contains(uri.namespace()));
            assert!(text.ends_with(uri.name()));
            assert!(uri.name().contains(uri.bare_name()));
        }
    }
}

/// Matches a pattern against codes that are made of its own text.
///
/// # Panics
/// When a pattern does not match the code that it spells.
pub fn pattern(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(pattern) = CodePattern::parse(text) {
        let spelled = text.replace('*', "x");
        assert!(pattern.matches(&spelled), "{text}");
        pattern.matches("");
        pattern.matches("*");
        pattern.matches(&format!("{text}."));
    }
}

/// An origin without files and variables.
fn nothing() -> Origin<'static> {
    let read = &|_: &Path| Err(std::io::ErrorKind::NotFound.into());
    Origin { read, variable: &|_| None, ..Origin::system() }
}

/// Reads a configuration, in both formats, that may name no file and no variable.
///
/// # Panics
/// When it is refused without a diagnostic.
pub fn config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let origin = nothing();
    for name in ["fuzz.json", "fuzz.yaml"] {
        if let Err(refused) = config::parse(Path::new(name), text, origin) {
            assert!(!refused.sources.render(&refused.diagnostics).is_empty());
        }
    }
}

/// The routes that the HTTP targets are served by: one answers with what it read of the request, and one
/// calls an upstream.
const ROUTES: &str = "
listeners: [{ address: '127.0.0.1:0' }]
forwarded: { trusted: [127.0.0.1], forwarded: true }
upstreams: { u: { endpoints: ['http://127.0.0.1:1'], idleTimeout: PT1S, connectTimeout: PT0.001S } }
limits: { tunnelTimeout: PT1M, workers: 1 }
routes:
  - name: asks
    match: { pathPrefix: /up }
    rewrite: { pathPrefix: /v2 }
    upstream: u
    classify: [{ status: [418], when: '{{ size(response.headers) > 1 }}', code: A.B }]
    responseHeaders: { set: { x-set: '1' }, remove: [server] }
  - { name: plain, match: { path: /plain }, upstream: u }
  - name: body
    match: { path: /body }
    flow:
      entrypoint: r
      steps: { r: { action: Return, value: { read: '{{ frame.input.body }}' } } }
  - name: reads
    flow:
      entrypoint: r
      steps: { r: { action: Return, value: '{{ frame.input }}' } }
";

fn routes() -> Arc<Runtime> {
    static ROUTES_READ: std::sync::LazyLock<Arc<Runtime>> = std::sync::LazyLock::new(|| {
        let loaded = config::parse(Path::new("fuzz.yaml"), ROUTES, nothing());
        let settings = loaded.expect("the routes are well-formed").settings;
        let (catalog, known) = (mwl_proxy::proxy::catalog(None), UpstreamRegistry::default());
        let built = Runtime::build(settings, &catalog, &Metrics::new(), &known);
        Arc::new(built.expect("the routes compile").0)
    });
    Arc::clone(&ROUTES_READ)
}

/// What a client reads that sends `request` and then nothing more. The upstream's idle connection answers
/// with `response` and then closes.
fn exchange(request: &[u8], response: &[u8]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (near, mut client) = tokio::io::duplex(1 << 20);
        let (far, mut origin) = tokio::io::duplex(1 << 20);
        let served = tokio::spawn(alone::serve(routes(), near, Some(far)));
        let response = response.to_vec();
        let answers = tokio::spawn(async move {
            let mut read = [0; 4096];
            if origin.read(&mut read).await.is_ok_and(|size| size > 0) {
                origin.write_all(&response).await.ok();
            }
        });
        client.write_all(request).await.ok();
        // The client stays until every timeout has fired, so that it gets its answer.
        let mut all = Vec::new();
        let read = tokio::time::timeout(Duration::from_mins(5), client.read_to_end(&mut all));
        assert!(read.await.is_ok(), "the connection outlives every bound");
        served.await.expect("no panic");
        answers.abort();
        all
    })
}

/// Checks that `bytes` is a sequence of valid answers: a final status, fields, and a body of the stated
/// length. Returns the statuses. An upstream's status passes unchanged, even one that no RFC defines (RFC
/// 9110, section 15).
fn answers(bytes: &[u8], to_head: bool) -> Vec<u16> {
    let mut rest = bytes;
    let mut statuses = Vec::new();
    while !rest.is_empty() {
        let mut fields = [httparse::EMPTY_HEADER; 256];
        let mut answer = httparse::Response::new(&mut fields);
        let Ok(httparse::Status::Complete(size)) = answer.parse(rest) else {
            panic!("no head of an answer: {}", rest.escape_ascii());
        };
        let status = answer.code.expect("a status");
        rest = &rest[size..];
        if status < 200 {
            continue;
        }
        assert!((200..600).contains(&status), "{status}");
        statuses.push(status);
        let field = |name: &str| {
            let found = answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
            found.map(|field| String::from_utf8_lossy(field.value).into_owned())
        };
        if to_head || matches!(status, 204 | 304) {
            return statuses;
        }
        match (field("transfer-encoding"), field("content-length")) {
            (Some(_), _) | (None, None) => return statuses,
            (None, Some(length)) => {
                let length: usize = length.parse().expect("a length");
                if rest.len() < length {
                    return statuses;
                }
                rest = &rest[length..];
            }
        }
    }
    statuses
}

/// A client's bytes through the real server: heads and bodies, pipelined or broken.
///
/// # Panics
/// When the server panics, exceeds its time bounds, or sends something that is not a response.
pub fn request_head(data: &[u8]) {
    let said = exchange(data, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    if !said.starts_with(b"HTTP/") && data.windows(4).any(|word| word == b"PRI ") {
        // Then it speaks HTTP/2 and answers in frames.
        return;
    }
    // Only the server knows whether a HEAD was among the requests.
    let heads = data.windows(4).any(|word| word == b"HEAD");
    answers(&said, heads);
}

/// An upstream's bytes through the real client: heads and bodies, classified, rendered or refused.
///
/// # Panics
/// When the proxy panics, exceeds its time bounds, or its client gets more than one answer.
pub fn response_head(data: &[u8]) {
    let said = exchange(b"GET /up/x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", data);
    let statuses = answers(&said, false);
    // No status at all when the body broke off together with its head: the connection is just closed.
    assert!(statuses.len() <= 1, "{statuses:?}");
}

/// Reads the header of the PROXY protocol.
///
/// # Panics
/// When a part of a header needs more bytes than the whole has, or when what follows a header changes it.
pub fn proxy_header(data: &[u8]) {
    let Some(Ok(source)) = proxied_by(data) else { return };
    let mut size = 0;
    while let Some(Err(needs)) = proxied_by(&data[..size]) {
        assert!(needs > size && needs <= data.len(), "{size} {needs}");
        size = needs;
    }
    assert_eq!(proxied_by(&data[..size]), Some(Ok(source)));
}
