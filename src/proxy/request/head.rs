//! A request's head on its way in: checked, matched to a route, and brought into the form in which it is sent on.
//!
//! The order keeps it safe. The route is found by what the client sent. Then the fields about the client's
//! connection are removed, with those that `Connection` names. Only after that are fields added, so no client
//! can remove a field of the proxy.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::Entry;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Uri, Version, header, request};
use tokio::time::Instant;

use super::trace;
use crate::proxy::grpc;
use crate::proxy::h2::OverLimit;
use crate::proxy::io::peer::Peer;
use crate::proxy::message::forwarded::{self, Hop};
use crate::proxy::message::refusal::Refusal;
use crate::proxy::message::{headers, id, shape, target, trailers, upgrade};
use crate::proxy::settings::Forwarded;
use crate::proxy::site::route::Target;
use crate::proxy::site::runtime::{Runtime, Shaping};
use crate::proxy::site::{WorkerConfig, WorkerRoute};

/// Everything known about a request whose head was accepted, except its parts, which are in the form to send on.
#[derive(Debug)]
pub(crate) struct AcceptedHead {
    pub(crate) route: Arc<WorkerRoute>,
    pub(crate) asked: HopOptions,
    /// The client's address.
    pub(crate) client: IpAddr,
    /// `execution.id`.
    pub(crate) id: HeaderValue,
    /// The target as the client wrote it, if the route rewrites it.
    pub(crate) written: Option<Box<Uri>>,
    /// Its place in a trace, if requests are traced.
    pub(crate) trace: Option<Box<trace::TracePlace>>,
}

/// What the fields about this hop ask for.
#[derive(Debug, Default)]
pub(crate) struct HopOptions {
    /// The protocols to which the client offers to switch.
    pub(crate) upgrade: Option<HeaderValue>,
    /// Whether the client accepts trailers (RFC 9110 §10.1.4).
    pub(crate) trailers: bool,
    /// Whether the client waits for a 100 before it sends its body (RFC 9110 §10.1.1).
    pub(crate) body_unasked: bool,
}

/// Checks a head that came from `peer` and began to be served at `begun`, finds its route, and prepares it for
/// sending on.
pub(crate) fn accept(
    site: &WorkerConfig,
    parts: &mut request::Parts,
    peer: Peer,
    begun: Instant,
) -> Result<AcceptedHead, Refusal> {
    if parts.version == Version::HTTP_2 {
        as_any_version(site, parts)?;
    }
    let route = route(site, parts)?;
    if parts.method == Method::OPTIONS || parts.method == Method::TRACE {
        one_hop_further(&mut parts.headers)?;
    }
    let asked = if headers::concerns_this_hop(&parts.headers) {
        this_hop(parts)?
    } else {
        HopOptions::default()
    };
    let client = match &site.runtime.forwarded {
        Some(forwarded) => forward(forwarded, parts, peer),
        None => peer.address.ip(),
    };
    if let Some(authority) = parts.uri.authority() {
        let host = HeaderValue::from_str(authority.as_str());
        let host = host.map_err(|_| Refusal::from(target::TargetError::BadHost))?;
        parts.headers.insert(header::HOST, host);
        parts.uri = origin_form(&parts.uri);
    }
    let mut written = None;
    if let Some(shaping) = &route.shaping {
        written = shaping.prefix.is_some().then(|| Box::new(parts.uri.clone()));
        shape(shaping, parts);
    }
    let id = request_id(site, begun, &mut parts.headers);
    let trace = trace::trace(site, parts);
    Ok(AcceptedHead { route, asked, client, id, written, trace })
}

/// Updates the fields that say who the client is, and returns its address.
fn forward(forwarded: &Forwarded, parts: &mut request::Parts, peer: Peer) -> IpAddr {
    let host = forwarded::asked(&parts.uri, &parts.headers).to_owned();
    let (scheme, version) = (peer.scheme(), parts.version);
    let hop = Hop { peer: peer.address.ip(), scheme, host: &host, version };
    forwarded.apply(&mut parts.headers, hop)
}

/// Makes the route's changes.
fn shape(shaping: &Shaping, parts: &mut request::Parts) {
    if let Some(uri) = shaping.prefix.as_ref().and_then(|prefix| shape::rewrite(&parts.uri, prefix))
    {
        parts.uri = uri;
    }
    if let Some(host) = &shaping.host {
        parts.headers.insert(header::HOST, host.clone());
    }
    if let Some(edits) = &shaping.request {
        shape::edit(&mut parts.headers, edits);
    }
}

/// Checks the fields about this hop, and removes them: the message gets a new framing.
fn this_hop(parts: &mut request::Parts) -> Result<HopOptions, Refusal> {
    // An older client cannot mean it (RFC 9110 §10.1.1). HTTP/2 has no upgrade (RFC 9113 §8.6).
    let may_wait = parts.version >= Version::HTTP_11;
    let may_upgrade = parts.version == Version::HTTP_11;
    let asked = HopOptions {
        upgrade: may_upgrade.then(|| upgrade::offered(&parts.headers)).flatten(),
        trailers: headers::takes_trailers(&parts.headers),
        body_unasked: expectation(&parts.headers)? && may_wait,
    };
    if !may_wait {
        parts.headers.remove(header::EXPECT);
    }
    if !headers::strip_hop_by_hop(&mut parts.headers) {
        return Err(Refusal::transfer_coding());
    }
    if parts.headers.contains_key(header::TRAILER) {
        trailers::announce_permitted(&mut parts.headers);
    }
    Ok(asked)
}

/// Whether the client waits for a 100 before it sends its body. No other expectation is supported.
fn expectation(fields: &HeaderMap) -> Result<bool, Refusal> {
    let mut expected = fields.get_all(header::EXPECT).iter().peekable();
    let any = expected.peek().is_some();
    let known = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if expected.all(known) { Ok(any) } else { Err(Refusal::expectation()) }
}

/// Whether the request is a gRPC call. These need HTTP/2.
pub(crate) fn is_grpc(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_2 && grpc::is_grpc(headers.get(header::CONTENT_TYPE))
}

/// Converts an HTTP/2 request's fields to the form of any version, and checks what the HTTP/1.1 parser checks itself.
fn as_any_version(site: &WorkerConfig, parts: &mut request::Parts) -> Result<(), Refusal> {
    headers::join_crumbs(&mut parts.headers);
    let limits = &site.runtime.limits;
    limits.heads().check(&parts.headers, 0).map_err(|beyond| match beyond {
        OverLimit::Fields(limit) => Refusal::too_many_fields(limit),
        OverLimit::Size(limit) => Refusal::fields_too_large(limit),
    })?;
    if headers::is_length_sound(&parts.headers) { Ok(()) } else { Err(Refusal::bad_length()) }
}

/// The first route that matches the request.
fn route(site: &WorkerConfig, parts: &request::Parts) -> Result<Arc<WorkerRoute>, Refusal> {
    let found = matched(&site.runtime, parts, |target| site.runtime.router.find(target))?;
    let route = found.and_then(|position| site.routes.get(position));
    route.cloned().ok_or_else(Refusal::no_route)
}

/// Calls `find` with the parts of the request that routes match on, if the request is valid so far.
pub(crate) fn matched<T>(
    runtime: &Runtime,
    parts: &request::Parts,
    find: impl FnOnce(Target<'_>) -> T,
) -> Result<T, Refusal> {
    if parts.method == Method::CONNECT {
        return Err(Refusal::connect());
    }
    target::check_form(&parts.uri, &parts.method)?;
    let limit = runtime.limits.target_size;
    if parts.uri.path_and_query().is_some_and(|target| target.as_str().len() > limit) {
        return Err(Refusal::target_too_long(limit));
    }
    let authority = target::authority(&parts.uri, parts.version, &parts.headers)?;
    let path = target::check_path(parts.uri.path())?;
    Ok(find(Target {
        host: target::host(authority),
        path: &path,
        query: parts.uri.query().unwrap_or_default(),
        method: &parts.method,
        headers: &parts.headers,
    }))
}

/// Decrements `Max-Forwards`, which only counts for TRACE and OPTIONS (RFC 9110 §7.6.2). A value that is not a
/// number passes unchanged.
fn one_hop_further(fields: &mut HeaderMap) -> Result<(), Refusal> {
    let asked = fields.get(header::MAX_FORWARDS).and_then(|value| value.to_str().ok());
    let digits = asked.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let Some(hops) = digits.and_then(|text| text.parse::<u64>().ok()) else {
        return Ok(());
    };
    let left = hops.checked_sub(1).ok_or_else(Refusal::max_forwards)?;
    fields.insert(header::MAX_FORWARDS, HeaderValue::from(left));
    Ok(())
}

fn origin_form(uri: &Uri) -> Uri {
    let root = || PathAndQuery::from_static("/");
    Uri::from(uri.path_and_query().cloned().unwrap_or_else(root))
}

/// The id in the request, or a new one that is added to it.
fn request_id(site: &WorkerConfig, begun: Instant, headers: &mut HeaderMap) -> HeaderValue {
    let new = || site.core.ids.next(site.core.clock.at(begun).as_nanos());
    match headers.entry(&id::REQUEST_ID) {
        Entry::Occupied(given) if id::is_well_formed(given.get()) => given.get().clone(),
        Entry::Occupied(mut given) => {
            let id = new();
            given.insert(id.clone());
            id
        }
        Entry::Vacant(place) => place.insert(new()).clone(),
    }
}
