//! The statuses of gRPC calls.

use http::StatusCode;

/// The outcome of a failed call: one of gRPC's sixteen codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(u8);

/// The names, in the order of their numbers from 1.
const NAMES: [&str; 16] = [
    "Cancelled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// The failure codes, in the same order.
const CODES: [&str; 16] = [
    "Provider.Call.Http.Grpc.Cancelled",
    "Provider.Call.Http.Grpc.Unknown",
    "Provider.Call.Http.Grpc.InvalidArgument",
    "Provider.Call.Http.Grpc.DeadlineExceeded",
    "Provider.Call.Http.Grpc.NotFound",
    "Provider.Call.Http.Grpc.AlreadyExists",
    "Provider.Call.Http.Grpc.PermissionDenied",
    "Provider.Call.Http.Grpc.ResourceExhausted",
    "Provider.Call.Http.Grpc.FailedPrecondition",
    "Provider.Call.Http.Grpc.Aborted",
    "Provider.Call.Http.Grpc.OutOfRange",
    "Provider.Call.Http.Grpc.Unimplemented",
    "Provider.Call.Http.Grpc.Internal",
    "Provider.Call.Http.Grpc.Unavailable",
    "Provider.Call.Http.Grpc.DataLoss",
    "Provider.Call.Http.Grpc.Unauthenticated",
];

impl Status {
    pub(crate) const UNKNOWN: Self = Self(2);
    pub(crate) const DEADLINE_EXCEEDED: Self = Self(4);
    pub(crate) const RESOURCE_EXHAUSTED: Self = Self(8);
    const PERMISSION_DENIED: Self = Self(7);
    const UNIMPLEMENTED: Self = Self(12);
    const INTERNAL: Self = Self(13);
    const UNAVAILABLE: Self = Self(14);
    const UNAUTHENTICATED: Self = Self(16);

    /// The status in `grpc-status`; `None` for success. An unknown number, or something that is not a number,
    /// means `UNKNOWN`, as for gRPC's clients.
    pub(crate) fn read(field: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(field).unwrap_or_default().trim();
        match text.parse::<u8>() {
            Ok(0) => None,
            Ok(number @ 1..=16) => Some(Self(number)),
            _ => Some(Self::UNKNOWN),
        }
    }

    /// The status with this failure code.
    pub(crate) fn of_code(code: &str) -> Option<Self> {
        (1..).zip(CODES).find(|(_, known)| *known == code).map(|(number, _)| Self(number))
    }

    /// The status that replaces an HTTP status if a call got no other (gRPC's "HTTP to gRPC Status Code Mapping").
    pub(crate) const fn of_http(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Self::INTERNAL,
            401 => Self::UNAUTHENTICATED,
            403 => Self::PERMISSION_DENIED,
            404 => Self::UNIMPLEMENTED,
            429 | 502 | 503 | 504 => Self::UNAVAILABLE,
            _ => Self::UNKNOWN,
        }
    }

    /// Whether the server is at fault, as with a 5xx in HTTP (OpenTelemetry's conventions for gRPC spans).
    pub(crate) const fn is_servers(self) -> bool {
        matches!(self.0, 2 | 4 | 12..=15)
    }

    /// Its number.
    pub(crate) fn number(self) -> u32 {
        self.0.into()
    }

    /// Whether a failure with it is one of the server's: `UNKNOWN`, `DEADLINE_EXCEEDED`, `INTERNAL`, `UNAVAILABLE` or
    /// `DATA_LOSS`.
    pub(crate) const fn is_faulty(self) -> bool {
        matches!(self.0, 2 | 4 | 13 | 14 | 15)
    }

    /// The index of its name.
    fn place(self) -> usize {
        usize::from(self.0).wrapping_sub(1)
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        NAMES.get(self.place()).copied().unwrap_or("Unknown")
    }

    /// Its failure code.
    pub(crate) fn code(self) -> &'static str {
        const UNKNOWN: &str = "Provider.Call.Http.Grpc.Unknown";
        CODES.get(self.place()).copied().unwrap_or(UNKNOWN)
    }

    /// Whether the call may be retried.
    pub(super) const fn is_unavailable(self) -> bool {
        self.0 == Self::UNAVAILABLE.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_name_and_code() {
        for (number, name) in (1_u32..).zip(NAMES) {
            let status = Status::read(number.to_string().as_bytes()).unwrap();
            assert_eq!((status.number(), status.name()), (number, name));
            assert_eq!(status.code(), format!("Provider.Call.Http.Grpc.{name}"));
            assert_eq!(Status::of_code(status.code()), Some(status));
        }
    }

    #[test]
    fn numbers_that_grpc_does_not_have_are_unknown() {
        for field in ["17", "99", "-1", "x", "", "1.0"] {
            assert_eq!(Status::read(field.as_bytes()), Some(Status::UNKNOWN), "{field:?}");
        }
        assert_eq!(Status::read(b"\xff"), Some(Status::UNKNOWN));
        assert_eq!(Status::read(b"0"), None);
    }

    #[test]
    fn an_http_status_stands_for_one_of_grpc_s() {
        let table = [(400, 13), (401, 16), (403, 7), (404, 12), (429, 14), (503, 14), (500, 2)];
        for (http, grpc) in table {
            let status = StatusCode::from_u16(http).unwrap();
            assert_eq!(Status::of_http(status).number(), grpc, "{http}");
        }
    }
}
