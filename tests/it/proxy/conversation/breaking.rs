use std::time::Duration;

use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use super::{GET, Line};

/// A response with this body, with a length or in chunks.
fn said(pieces: &[String], sized: bool) -> String {
    if sized {
        let body = pieces.concat();
        return format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
    let chunks = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len()));
    let chunks: String = chunks.collect();
    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

/// The status, the part of the body that arrived, and whether that is all of it, for a client that reads after
/// an upstream has sent `said` in pieces and closed.
async fn read(said: &str, cuts: &[usize], narrow: usize, late: bool) -> (u16, String, bool) {
    let mut line = Line::new("", narrow);
    line.client.send(GET).await;
    line.hears("\r\n\r\n").await;
    let pause = if late { Duration::from_millis(1) } else { Duration::ZERO };
    let says = async {
        for piece in cuts.windows(2) {
            line.upstream.write_all(&said.as_bytes()[piece[0]..piece[1]]).await.unwrap();
            sleep(pause).await;
        }
        drop(line.upstream);
    };
    let reads = async {
        if late {
            sleep(Duration::from_secs(1)).await;
        }
        let response = line.client.response(false).await;
        (response.status, response.body, response.whole)
    };
    tokio::join!(reads, says).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Wherever an upstream's response breaks off, and however its client reads: the client gets its beginning,
    /// and takes it for complete only if it is.
    #[test]
    fn what_broke_off_is_never_whole(
        pieces in prop::collection::vec("[a-z]{1,1500}", 1..6),
        sized in any::<bool>(),
        kept in any::<prop::sample::Index>(),
        whole in any::<bool>(),
        cuts in prop::collection::vec(any::<usize>(), 0..6),
        narrow in 200..3000_usize,
        late in any::<bool>(),
    ) {
        let said = said(&pieces, sized);
        let head = said.find("\r\n\r\n").unwrap() + 4;
        let end = if whole { said.len() } else { head + kept.index(said.len() - head) };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (end + 1)).collect();
        cuts.extend([0, end]);
        cuts.sort_unstable();
        let mut time = tokio::runtime::Builder::new_current_thread();
        let time = time.enable_all().start_paused(true).build().unwrap();
        let (status, body, looks_whole) = time.block_on(read(&said, &cuts, narrow, late));
        let all = pieces.concat();
        prop_assert_eq!((status, looks_whole), (200, whole));
        prop_assert!(all.starts_with(&body) && (!whole || body == all), "{} of {}", body.len(), all.len());
    }
}
