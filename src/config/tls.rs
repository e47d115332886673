//! `tls:` of a listener and of an upstream. The files that it names are read and checked here, so that a
//! start or a reload never ends with a key that does not belong to its certificate.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use super::read::Object;
use super::report::Report;
use super::shape::{Section, Shape, optional, required};
use crate::language::temporal::Timestamp;
use crate::proxy::settings::Protocol;
use crate::proxy::tls::{Certificates, ClientTls, FileError, Identity, Key, Roots, ServerTls};
use crate::source::{Diagnostic, Node, Span};

pub(super) const LISTENER_TLS: Section = Section {
    name: "`tls` of a listener",
    doc: "Who the proxy is to clients, and which of them it lets in.",
    fields: &[
        required(
            "certificate",
            Shape::Text,
            "The file of the chain that it shows, its own certificate first, as PEM.",
        ),
        required("key", Shape::Text, "The file of that certificate's private key, as PEM."),
        optional(
            "clientCa",
            Shape::Text,
            "The file of the authorities that may have issued a client's certificate, in PEM. Without it, clients need none.",
        ),
    ],
};

pub(super) const UPSTREAM_TLS: Section = Section {
    name: "`tls` of an upstream",
    doc: "Whom the proxy believes to be the upstream, and who it is itself.",
    fields: &[
        optional(
            "ca",
            Shape::Text,
            "The file of the authorities that may have issued the upstream's certificate, in PEM. Without it, those that the system trusts.",
        ),
        optional(
            "certificate",
            Shape::Text,
            "The file of the certificate chain that the proxy presents if the upstream asks for one, in PEM.",
        ),
        optional("key", Shape::Text, "The file of that certificate's private key, as PEM."),
        optional(
            "serverName",
            Shape::Text,
            "The name that is requested (SNI) and that the upstream's certificate must have. Without it, the endpoint's host.",
        ),
    ],
};

/// A file that the configuration names.
pub(super) struct NamedFile {
    /// Its path, for messages.
    pub(super) path: String,
    /// Its text, or why it could not be read.
    pub(super) text: Result<Arc<str>, String>,
}

/// Finds a file by its name in the configuration.
type Lookup<'a> = &'a dyn Fn(&Path) -> NamedFile;

/// Reads the certificate and key files of a configuration.
pub(super) struct TlsReader<'a> {
    report: &'a Report,
    text: Lookup<'a>,
    now: Timestamp,
    system: &'a dyn Fn() -> Result<Roots, String>,
    /// Read once, when the first upstream needs them.
    system_roots: OnceCell<Result<Roots, String>>,
}

impl<'a> TlsReader<'a> {
    /// Reads files with `text`, and the authorities that the system trusts with `system`. Certificates
    /// must be valid at `now`.
    pub(super) const fn new(
        report: &'a Report,
        text: Lookup<'a>,
        now: Timestamp,
        system: &'a dyn Fn() -> Result<Roots, String>,
    ) -> Self {
        Self { report, text, now, system, system_roots: OnceCell::new() }
    }

    /// The `tls` of a listener; `None` after a mistake, which is reported.
    pub(super) fn server(&self, node: &Node) -> Option<ServerTls> {
        let object = Object::open(self.report, "tls", node, &LISTENER_TLS)?;
        let identity = self.identity(&object);
        let clients = match object.get("clientCa") {
            Some(node) => Some(self.roots("clientCa", node)?),
            None => None,
        };
        self.noted("bad-certificate", node.span, ServerTls::new(&identity?, clients.as_ref()))
    }

    /// The `tls` of an upstream at `at`, for its endpoints; `None` after a mistake, which is reported.
    pub(super) fn client(
        &self,
        object: Option<&Object<'_>>,
        protocol: Protocol,
        at: Span,
    ) -> Option<Arc<ClientTls>> {
        let get = |key| object.and_then(|object| object.get(key));
        let identity = match (get("certificate"), get("key")) {
            (None, None) => None,
            (Some(_), Some(_)) => Some(self.identity(object?)?),
            (Some(node), None) => return self.half(node, "`certificate` is there, but no `key`"),
            (None, Some(node)) => return self.half(node, "`key` is there, but no `certificate`"),
        };
        let roots = match get("ca") {
            Some(node) => self.roots("ca", node)?,
            None => self.system_roots(at)?,
        };
        let http2 = protocol == Protocol::Http2;
        let client = ClientTls::new(&roots, identity.as_ref(), http2);
        self.noted("bad-certificate", at, client).map(Arc::new)
    }

    fn half<T>(&self, node: &Node, message: &str) -> Option<T> {
        let diagnostic = Diagnostic::error("missing-key", node.span, message);
        self.report.add(diagnostic.with_help("a certificate is of use with its key alone"));
        None
    }

    fn identity(&self, object: &Object<'_>) -> Option<Identity> {
        let certificates = object.get("certificate").and_then(|node| {
            let read = |text: &str| Certificates::read(text, self.now);
            let certificates = self.file("certificate", "bad-certificate", node, read)?;
            if certificates.valid_from() > self.now {
                let from = certificates.valid_from();
                let message = format!("`certificate`: it is valid from {from} on, and not yet");
                self.report.add(Diagnostic::warning("not-valid-yet", node.span, message));
            }
            Some(certificates)
        });
        let key = object.get("key").and_then(|node| {
            let key = self.file("key", "bad-key", node, Key::read)?;
            Some((node, key))
        });
        let (certificates, (node, key)) = (certificates?, key?);
        self.file("key", "bad-key", node, |_| Identity::pair(certificates, &key))
    }

    fn roots(&self, key: &str, node: &Node) -> Option<Roots> {
        self.file(key, "bad-certificate", node, Roots::read)
    }

    fn system_roots(&self, at: Span) -> Option<Roots> {
        match self.system_roots.get_or_init(self.system) {
            Ok(roots) => Some(roots.clone()),
            Err(problem) => {
                let message = format!("{problem}, so no upstream could be believed");
                let help = "name a file of them with `tls: { ca: … }`, mount the system's (`/etc/ssl/certs`), or set SSL_CERT_FILE: an image that is built from scratch has none";
                self.report.add(Diagnostic::error("no-roots", at, message).with_help(help));
                None
            }
        }
    }

    /// The file that `node` names, as `read` converts it.
    fn file<T>(
        &self,
        key: &str,
        code: &'static str,
        node: &Node,
        read: impl FnOnce(&str) -> Result<T, FileError>,
    ) -> Option<T> {
        let named = self.report.text(key, node)?;
        if named.contains("-----BEGIN") {
            let message = format!("`{key}` holds PEM itself; wanted: the path of a file of it");
            self.report.error(code, node.span, message);
            return None;
        }
        let NamedFile { path, text } = (self.text)(Path::new(&**named));
        match text {
            Ok(text) => {
                let read = read(&text);
                let noted = |problem| {
                    self.report.error(code, node.span, format!("`{key}`: {path} {problem}"));
                };
                read.map_err(noted).ok()
            }
            Err(error) => {
                self.unreadable(key, &path, &error, node);
                None
            }
        }
    }

    /// The text of a file that holds a secret.
    pub(super) fn secret(&self, key: &str, path: &Path, node: &Node) -> Option<Arc<str>> {
        let NamedFile { path, text } = (self.text)(path);
        match text {
            Ok(text) => Some(text),
            Err(error) => {
                self.unreadable(key, &path, &error, node);
                None
            }
        }
    }

    fn unreadable(&self, key: &str, path: &str, error: &str, node: &Node) {
        let message = format!("`{key}`: {path} cannot be read: {error}");
        let diagnostic = Diagnostic::error("unreadable", node.span, message);
        let help = "a file is named relative to the configuration's folder";
        self.report.add(diagnostic.with_help(help));
    }

    fn noted<T>(&self, code: &'static str, at: Span, made: Result<T, FileError>) -> Option<T> {
        made.map_err(|problem| self.report.error(code, at, format!("`tls` {problem}"))).ok()
    }
}
