//! The files in `config/policies`: policies of other systems, each in front of scripted upstreams.

/// Which endpoint is asked.
mod endpoints;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::support::proxy::Proxy;

/// The proxy of a file, with these upstreams as its variables, in order. Its durations are so many times shorter.
fn policy(name: &str, upstreams: &[SocketAddr], faster: u32) -> Proxy {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/policies").join(name);
    let text = shorter(&std::fs::read_to_string(path).unwrap(), faster);
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

/// Every file says what it comes from and what differs.
#[test]
fn each_policy_says_what_differs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/policies");
    let tests = [include_str!("endpoints.rs")].concat();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(text.starts_with("# ") && text.contains("\n# What differs: "), "{name}");
        assert!(tests.contains(&format!("\"{name}\"")), "no test plays {name}");
    }
}
