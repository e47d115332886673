//! A store: a Redis or Valkey server, in which several proxies keep what they share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::proxy::tls::EndpointTls;

/// One entry of `stores`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Its name.
    pub name: Arc<str>,
    /// A name or an IP address (without brackets).
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// The TLS settings; `None` means clear text.
    pub tls: Option<EndpointTls>,
    /// The number of the database.
    pub database: u16,
    /// The user of an ACL; `None` is the server's default one.
    pub user: Option<Arc<str>>,
    /// The password, if the server wants one.
    pub password: Option<Password>,
    /// How long one decision may wait for the server.
    pub timeout: Duration,
    /// What is decided without it.
    pub on_error: OnError,
    /// The beginning of every key.
    pub prefix: Arc<str>,
}

/// What a middleware does when its store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It lets the request pass, as if there were no such middleware.
    Allow,
    /// It refuses the request.
    Deny,
}

/// A secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub Arc<str>);

/// Shows nothing of it.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}
