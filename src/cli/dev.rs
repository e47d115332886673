//! The dev proxy: the configuration that `run --upstream URL` stands for, and the faults that `--fault` adds to it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::json;

use crate::app::Input;

/// One fault of `--fault`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// A share of the attempts fails with this status.
    Status(u16, f64),
    /// A share of the attempts is lost.
    Reset(f64),
    /// A share of the attempts waits so many milliseconds.
    Delay(u32, f64),
}

/// All faults of one `--fault`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    /// Reads `503=10%,reset=1%,delay=200ms` or `delay=200ms:30%`.
    ///
    /// # Errors
    /// What is wrong, with an example.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let faults = text.split(',').map(|part| {
            Fault::parse(part.trim()).ok_or_else(|| {
                format!(
                    "`{}` is no fault; write for example `503=10%`, `reset=1%`, `delay=200ms` or `delay=1s:30%`",
                    part.trim()
                )
            })
        });
        faults.collect::<Result<_, _>>().map(Self)
    }
}

impl Fault {
    fn parse(text: &str) -> Option<Self> {
        let (what, value) = text.split_once('=')?;
        match what {
            "delay" => {
                let (length, share) = value.split_once(':').unwrap_or((value, "100%"));
                Some(Self::Delay(milliseconds(length)?, self::share(share)?))
            }
            "reset" => Some(Self::Reset(share(value)?)),
            status => {
                let status = status.parse().ok().filter(|status| (400..600).contains(status))?;
                Some(Self::Status(status, share(value)?))
            }
        }
    }

    /// The arguments of the `fault` middleware.
    fn with(self) -> String {
        match self {
            Self::Status(status, share) => format!("share: {share}, status: {status}"),
            Self::Reset(share) => format!("share: {share}, reset: true"),
            Self::Delay(millis, share) => {
                let seconds = f64::from(millis) / 1000.0;
                format!("share: {share}, delay: PT{seconds}S")
            }
        }
    }
}

/// `10%` as 0.1.
fn share(text: &str) -> Option<f64> {
    let percent = text.strip_suffix('%')?;
    let plain = percent.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percent: f64 = percent.parse().ok().filter(|_| plain)?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// `200ms`, `1.5s`.
fn milliseconds(text: &str) -> Option<u32> {
    let (number, factor) = match text.strip_suffix("ms") {
        Some(number) => (number, 1.0),
        None => (text.strip_suffix('s')?, 1000.0),
    };
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let millis = number.parse::<f64>().ok().filter(|_| plain)? * factor;
    let possible = (1.0..=3_600_000.0).contains(&millis);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most an hour")]
    possible.then_some(millis as u32)
}

/// The dev proxy's configuration: the standard stack, with a shorter bound for each attempt.
pub(super) fn before(
    upstream: &str,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    faults: &Faults,
) -> Input {
    Input::Text {
        name: PathBuf::from("(--upstream)"),
        text: written(upstream, listen, admin, faults),
        variables: Vec::new(),
    }
}

/// The same as a file, with comments.
pub(super) fn written(
    upstream: &str,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    faults: &Faults,
) -> String {
    // A TLS upstream expects its own host name, not that of this proxy.
    let secure = upstream.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
    let host = if secure { "upstream" } else { "preserve" };
    let text = |text: &str| json!(text).to_string();
    let mut file =
        format!("environment: dev\nlisteners:\n  - address: {}\n", text(&listen.to_string()));
    if let Some(admin) = admin {
        writeln!(file, "admin: {{ address: {} }}", text(&admin.to_string())).ok();
    }
    write!(
        file,
        "upstreams:\n\
         \x20 app:\n\
         \x20   endpoints: [{}]\n\
         \x20   host: {host}               # the Host that the upstream gets: the client's, or its own\n\
         \x20   responseTimeout: PT30S       # the bound of each attempt\n\
         routes:\n\
         \x20 - name: app\n\
         \x20   upstream: app\n\
         \x20   exposeFailures: true         # an answer of the proxy's own says why; not for the outside\n\
         \x20   middleware:\n",
        text(upstream)
    )
    .ok();
    file.push_str(&faults.entries());
    file
}

/// The standard stack, written out so that a reader sees what there is to change. `WHY` and `CODES` are filled in.
const STANDARD: &str = r#"      # mwl-proxy/standard, written out: WHY
      - provider: mwl:provider.middleware/mwl/timeout/v1
        onEntry: { with: { duration: PT2M } }
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry:
          with:
            policies:
              - match: { codes: [CODES], retryable: true }
                attempts: 3
                backoff: { initial: PT0.1S, rate: 2, max: PT2S, jitter: full }
        onFailure:
          with:
            delay: "{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}"
"#;

impl Faults {
    /// The entries of the route: a policy, and the faults within it.
    fn entries(&self) -> String {
        let Self(faults) = self;
        let fails = faults.iter().any(|fault| !matches!(fault, Fault::Delay(..)));
        let (why, codes) = if fails {
            (
                "its Retry takes the faults, too",
                r#""Provider.Call.*", Provider.Middleware.Fault.Injected"#,
            )
        } else {
            ("a bound for all, and a Retry of what may be sent again", r#""Provider.Call.*""#)
        };
        let mut entries = STANDARD.replace("WHY", why).replace("CODES", codes);
        for fault in faults {
            write!(
                entries,
                "      - provider: mwl:provider.middleware/mwl-proxy/fault/v1\n\
                 \x20       onEntry: {{ with: {{ {} }} }}\n",
                fault.with()
            )
            .ok();
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::check;

    #[test]
    fn faults_are_read_or_told() {
        let read = Faults::parse("503=10%, reset=0.5%,delay=200ms,delay=1.5s:30%");
        let faults = [
            Fault::Status(503, 0.1),
            Fault::Reset(0.005),
            Fault::Delay(200, 1.0),
            Fault::Delay(1500, 0.3),
        ];
        assert_eq!(read, Ok(Faults(faults.to_vec())));
        for text in ["", "503", "503=10", "200=10%", "delay=0ms", "delay=1h", "503=110%", "x=1%"] {
            let told = Faults::parse(text).unwrap_err();
            assert!(told.contains("write for example `503=10%`"), "{told}");
        }
    }

    #[test]
    fn what_it_stands_for_is_a_file_that_compiles_without_a_warning() {
        let any = "127.0.0.1:0".parse().unwrap();
        let faults = Faults::parse("503=10%,reset=1%,delay=200ms").unwrap();
        for faults in [Faults::default(), faults] {
            for url in ["http://127.0.0.1:3000", "https://a.test"] {
                let loaded = before(url, any, Some(any), &faults).load();
                let loaded = loaded.unwrap_or_else(|refused| panic!("{refused}"));
                let built = check(loaded).unwrap_or_else(|refused| panic!("{refused}"));
                assert!(built.warnings.is_empty(), "{}", built.sources.render(&built.warnings));
            }
        }
    }

    #[test]
    fn it_is_the_standard_stack() {
        let any = "127.0.0.1:0".parse().unwrap();
        let file = written("http://127.0.0.1:3000", any, None, &Faults::default());
        let (head, _) = file.split_once("      # mwl-proxy/standard").unwrap();
        let standard = format!("{head}      - stack: mwl-proxy/standard\n");
        let [ours, standard] = [file, standard].map(|text| {
            let input = Input::Text { name: PathBuf::from("c"), text, variables: Vec::new() };
            check(input.load().unwrap()).unwrap().shown.routes.iter().collect::<Vec<_>>()
        });
        assert_eq!(ours, standard);
    }

    #[test]
    fn the_file_has_comments() {
        let any = "127.0.0.1:0".parse().unwrap();
        let faults = Faults::parse("503=10%,delay=200ms").unwrap();
        let file = written("http://127.0.0.1:3000", any, Some(any), &faults);
        insta::assert_snapshot!(file, @r##"
        environment: dev
        listeners:
          - address: "127.0.0.1:0"
        admin: { address: "127.0.0.1:0" }
        upstreams:
          app:
            endpoints: ["http://127.0.0.1:3000"]
            host: preserve               # the Host that the upstream gets: the client's, or its own
            responseTimeout: PT30S       # the bound of each attempt
        routes:
          - name: app
            upstream: app
            exposeFailures: true         # an answer of the proxy's own says why; not for the outside
            middleware:
              # mwl-proxy/standard, written out: its Retry takes the faults, too
              - provider: mwl:provider.middleware/mwl/timeout/v1
                onEntry: { with: { duration: PT2M } }
              - provider: mwl:provider.middleware/mwl/retry/v1
                onEntry:
                  with:
                    policies:
                      - match: { codes: ["Provider.Call.*", Provider.Middleware.Fault.Injected], retryable: true }
                        attempts: 3
                        backoff: { initial: PT0.1S, rate: 2, max: PT2S, jitter: full }
                onFailure:
                  with:
                    delay: "{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}"
              - provider: mwl:provider.middleware/mwl-proxy/fault/v1
                onEntry: { with: { share: 0.1, status: 503 } }
              - provider: mwl:provider.middleware/mwl-proxy/fault/v1
                onEntry: { with: { share: 1, delay: PT0.2S } }
        "##);
    }
}
