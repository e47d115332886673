//! Why a connection could not be opened.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::language::temporal::Span;
use crate::proxy::tls::TlsErrorKind;
use crate::system::descriptors;

/// For how many of a name's addresses a message tells what happened.
const TOLD: usize = 4;

/// Why no connection was made. Nothing of the request was sent.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ConnectError {
    /// What went wrong.
    pub(crate) cause: Cause,
    /// For people: what happened, without the endpoint's name.
    pub(crate) message: String,
}

/// What went wrong while connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The name has no address.
    Dns,
    /// The name was not resolved within `connectTimeout`.
    DnsTimeout,
    /// Nobody listens there.
    Refused,
    /// There is no route to the address.
    Unreachable,
    /// It took longer than `connectTimeout`.
    Timeout,
    /// The other side does not speak HTTP/2, or says nothing at all.
    Greeting,
    /// The TLS handshake failed, or the certificate is not accepted.
    Tls(TlsErrorKind),
    /// There are as many requests at the upstream as may be.
    Capacity,
    /// An operator has drained it.
    Drained,
    /// This process has no descriptor left. That is nobody else's fault.
    Descriptors,
    /// Anything else.
    Other,
}

impl Cause {
    /// `details.phase`: how far connecting got.
    pub(crate) const fn phase(self) -> &'static str {
        match self {
            Self::Dns | Self::DnsTimeout => "dns",
            Self::Greeting => "handshake",
            Self::Tls(_) => "tls",
            Self::Capacity => "capacity",
            Self::Drained => "drained",
            Self::Descriptors => "descriptors",
            Self::Refused | Self::Unreachable | Self::Timeout | Self::Other => "connect",
        }
    }

    /// RFC 9209 §2.3.
    pub(crate) const fn proxy_status(self) -> &'static str {
        match self {
            Self::Dns => "dns_error",
            Self::DnsTimeout => "dns_timeout",
            Self::Refused => "connection_refused",
            Self::Unreachable => "destination_ip_unroutable",
            Self::Timeout => "connection_timeout",
            Self::Greeting => "http_protocol_error",
            Self::Tls(trouble) => trouble.proxy_status(),
            Self::Capacity => "connection_limit_reached",
            Self::Descriptors => "proxy_internal_error",
            Self::Drained | Self::Other => "destination_unavailable",
        }
    }

    /// Whether the endpoint was not even tried.
    pub(crate) const fn is_own(self) -> bool {
        matches!(self, Self::Capacity | Self::Drained | Self::Descriptors)
    }
}

impl ConnectError {
    /// The upstream has no endpoint to connect to.
    pub(crate) fn no_endpoint() -> Self {
        Self { cause: Cause::Other, message: "has no endpoint".to_owned() }
    }

    /// An operator has drained all endpoints of the upstream.
    pub(super) fn drained() -> Self {
        Self { cause: Cause::Drained, message: "has no endpoint that is not drained".to_owned() }
    }

    /// The upstream has `most` requests, and none has ended within `wait`.
    pub(super) fn no_place(most: usize, wait: Duration) -> Self {
        let wait = Span::from_duration(wait);
        let message =
            format!("has {most} requests already (maxRequests), and none ended within {wait}");
        Self { cause: Cause::Capacity, message }
    }

    /// The name has no address, or the lookup failed.
    pub(super) fn dns(host: &str, message: &str) -> Self {
        Self { cause: Cause::Dns, message: format!("cannot be resolved ({host}): {message}") }
    }

    /// The name was not resolved within `limit`.
    pub(super) fn unresolved(host: &str, limit: Duration) -> Self {
        let limit = Span::from_duration(limit);
        let message = format!("cannot be resolved ({host}): no answer within {limit}");
        Self { cause: Cause::DnsTimeout, message }
    }

    /// No connection was accepted within `limit`.
    pub(super) fn silent(limit: Duration) -> Self {
        let limit = Span::from_duration(limit);
        let message = format!("did not accept a connection within {limit}");
        Self { cause: Cause::Timeout, message }
    }

    /// None of a name's addresses accepted a connection.
    pub(super) fn none_of(failed: Vec<(SocketAddr, Self)>) -> Self {
        let all = failed.len();
        if all <= 1 {
            let only = failed.into_iter().next();
            return only.map_or_else(Self::no_endpoint, |(_, error)| error);
        }
        // An address that cannot be reached from here says less than one that refuses.
        let telling = failed.iter().find(|(_, error)| error.cause != Cause::Unreachable);
        let cause =
            telling.or_else(|| failed.first()).map_or(Cause::Other, |(_, error)| error.cause);
        let told = failed.iter().take(TOLD).map(|(at, error)| format!("{} {error}", at.ip()));
        let told = told.collect::<Vec<_>>().join(", ");
        let more = if all > TOLD { ", and so on" } else { "" };
        Self { cause, message: format!("has {all} addresses and no connection: {told}{more}") }
    }

    /// This process has no descriptor left.
    pub(super) fn no_descriptor() -> Self {
        let message = "was not asked: this process has no file descriptor left; raise its limit of open files (`ulimit -n`, LimitNOFILE=)";
        Self { cause: Cause::Descriptors, message: message.to_owned() }
    }

    pub(super) fn from_io(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        if descriptors::are_exhausted(error) {
            return Self::no_descriptor();
        }
        let (cause, message) = match error.kind() {
            Kind::ConnectionRefused => (Cause::Refused, "refused the connection".to_owned()),
            Kind::HostUnreachable | Kind::NetworkUnreachable => {
                (Cause::Unreachable, "cannot be reached".to_owned())
            }
            Kind::TimedOut => (Cause::Timeout, "did not answer the connect".to_owned()),
            _ => (Cause::Other, format!("gave no connection: {error}")),
        };
        Self { cause, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_want_of_a_descriptor_is_no_fault_of_the_endpoint() {
        const EMFILE: i32 = 24;
        const ENFILE: i32 = 23;
        for number in [EMFILE, ENFILE] {
            let error = io::Error::from_raw_os_error(number);
            let ConnectError { cause, message } = ConnectError::from_io(&error);
            assert_eq!(
                (cause.phase(), cause.proxy_status()),
                ("descriptors", "proxy_internal_error")
            );
            assert!(cause.is_own() && message.starts_with("was not asked: "), "{message}");
        }
    }

    #[test]
    fn a_name_whose_addresses_all_failed_says_what_each_did() {
        let failed = |kinds: &[(&str, io::ErrorKind)]| {
            let error = |kind: io::ErrorKind| ConnectError::from_io(&kind.into());
            let failed = kinds.iter().map(|(at, kind)| (at.parse().unwrap(), error(*kind)));
            ConnectError::none_of(failed.collect())
        };
        let (v6, v4) = ("[::1]:80", "127.0.0.1:80");
        let (nowhere, refused) =
            (io::ErrorKind::NetworkUnreachable, io::ErrorKind::ConnectionRefused);
        let only = failed(&[(v4, refused)]);
        assert_eq!((only.cause, &*only.message), (Cause::Refused, "refused the connection"));
        let both = failed(&[(v6, nowhere), (v4, refused)]);
        assert_eq!(both.cause, Cause::Refused);
        assert_eq!(
            both.message,
            "has 2 addresses and no connection: ::1 cannot be reached, 127.0.0.1 refused the connection"
        );
        assert_eq!(failed(&[(v6, nowhere), (v6, nowhere)]).cause, Cause::Unreachable);
        let many = failed(&[(v6, nowhere); 5]);
        assert!(many.message.ends_with("::1 cannot be reached, and so on"), "{many}");
    }
}
