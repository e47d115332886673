//! The system's clock is set while the proxy runs.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::client::{get, post};
use crate::support::program::{Directory, Program, command, configuration};

/// Debian's `faketime` package contains the library. Without it, only the unit tests step the clock.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// When the configuration was loaded.
const LOADED: &str = "mwl_config_last_reload_success_timestamp_seconds";

/// How far `at` is from the time that the test's own clock shows.
#[expect(clippy::disallowed_methods, reason = "a clock that nobody sets, to compare with")]
fn ahead(at: SystemTime) -> i64 {
    let now = SystemTime::now();
    let seconds = |span: Duration| i64::try_from(span.as_secs()).unwrap();
    at.duration_since(now).map_or_else(|before| -seconds(before.duration()), seconds)
}

#[test]
fn answers_and_reloads_follow_steps_of_an_hour_each_way() {
    if !Path::new(LIBRARY).exists() {
        return;
    }
    let directory = Directory::new();
    let route = "- { name: none, match: { path: /only }, upstream: u }\n";
    let file = configuration(&[("u", ([127, 0, 0, 1], 1).into())], route);
    let path = directory.write("proxy.yaml", &file);
    let step = directory.write("step", "+0");
    let mut command = command(&["run", "-c", path.to_str().unwrap()]);
    command.env("LD_PRELOAD", LIBRARY).env("FAKETIME_TIMESTAMP_FILE", step);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let program = Program::spawn(command);
    let (address, admin) = program.addresses();
    for hours in [0, 1, -1, 0] {
        directory.write("step", &format!("{:+}", hours * 3600));
        let near = |at: SystemTime| ahead(at).abs_diff(hours * 3600) < 60;
        // The clock is compared ten times a second, when somebody asks for the time.
        let date = || {
            let answer = get(address, "/nowhere");
            httpdate::parse_http_date(answer.field("date").unwrap()).unwrap()
        };
        let begun = tokio::time::Instant::now();
        while !near(date()) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?} is not {hours} h", date());
        }
        // A reload has the system's time, too.
        directory.write("proxy.yaml", &format!("{file}# {hours}\n"));
        assert_eq!(post(admin, "/reload", "").status, 200);
        let metrics = get(admin, "/metrics");
        let loaded = metrics.text().lines().find_map(|line| line.strip_prefix(LOADED)).unwrap();
        let loaded = UNIX_EPOCH + Duration::from_secs_f64(loaded.trim().parse().unwrap());
        assert!(near(loaded), "{loaded:?} is not {hours} h");
    }
}
