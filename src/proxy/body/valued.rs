//! A body in memory, with its value in expressions.

use bytes::Bytes;
use http::HeaderValue;

use crate::language::value::Value;
use crate::proxy::memory::{Full, Reservation};
use crate::proxy::message::media;

/// `body` with its value. Both keep their part of the budget until they are dropped.
pub(crate) async fn valued(
    body: Bytes,
    content_type: Option<&HeaderValue>,
    reservation: Reservation,
) -> Result<(Bytes, Value), Full> {
    let (size, content_type) = (body.len(), content_type.cloned());
    let work = move |mut reservation: Reservation| {
        let value = media::to_value(content_type.as_ref(), &body, &mut reservation)?;
        Ok((reservation.join(body), value))
    };
    reservation.apart(size, work).await
}
