//! A request's head on its way in: checked, matched to a route, and brought into the form in which it is sent on.
//!
//! The order keeps it safe. The route is found by what the client sent. Then the fields about the client's
//! connection are removed, with those that `Connection` names. Only after that are fields added, so no client
//! can remove a field of the proxy.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header, request};
use tokio::time::Instant;

use super::trace;
use crate::proxy::grpc;
use crate::proxy::h2::OverLimit;
use crate::proxy::io::peer::Peer;
use crate::proxy::message::forwarded::{self, Hop};
use crate::proxy::message::refusal::Refusal;
use crate::proxy::message::target::{Absolute, RequestAuthority, TargetError};
use crate::proxy::message::{headers, id, path, shape, target, trailers, upgrade};
use crate::proxy::settings::Forwarded;
use crate::proxy::site::route::Target;
use crate::proxy::site::runtime::{Runtime, Shaping};
use crate::proxy::site::{WorkerConfig, WorkerRoute};
use crate::proxy::tls::ClientCertificate;

/// The head of a request as it was received, in any version.
#[derive(Debug)]
pub(crate) struct ReceivedHead {
    pub(crate) method: Method,
    pub(crate) absolute: Absolute,
    pub(crate) target: target::Target,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
}

/// A head that the HTTP library has read.
impl From<request::Parts> for ReceivedHead {
    fn from(parts: request::Parts) -> Self {
        let uri = parts.uri.into_parts();
        Self {
            method: parts.method,
            absolute: Absolute { scheme: uri.scheme, authority: uri.authority },
            target: uri.path_and_query.into(),
            version: parts.version,
            headers: parts.headers,
        }
    }
}

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
    pub(crate) written: Option<Box<target::Target>>,
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
    parts: &mut ReceivedHead,
    peer: &Peer,
    begun: Instant,
) -> Result<AcceptedHead, Refusal> {
    if parts.version == Version::HTTP_2 {
        as_any_version(site, parts)?;
    }
    let certificate = peer.certificate.as_deref();
    let (route, host) = route(site, parts, certificate)?;
    if let Some(host) = host {
        parts.headers.insert(header::HOST, host);
    }
    if (parts.method == Method::OPTIONS || parts.method == Method::TRACE)
        && !one_hop_further(&mut parts.headers)
    {
        return Err(Refusal::max_forwards(allowed(&site.runtime, parts, certificate)));
    }
    if parts.headers.len() != parts.headers.keys_len() {
        headers::check_single(&mut parts.headers).map_err(Refusal::repeated)?;
    }
    let plain = !headers::concerns_this_hop(&parts.headers)
        || headers::strip_plain_connection(&mut parts.headers);
    let asked = if plain { HopOptions::default() } else { this_hop(parts)? };
    let client = match &site.runtime.forwarded {
        Some(forwarded) => forward(forwarded, parts, peer),
        None => peer.address.ip(),
    };
    if site.runtime.via && !forwarded::add_via(&mut parts.headers, parts.version) {
        return Err(Refusal::loop_detected());
    }
    let mut written = None;
    if let Some(shaping) = &route.shaping {
        written = shaping.prefix.is_some().then(|| Box::new(parts.target.clone()));
        shape(site, shaping, parts)?;
    }
    let id = request_id(site, begun, &mut parts.headers);
    let trace = trace::trace(site, parts);
    Ok(AcceptedHead { route, asked, client, id, written, trace })
}

/// Updates the fields that say who the client is, and returns its address.
fn forward(forwarded: &Forwarded, parts: &mut ReceivedHead, peer: &Peer) -> IpAddr {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_default().to_owned();
    let hop = Hop { peer: peer.address.ip(), scheme: peer.scheme(), host: &host };
    forwarded.apply(&mut parts.headers, hop)
}

/// Makes the route's changes.
fn shape(site: &WorkerConfig, shaping: &Shaping, parts: &mut ReceivedHead) -> Result<(), Refusal> {
    if let Some(prefix) = &shaping.prefix
        && let Some(rewritten) = shape::rewrite(&parts.target, prefix, site.runtime.paths)
    {
        parts.target = rewritten?;
    }
    if let Some(host) = &shaping.host {
        parts.headers.insert(header::HOST, host.clone());
    }
    if let Some(edits) = &shaping.request {
        shape::edit(&mut parts.headers, edits);
    }
    Ok(())
}

/// Checks the fields about this hop, and removes them: the message gets a new framing.
fn this_hop(parts: &mut ReceivedHead) -> Result<HopOptions, Refusal> {
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
fn as_any_version(site: &WorkerConfig, parts: &mut ReceivedHead) -> Result<(), Refusal> {
    if !parts.target.as_str().is_ascii() {
        return Err(TargetError::Character.into());
    }
    // Most requests have neither, and looking at each name once is cheaper than looking these up.
    let special = |name: &HeaderName| *name == header::COOKIE || *name == header::CONTENT_LENGTH;
    let special = parts.headers.keys().any(special);
    if special {
        headers::join_crumbs(&mut parts.headers);
    }
    let limits = &site.runtime.limits;
    limits.heads().check(&parts.headers, 0).map_err(|beyond| match beyond {
        OverLimit::Fields(limit) => Refusal::too_many_fields(limit),
        OverLimit::Size(limit) => Refusal::fields_too_large(limit),
    })?;
    let sound = !special || headers::is_length_sound(&parts.headers);
    if sound { Ok(()) } else { Err(Refusal::bad_length()) }
}

/// The first route that matches the request, and the `Host` that replaces its own, if they differ.
fn route(
    site: &WorkerConfig,
    parts: &ReceivedHead,
    certificate: Option<&ClientCertificate>,
) -> Result<(Arc<WorkerRoute>, Option<HeaderValue>), Refusal> {
    let find = |target: Target<'_>, asked: RequestAuthority<'_>| {
        let other = parts.absolute.authority.is_some() || asked.has_dot();
        (site.runtime.router.find(target), other.then(|| HeaderValue::from_str(&asked.plain())))
    };
    let (found, host) = matched(&site.runtime, parts, certificate, find)?;
    let host = host.transpose().map_err(|_| Refusal::from(TargetError::BadHost))?;
    let route = found.and_then(|position| site.routes.get(position));
    Ok((route.cloned().ok_or_else(Refusal::no_route)?, host))
}

/// Calls `find` with the parts of the request that routes match on, if the request is valid so far.
pub(crate) fn matched<T>(
    runtime: &Runtime,
    parts: &ReceivedHead,
    certificate: Option<&ClientCertificate>,
    find: impl FnOnce(Target<'_>, RequestAuthority<'_>) -> T,
) -> Result<T, Refusal> {
    if parts.method == Method::CONNECT {
        return Err(Refusal::connect(runtime.router.allowed(None)));
    }
    target::check_form(&parts.absolute, &parts.target, &parts.method)?;
    let limit = runtime.limits.target_size;
    if parts.target.as_str().len() > limit {
        return Err(Refusal::target_too_long(limit));
    }
    let asked = target::authority(&parts.absolute, parts.version, &parts.headers)?;
    let path = path::meaning(parts.target.path(), runtime.paths)?;
    let target = Target {
        host: asked.host,
        path: &path,
        query: parts.target.query().unwrap_or_default(),
        method: &parts.method,
        headers: &parts.headers,
        certificate,
    };
    Ok(find(target, asked))
}

/// The methods of the routes that match the request apart from its method.
fn allowed(
    runtime: &Runtime,
    parts: &ReceivedHead,
    certificate: Option<&ClientCertificate>,
) -> String {
    let allowed =
        |target: Target<'_>, _: RequestAuthority<'_>| runtime.router.allowed(Some(target));
    matched(runtime, parts, certificate, allowed).unwrap_or_default()
}

/// Decrements `Max-Forwards`, which only counts for TRACE and OPTIONS (RFC 9110 §7.6.2). A value that is not a
/// number passes unchanged. Returns false if this is the last hop.
fn one_hop_further(fields: &mut HeaderMap) -> bool {
    let asked = fields.get(header::MAX_FORWARDS).and_then(|value| value.to_str().ok());
    let digits = asked.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let Some(hops) = digits.and_then(|text| text.parse::<u64>().ok()) else {
        return true;
    };
    let Some(left) = hops.checked_sub(1) else {
        return false;
    };
    fields.insert(header::MAX_FORWARDS, HeaderValue::from(left));
    true
}

/// The id in the request, or a new one that is added to it. HTTP/2 must not keep it in its table of fields: it comes
/// once, and takes the place of others.
fn request_id(site: &WorkerConfig, begun: Instant, headers: &mut HeaderMap) -> HeaderValue {
    let new = || site.core.ids.next(site.core.clock.at(begun).as_nanos());
    match headers.entry(&id::REQUEST_ID) {
        Entry::Occupied(mut given) if id::is_well_formed(given.get()) => {
            given.get_mut().set_sensitive(true);
            given.get().clone()
        }
        Entry::Occupied(mut given) => {
            let id = new();
            given.insert(id.clone());
            id
        }
        Entry::Vacant(place) => place.insert(new()).clone(),
    }
}
