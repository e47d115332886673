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
    let prepared = media::prepare(content_type, &body, &reservation)?;
    // Only parsing takes long.
    let size = if prepared.is_some() { body.len() } else { 0 };
    let content_type = content_type.cloned();
    let work = move |mut reservation: Reservation| {
        let value = media::to_value(content_type.as_ref(), &body, prepared, &mut reservation)?;
        Ok((reservation.join(body), value))
    };
    reservation.apart(size, work).await
}
