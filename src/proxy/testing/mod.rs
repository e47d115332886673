//! What expressions read of a live request and of a failed attempt, and how targets are read, without a socket. Only for
//! benches, which measure the cost of reading, and for fuzz targets.

pub mod alone;
pub mod http2;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};

use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::Role;
use crate::language::value::Value;
use crate::proxy::answer::reply::{Details, Payload, Reply, RequestSent, StatusLine};
use crate::proxy::answer::retry_after::RetryAfter;
use crate::proxy::io::peer::Peer;
use crate::proxy::message::target::{Target, check_form};
use crate::proxy::message::{path, shape};
use crate::proxy::proxy_header::{self, Parsed};
use crate::proxy::request::exchange::{Exchange, Platform};
use crate::proxy::settings::{Paths, PrefixRewrite};
use crate::proxy::site::runtime::Runtime;
use crate::proxy::site::{WorkerConfig, WorkerState};

/// `frame.input` and `execution.platform` of this request in the proxy of `runtime`.
///
/// `None` if the proxy refuses the request.
pub fn request(runtime: Arc<Runtime>, request: Request<()>) -> Option<(Value, Value)> {
    let site = Arc::new(WorkerConfig::new(Arc::new(WorkerState::new()), runtime, None));
    let client = Peer::clear(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let exchange = Exchange::detached(site, request.into_parts().0, &client).ok()?;
    let platform = Value::Native(Arc::new(Platform(Arc::clone(&exchange))));
    Some((Value::Native(exchange), platform))
}

/// The Result of an attempt to which the upstream responded with this head.
pub fn failed(
    code: &'static str,
    status: StatusCode,
    headers: HeaderMap,
    retry_after: Option<std::time::Duration>,
) -> Outcome {
    let payload = Payload::Buffered(Bytes::new(), None);
    let line = StatusLine { status, reason: None };
    let details = Details {
        endpoint: "127.0.0.1:3000".into(),
        role: Role::Step,
        sent: RequestSent::Complete,
        reused: true,
        phase: None,
        retry_after: retry_after.map(|asked| RetryAfter { asked, max: asked }),
        grpc_status: None,
        refusal: None,
        retry_budget: None,
        proxy_status: "http_response_incomplete",
        reply: Some(Arc::new(Reply::new(Role::Step, line, headers, payload, None))),
    };
    let failure = Failure::error(code, "charge-payment: attempt 1 of 5: upstream billing answered");
    failure.with_retryable(true).with_details(Value::Native(Arc::new(details))).into()
}

/// A target in a request's first line: the path and query that are sent on, and the path's meaning, on which routes
/// match. `None` if the target is refused.
pub fn target(bytes: &[u8], paths: Paths) -> Option<(String, String)> {
    let target = read_target(bytes)?;
    let meaning = path::meaning(target.path(), paths).ok()?;
    Some((target.as_str().to_owned(), meaning.into_owned()))
}

/// The client that a PROXY header at the start of `bytes` names. `Err`: it has at least so many bytes. `None`: there is no
/// header.
pub fn proxied_by(bytes: &[u8]) -> Option<Result<Option<SocketAddr>, usize>> {
    match proxy_header::read(bytes).ok()? {
        Parsed::Whole(ends) => Some(Ok(ends.map(|ends| ends.source))),
        Parsed::Needs(size) => Some(Err(size)),
    }
}

/// What `rewrite: { pathPrefix: to }` makes of such a target on a route with `match: { pathPrefix: from }`.
pub fn rewritten(bytes: &[u8], (from, to): (&str, &str), paths: Paths) -> Option<String> {
    let rule = PrefixRewrite { from: from.into(), to: to.into() };
    let made = shape::rewrite(&read_target(bytes)?, &rule, paths)?;
    Some(made.ok()?.as_str().to_owned())
}

fn read_target(bytes: &[u8]) -> Option<Target> {
    let (absolute, target) = Target::read(&Bytes::copy_from_slice(bytes)).ok()?;
    check_form(&absolute, &target, &Method::GET).ok()?;
    Some(target)
}
