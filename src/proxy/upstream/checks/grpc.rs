//! The two messages of gRPC's health service, `grpc.health.v1.Health/Check`.
//!
//! They have one field each, so they are written and read here: a library for protocol buffers would weigh more than
//! the rest of the checks.

/// The path of the method.
pub(super) const PATH: &str = "/grpc.health.v1.Health/Check";

/// The longest response that is read.
pub(super) const MOST: usize = 4096;

/// The number of the only field of both messages.
const FIELD: u64 = 1;

/// The status of an answer, by its number.
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/// How the value of a field is written.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// `HealthCheckRequest { service }`, as gRPC frames it: not compressed, its length, the message.
pub(super) fn request(service: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(service.len() + 8);
    if !service.is_empty() {
        varint(&mut message, FIELD << 3 | BYTES);
        varint(&mut message, service.len() as u64);
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), &message].concat()
}

/// Checks that `body`, the whole body of a response, holds `HealthCheckResponse { status: SERVING }`.
pub(super) fn serving(body: &[u8]) -> Result<(), String> {
    let malformed = || "sent no well-formed HealthCheckResponse".to_owned();
    let (compressed, rest) = body.split_first().ok_or_else(malformed)?;
    if *compressed != 0 {
        return Err("sent a compressed message, which was not asked for".into());
    }
    let (length, message) = rest.split_first_chunk().ok_or_else(malformed)?;
    if u32::from_be_bytes(*length) as usize != message.len() {
        return Err(malformed());
    }
    let status = status(message).ok_or_else(malformed)?;
    let name = usize::try_from(status).ok().and_then(|status| STATUSES.get(status));
    match name {
        Some(&"SERVING") => Ok(()),
        Some(name) => Err(format!("is {name}")),
        None => Err(format!("has the status {status}")),
    }
}

/// The status in a message: the last one that it holds, or else 0. Other fields are passed over.
fn status(mut message: &[u8]) -> Option<u64> {
    let mut status = 0;
    while !message.is_empty() {
        let key = read_varint(&mut message)?;
        match (key >> 3, key & 7) {
            (FIELD, VARINT) => status = read_varint(&mut message)?,
            (_, VARINT) => {
                read_varint(&mut message)?;
            }
            (_, FIXED_64) => message = message.get(8..)?,
            (_, BYTES) => {
                let length = read_varint(&mut message)?;
                message = message.get(usize::try_from(length).ok()?..)?;
            }
            (_, FIXED_32) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn read_varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    /// The same messages, written by a library.
    #[derive(Clone, PartialEq, Message)]
    struct HealthCheckRequest {
        #[prost(string, tag = "1")]
        service: String,
    }

    #[derive(Clone, PartialEq, Message)]
    struct HealthCheckResponse {
        #[prost(int32, tag = "1")]
        status: i32,
        #[prost(string, tag = "7")]
        more: String,
        #[prost(fixed32, tag = "8")]
        fixed: u32,
        #[prost(double, tag = "9")]
        double: f64,
    }

    fn framed(message: &impl Message) -> Vec<u8> {
        let message = message.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap();
        [&[0][..], &length.to_be_bytes(), &message].concat()
    }

    proptest! {
        #[test]
        fn a_request_is_as_the_library_writes_it(service in ".{0,300}") {
            prop_assert_eq!(request(&service), framed(&HealthCheckRequest { service }));
        }

        #[test]
        fn a_response_is_read_as_the_library_writes_it(
            status in 0..6_i32, more in ".{0,20}", fixed: u32, double: f64,
        ) {
            let read = serving(&framed(&HealthCheckResponse { status, more, fixed, double }));
            prop_assert_eq!(read.is_ok(), status == 1, "{:?}", read);
        }

        /// Any bytes are an answer or none.
        #[test]
        fn anything_may_come(body in proptest::collection::vec(any::<u8>(), 0..40)) {
            drop(serving(&body));
        }
    }

    #[test]
    fn what_is_not_serving_is_named() {
        let said = |status| {
            let sent = HealthCheckResponse { status, ..HealthCheckResponse::default() };
            serving(&framed(&sent)).unwrap_err()
        };
        assert_eq!(
            (said(0), said(2), said(9)),
            ("is UNKNOWN".to_owned(), "is NOT_SERVING".to_owned(), "has the status 9".to_owned(),)
        );
        for bad in [
            &b""[..],
            &[0, 0, 0, 0],
            &[0, 0, 0, 0, 2, 8],
            &[0, 0, 0, 0, 1, 8],
            &[0, 0, 0, 0, 1, 15],
        ] {
            assert_eq!(
                serving(bad).unwrap_err(),
                "sent no well-formed HealthCheckResponse",
                "{bad:?}"
            );
        }
        assert!(serving(&[1, 0, 0, 0, 0]).unwrap_err().contains("compressed"));
    }
}
