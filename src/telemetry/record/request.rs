//! A request in its record.

use std::net::IpAddr;

use crate::language::temporal::Timestamp;
use crate::telemetry::trace::Context;

/// The random id of one request, in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub [u8; 8]);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A request's record without its attempts. While the request ends, its texts are borrowed ([`RequestRef`]).
#[derive(Clone, Debug)]
pub struct Request<T = Box<str>> {
    /// The execution's id, which the client may have given, to several requests even.
    pub id: T,
    /// An id that no other request has.
    pub request: RequestId,
    /// The route; `None` if no route matched.
    pub route: Option<T>,
    /// The client's address.
    pub client: IpAddr,
    /// The method.
    pub method: T,
    /// The path, without its query.
    pub path: T,
    /// How many bytes of its body were read.
    pub received: u64,
    /// The wall time at which it began.
    pub at: Timestamp,
    /// Present if the request is traced.
    pub trace: Option<Traced<T>>,
}

/// A request that is ending.
pub type RequestRef<'a> = Request<&'a str>;

/// What a request's span says beside the record.
#[derive(Clone, Debug)]
pub struct Traced<T = Box<str>> {
    /// Its place in the trace.
    pub context: Context,
    /// `Host`.
    pub host: T,
    /// `http`.
    pub scheme: &'static str,
    /// `1.1`.
    pub version: &'static str,
}

impl RequestRef<'_> {
    /// The same with texts of its own.
    pub(super) fn to_owned(&self) -> Request {
        let Self { id, request, route, client, method, path, received, at, ref trace } = *self;
        Request {
            id: id.into(),
            request,
            route: route.map(Into::into),
            client,
            method: method.into(),
            path: path.into(),
            received,
            at,
            trace: trace.as_ref().map(|&Traced { context, host, scheme, version }| Traced {
                context,
                host: host.into(),
                scheme,
                version,
            }),
        }
    }
}
