//! The files in `config/policies`: policies of other systems, each in front of scripted upstreams.

mod breakers;
/// Which endpoint is asked.
mod endpoints;
mod retries;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::program::run;
use crate::support::proxy::Proxy;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/policies")
}

fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

/// The proxy of a file, with these upstreams as its variables, in order. Its durations are so many times shorter.
fn policy(name: &str, upstreams: &[SocketAddr], faster: u32) -> Proxy {
    let text = shorter(&text(name), faster);
    let named = |variable: &str| {
        let place = ["ONE", "TWO", "THREE"].iter().position(|known| *known == variable)?;
        upstreams.get(place).map(ToString::to_string)
    };
    let listen = |variable: &str| (variable == "LISTEN").then(|| "127.0.0.1:0".to_owned());
    Proxy::with_variables(&text, &|variable| listen(variable).or_else(|| named(variable)))
}

/// The same text with each duration divided.
fn shorter(text: &str, by: u32) -> String {
    let duration = regex::Regex::new("PT([0-9.]+)([SMH])").unwrap();
    let divided = duration.replace_all(text, |found: &regex::Captures<'_>| {
        let unit = match &found[2] {
            "S" => 1.0,
            "M" => 60.0,
            _ => 3600.0,
        };
        let seconds: f64 = found[1].parse::<f64>().unwrap() * unit / f64::from(by);
        format!("PT{}S", Duration::from_secs_f64(seconds).as_secs_f64())
    });
    divided.into_owned()
}

/// Every file says what it comes from and what differs, is played, and gives `check` nothing to say.
#[test]
fn each_policy_says_what_differs_and_is_sound() {
    let tests =
        [include_str!("breakers.rs"), include_str!("endpoints.rs"), include_str!("retries.rs")];
    let tests = tests.concat();
    let mut arguments = vec!["check".to_owned(), "--strict".to_owned()];
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(text.starts_with("# ") && text.contains("\n# What differs: "), "{name}");
        assert!(tests.contains(&format!("\"{name}\"")), "no test plays {name}");
        arguments.push(path.to_str().unwrap().to_owned());
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = run(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
