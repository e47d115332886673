//! What the other side can make a connection hold or do.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::sleep;

use super::frames::{ENDS, Served, asks, uploads};
use super::raw::{frame, frames, head, settings, within};
use crate::proxy::h2::wire::frame::{PREFACE, kind};
use crate::proxy::h2::wire::{Builder, Reason};

#[tokio::test(start_paused = true)]
async fn floods_end_the_connection() {
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    let opens = |run: u32| 2 * run + 1;
    let rapid = |run| [asks(opens(run)), frame(kind::RST_STREAM, 0, opens(run), &[0; 4])].concat();
    let made = |run| {
        [asks(opens(run)), frame(kind::WINDOW_UPDATE, 0, opens(run), &[0x7f, 255, 255, 255])]
            .concat()
    };
    let large = |run| {
        let large = head("GET", "/a", &[("x", &"y".repeat(3000))]);
        frame(kind::HEADERS, ENDS, opens(run), &large)
    };
    let crumbs = [uploads(1), frame(kind::DATA, 0, 1, b"c").repeat(1000)].concat();
    let continued =
        [frame(kind::HEADERS, 0, 1, &[]), frame(kind::CONTINUATION, 0, 1, &[]).repeat(9)];
    let floods = [
        ping.repeat(1001),
        (0..25).flat_map(rapid).collect(),
        (0..1100).flat_map(made).collect(),
        (0..17).flat_map(large).collect(),
        crumbs,
        continued.concat(),
        [uploads(1), frame(kind::DATA, 0, 1, &[]).repeat(1010)].concat(),
    ];
    for (at, flood) in floods.into_iter().enumerate() {
        let mut served = Served::new(Builder::new().max_header_list_size(2000)).await;
        served.hears(&flood).await;
        assert_eq!(served.reason(), Some(Reason::ENHANCE_YOUR_CALM), "{at}");
    }
    let mut served = Served::new(Builder::new()).await;
    for _ in 0..100 {
        served.hears(&ping.repeat(1000)).await;
        assert!(served.ended.is_none(), "a thousand a second");
        served.said().await;
        sleep(Duration::from_secs(1)).await;
    }
}

/// A client that reads no answers is not read, and what it is owed has a bound.
#[tokio::test(start_paused = true)]
async fn answers_that_nobody_reads_stop_the_reading() {
    let (near, mut far) = duplex(100);
    let serving = tokio::spawn(async move {
        let mut server = Builder::new().serve(near).await.unwrap();
        server.accept().await.is_none()
    });
    far.write_all(PREFACE).await.unwrap();
    far.write_all(&frame(kind::SETTINGS, 0, 0, &[])).await.unwrap();
    let mut written = 0;
    while within(Duration::from_secs(5), far.write_all(&frame(kind::PING, 0, 0, &[0; 8])))
        .await
        .is_some()
    {
        written += 1;
    }
    assert!((500..1000).contains(&written), "{written}");
    drop(far);
    serving.await.unwrap();
}

/// What is handed over waits on its stream once the connection has gathered enough.
#[tokio::test(start_paused = true)]
async fn what_is_gathered_has_a_bound_and_waits_for_room() {
    let (near, mut far) = duplex(1000);
    far.write_all(PREFACE).await.unwrap();
    far.write_all(&frame(kind::SETTINGS, 0, 0, &settings(&[(4, 1 << 30)]))).await.unwrap();
    far.write_all(&frame(kind::WINDOW_UPDATE, 0, 0, &[0x3f, 0, 0, 0])).await.unwrap();
    far.write_all(&[asks(1), asks(3)].concat()).await.unwrap();
    let builder = Builder::new().max_send_buffer_size(64 * 1024);
    let mut server = builder.serve(near).await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let (_, mut respond) = server.accept().await.unwrap().unwrap();
        streams.push((respond.send_response(Response::new(()), false).unwrap(), respond));
    }
    let mut taken = 0;
    for (stream, _) in &mut streams {
        loop {
            stream.reserve_capacity(10_000);
            match stream.capacity().min(10_000) {
                0 => break,
                size => {
                    taken += size;
                    stream.send_data(Bytes::from(vec![b'd'; size]), false).unwrap();
                }
            }
        }
    }
    assert!(within(Duration::from_millis(1), server.accept()).await.is_none());
    assert!((64 * 1024..84 * 1024).contains(&server.gathered()), "{}", server.gathered());
    assert!((192 * 1024..224 * 1024).contains(&taken), "{taken}");
    // Once there is room, the streams have their turns.
    let mut bytes = vec![0; taken + 10_000];
    let mut read = 0;
    while within(Duration::from_millis(1), server.accept()).await.is_none() {
        match within(Duration::from_millis(1), far.read(&mut bytes[read..])).await {
            Some(more) => read += more.unwrap(),
            None => break,
        }
    }
    let got = frames(&bytes[..read]);
    let data: Vec<_> = got.iter().filter(|frame| frame.kind == kind::DATA).collect();
    assert_eq!(data.iter().map(|frame| frame.payload.len()).sum::<usize>(), taken);
    assert_eq!(server.gathered(), 0);
}
