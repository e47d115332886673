use super::*;

/// A client that gets its answer before its upload ends may go on with the upload, within limits.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_on_sending_is_read_within_limits() {
    // Nothing more, a byte now and then, and too much.
    for (every, size, ends) in
        [(60_000, 1, 2_000..2_600), (500, 1, 5_000..6_500), (1, 1 << 20, 60..200)]
    {
        let mut line = Line::new("bodyTimeout: PT2S, idleTimeout: PT5S, ", 1 << 21);
        line.client
            .send("POST /nowhere HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999\r\n\r\n")
            .await;
        let refused = line.client.response(false).await;
        assert_eq!((refused.status, refused.field("connection")), (404, vec!["close"]));
        let begun = Instant::now();
        let data = vec![b'x'; size];
        let sends = async {
            loop {
                sleep(Duration::from_millis(every)).await;
                line.client.offer(&data).await;
            }
        };
        tokio::select! {
            served = &mut line.served => served.unwrap(),
            () = sends => {}
        }
        let took = begun.elapsed().as_millis();
        assert!(ends.contains(&took), "{size} bytes every {every} ms: {took} ms");
    }
}

/// Also over a pipe, as in a rehearsal.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_noticed_over_a_pipe() {
    for behind in ["hello", "", GET] {
        let mut line = Line::new("", 1 << 16);
        let post =
            "POST /a HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n";
        line.client.send(format!("{GET}{post}{behind}")).await;
        line.hears("\r\n\r\n").await;
        drop(line.client);
        within(line.served).await.unwrap();
        assert!(is_counted(&line.metrics, 499), "{behind}");
    }
}
