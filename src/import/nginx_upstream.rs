//! NGINX's `upstream` blocks.

use super::features::{Ejection, balance};
use super::form::{Endpoint, Upstream, name};
use super::nginx_syntax::Directive;
use super::read::{Reading, duration, is_path, short, url};
use crate::language::temporal::Span as Time;

const TEN_SECONDS: Time = Time::from_nanos(10_000_000_000);

pub(super) fn upstream(reading: &Reading<'_>, block: &Directive, inner: &[Directive]) -> Upstream {
    let mut made = Upstream { name: name(block.word(1)), ..Upstream::default() };
    let mut ejections = Vec::new();
    for directive in inner {
        let at = reading.at(directive.span);
        match directive.name() {
            "server" => ejections.extend(server(reading, directive, &mut made)),
            // Idle connections are kept in any case.
            "keepalive" | "zone" | "keepalive_requests" => {}
            "keepalive_timeout" => made.keep_alive = duration(directive.word(1), Some("s")),
            other => match balance(other, at) {
                Some(feature) => made.features.push(feature),
                None => made.notes.lost(at, format!("`{}`.", short(&directive.words.join(" ")))),
            },
        }
    }
    let at = reading.at(block.span);
    if made.endpoints.len() > 1 && made.features.iter().all(|feature| feature.key != "balance") {
        made.features.extend(balance("roundrobin", at));
    }
    let first = ejections.first().copied();
    if let Some((failures, base)) = first.filter(|_| made.endpoints.len() > 1) {
        if ejections.iter().any(|other| *other != (failures, base)) {
            made.notes.lost(
                at,
                "`max_fails` and `fail_timeout` of each server: those of the first are taken.",
            );
        }
        let ejection = Ejection { failures, base: Some(base), max: Some(base), percent: Some(100) };
        made.features.extend(ejection.feature(at));
    }
    made
}

/// Whether a Unix socket may have this path.
fn is_socket(path: &str) -> bool {
    is_path(path) && !path.ends_with('/') && path.len() <= 107
}

/// An endpoint, and after how many failures it is left out for how long.
fn server(
    reading: &Reading<'_>,
    directive: &Directive,
    made: &mut Upstream,
) -> Option<(u64, Time)> {
    let at = reading.at(directive.span);
    let address = directive.word(1);
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            (host, Some(port.parse().unwrap_or(0)))
        }
        _ => (address, None),
    };
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let socket = address.strip_prefix("unix:").filter(|path| is_socket(path));
    let socket = socket.map(|path| format!("unix:{path}"));
    let Some(url) = socket.or_else(|| url(literal, port, false)) else {
        made.notes.lost(at, format!("the server `{}`.", short(address)));
        return None;
    };
    let mut endpoint = Endpoint::new(url);
    let (mut failures, mut base) = (1, TEN_SECONDS);
    for argument in directive.arguments().iter().skip(1) {
        let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
        match key {
            "weight" => endpoint.weight = value.parse().ok(),
            "max_fails" => failures = value.parse().unwrap_or(failures),
            "fail_timeout" => base = duration(value, Some("s")).unwrap_or(base),
            "down" => {
                made.notes.told(format!("`{}` is down there, and left out.", short(address)));
                return None;
            }
            "resolve" => {}
            _ => endpoint.notes.lost(at, format!("`{}` of a server.", short(argument))),
        }
    }
    made.endpoints.push(endpoint);
    Some((failures, base))
}
