//! Reads a body into memory, up to a limit.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;

use crate::proxy::memory::Reservation;

/// Why a body was not read completely.
#[derive(Debug)]
pub(crate) enum CollectError<E> {
    /// It is larger than the limit.
    TooLarge,
    /// There is no room for it in `limits.bufferedBytes`.
    Full,
    /// It broke off.
    Broken(E),
}

/// Chunks up to this size are copied: each keeps a whole read buffer.
const SMALL: usize = 4 * 1024;

/// Reads all of `body`, at most `limit` bytes, and its trailers. What it takes is added to `reservation`. A
/// declared length above the limit fails before anything is read.
pub(crate) async fn collect<B>(
    body: &mut B,
    limit: usize,
    reservation: &mut Reservation,
) -> Result<(Bytes, Option<HeaderMap>), CollectError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(CollectError::TooLarge);
    }
    let declared = usize::try_from(body.size_hint().exact().unwrap_or(0)).unwrap_or(limit);
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        let chunk = match frame.map_err(CollectError::Broken)?.into_data() {
            Ok(chunk) => chunk,
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                continue;
            }
        };
        let size = first.as_ref().map_or(0, Bytes::len) + joined.len();
        if size.saturating_add(chunk.len()) > limit {
            return Err(CollectError::TooLarge);
        }
        if !reservation.grow(chunk.len()) {
            return Err(CollectError::Full);
        }
        match first.take() {
            None if joined.is_empty() => first = Some(chunk),
            None => joined.extend_from_slice(&chunk),
            Some(head) => {
                joined.reserve(declared.min(limit));
                joined.extend_from_slice(&head);
                joined.extend_from_slice(&chunk);
            }
        }
    }
    let all = match first {
        Some(only) if only.len() <= SMALL => Bytes::copy_from_slice(&only),
        Some(only) => only,
        None => joined.freeze(),
    };
    Ok((all, trailers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use crate::proxy::memory::{Budget, Parsers};
    use crate::telemetry::metrics::Metrics;

    async fn run(chunks: &[&'static str], limit: usize) -> Option<Bytes> {
        collected(chunks, limit, 10).await.ok()
    }

    async fn collected(
        chunks: &[&'static str],
        limit: usize,
        room: usize,
    ) -> Result<Bytes, CollectError<std::io::Error>> {
        let frames = chunks.iter().map(|chunk| {
            Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(chunk.as_bytes())))
        });
        let mut body = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
        let budget = Budget::new(room, Metrics::new().buffers(), Parsers::in_place());
        collect(&mut body, limit, &mut budget.reservation()).await.map(|(bytes, _)| bytes)
    }

    #[tokio::test]
    async fn a_body_at_the_limit_is_read_and_one_over_it_is_not() {
        assert_eq!(run(&["ab", "cd", "e"], 5).await.unwrap(), "abcde");
        assert_eq!(run(&["ab", "cd", "e"], 4).await, None);
        assert_eq!(run(&[], 0).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_body_for_which_there_is_no_room_is_not_read_on() {
        assert!(collected(&["ab", "cd"], 9, 4).await.is_ok());
        let full = collected(&["ab", "cd", "e"], 9, 4).await;
        assert!(matches!(full, Err(CollectError::Full)), "{full:?}");
    }
}
