//! Reads a body into memory, up to a limit.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;

/// Why a body was not read completely.
#[derive(Debug)]
pub(crate) enum CollectError<E> {
    /// It is larger than the limit.
    TooLarge,
    /// It broke off.
    Broken(E),
}

/// Reads all of `body`, at most `limit` bytes, and its trailers. A declared length above the limit fails before
/// anything is read.
pub(crate) async fn collect<B>(
    body: &mut B,
    limit: usize,
) -> Result<(Bytes, Option<HeaderMap>), CollectError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(CollectError::TooLarge);
    }
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
        match first.take() {
            None if joined.is_empty() => first = Some(chunk),
            None => joined.extend_from_slice(&chunk),
            Some(head) => {
                joined.extend_from_slice(&head);
                joined.extend_from_slice(&chunk);
            }
        }
    }
    Ok((first.unwrap_or_else(|| joined.freeze()), trailers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    async fn run(chunks: &[&'static str], limit: usize) -> Option<Bytes> {
        let frames = chunks.iter().map(|chunk| {
            Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(chunk.as_bytes())))
        });
        let mut body = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
        collect(&mut body, limit).await.ok().map(|(bytes, _)| bytes)
    }

    #[tokio::test]
    async fn a_body_at_the_limit_is_read_and_one_over_it_is_not() {
        assert_eq!(run(&["ab", "cd", "e"], 5).await.unwrap(), "abcde");
        assert_eq!(run(&["ab", "cd", "e"], 4).await, None);
        assert_eq!(run(&[], 0).await.unwrap(), "");
    }
}
