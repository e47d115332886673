//! `stores:`, what several proxies share.

use std::path::Path;
use std::sync::Arc;

use super::read::Object;
use super::report::Report;
use super::scalar;
use super::shape::{Section, Shape, optional, or, required};
use super::tls::{TlsReader, UPSTREAM_TLS};
use crate::proxy::settings::Protocol;
use crate::proxy::settings::store::{OnError, Password, Store};
use crate::proxy::tls::EndpointTls;
use crate::source::{Diagnostic, Member, Node};

pub(super) const STORE: Section = Section {
    name: "a store",
    doc: "A Redis or Valkey server, in which several proxies keep limits and answers that they share.",
    fields: &[
        required(
            "redis",
            Shape::Text,
            "Where it is: `redis://host:port`, or `rediss://host:port` with TLS. A path is the number of a database: `redis://host:6379/2`.",
        ),
        optional("user", Shape::Text, "The user of an ACL. Without it, the server's default user."),
        optional(
            "password",
            Shape::Text,
            "The password. Write the name of an environment variable, as `${NAME}`, or use `passwordFile`.",
        ),
        optional(
            "passwordFile",
            Shape::Text,
            "The file with the password. Its last line end is left out.",
        ),
        optional(
            "tls",
            Shape::Section(&UPSTREAM_TLS),
            "How TLS is used for `rediss://`. Without it, the system's authorities are trusted and the certificate must name the host.",
        ),
        or(
            "timeout",
            Shape::Duration,
            r#""PT0.05S""#,
            "How long a request may wait for one decision of the store. After that `onError` decides.",
        ),
        or(
            "onError",
            Shape::Word(&["allow", "deny"]),
            r#""allow""#,
            "What happens to a request when the store does not answer: it passes as if the middleware were not there, or it is refused.",
        ),
        or(
            "prefix",
            Shape::Text,
            r#""mwl""#,
            "The beginning of every key. Services that share a server, but not their limits and answers, need different ones.",
        ),
    ],
};

/// All stores.
pub(super) fn stores(report: &Report, root: &Object<'_>, tls: &TlsReader<'_>) -> Vec<Store> {
    let read = |member: &Member| {
        if member.key.trim().is_empty() {
            report.error("bad-name", member.key_span, "a store's name is empty");
        }
        let object = Object::open(report, &member.key, &member.value, &STORE)?;
        let at = object.get("redis");
        let address =
            at.and_then(|at| Some((report.parsed("bad-url", "redis", at, scalar::redis)?, at)));
        let ((host, port, database, secure), at) = address?;
        let prefix = object.text("prefix").cloned().unwrap_or_else(|| "mwl".into());
        Some(Store {
            name: Arc::clone(&member.key),
            tls: secured(report, &object, tls, (secure, &host, at)),
            host: host.into(),
            port,
            database,
            user: object.text("user").cloned(),
            password: password(report, &object, tls),
            timeout: object.duration("timeout", ("PT0.001S", "PT10S")),
            on_error: match object.word("onError") {
                Some("deny") => OnError::Deny,
                _ => OnError::Allow,
            },
            prefix,
        })
    };
    root.map("stores").iter().filter_map(read).collect()
}

/// The TLS of a store, if its URL wants it.
fn secured(
    report: &Report,
    object: &Object<'_>,
    tls: &TlsReader<'_>,
    (secure, host, at): (bool, &str, &Node),
) -> Option<EndpointTls> {
    let section = object.member("tls");
    if let (Some(section), false) = (section, secure) {
        let message = "`tls` is there, but the store is not `rediss://`";
        let diagnostic = Diagnostic::error("unused-tls", section.key_span, message);
        report.add(diagnostic.with_help("write it as `rediss://host:port`"));
    }
    let opened = section.map(|section| Object::open(report, "tls", &section.value, &UPSTREAM_TLS));
    let section = opened.flatten();
    if !secure {
        return None;
    }
    let client = tls.client(section.as_ref(), Protocol::Http1, at.span)?;
    let name = section.as_ref().and_then(|section| section.text("serverName"));
    let name = name.map_or(host, |name| name);
    let endpoint = EndpointTls::new(&Arc::new(client.without_protocols()), name);
    if endpoint.is_none() {
        let message =
            format!("`{name}` is neither a host's name nor an address, as a certificate has them");
        report.error("bad-name", at.span, message);
    }
    endpoint
}

fn password(report: &Report, object: &Object<'_>, tls: &TlsReader<'_>) -> Option<Password> {
    let file = object.member("passwordFile");
    match (object.text("password"), file) {
        (Some(_), Some(file)) => {
            let message = "a store has a `password` or a `passwordFile`, not both";
            report.error("duplicate-password", file.key_span, message);
            None
        }
        (Some(password), None) => Some(Password(Arc::clone(password))),
        (None, Some(file)) => {
            let named = report.text("passwordFile", &file.value)?;
            let text = tls.secret("passwordFile", Path::new(&**named), &file.value)?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            Some(Password(text.strip_suffix('\r').unwrap_or(text).into()))
        }
        (None, None) => None,
    }
}
