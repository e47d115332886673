//! Loads from texts: the files of `config/`, the tables checked against them, and damaged files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;

use super::root::{ROOT, sections};
use super::shape::{Absent, Section};
use super::*;
use crate::proxy::settings::{
    Balance, Buffer, Endpoint, HeadLimits, HostPolicy, Limits, Protocol, RouteMatch,
    RuledRetryable, Shutdown, Upstream, Verdict,
};
use crate::proxy::tls::testing::Authority;
use crate::telemetry::settings::{Access, BUCKETS, TelemetrySettings, When};

/// The files and variables that a load may read.
#[derive(Default)]
pub(super) struct TestOrigin<'a> {
    pub(super) files: BTreeMap<&'a str, &'a str>,
    pub(super) variables: BTreeMap<&'a str, &'a str>,
    /// Whether the system trusts no certificate authority.
    pub(super) trusts_nobody: bool,
}

impl TestOrigin<'_> {
    pub(super) fn load(&self, path: &str) -> Result<Loaded, Box<ConfigError>> {
        self.with(|origin| load(Path::new(path), origin))
    }

    /// Calls `read_in` with this world as its origin.
    pub(super) fn with<T>(&self, read_in: impl FnOnce(Origin<'_>) -> T) -> T {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no such file");
        let read = |path: &Path| {
            let found = self.files.get(path.to_str().unwrap());
            found.map(|text| (*text).to_owned()).ok_or_else(missing)
        };
        let variable = |name: &str| self.variables.get(name).map(|text| (*text).to_owned());
        let nobody = || Err("the system trusts no certificate authority".to_owned());
        let mut origin = Origin { read: &read, variable: &variable, ..Origin::system() };
        if self.trusts_nobody {
            origin.roots = &nobody;
        }
        read_in(origin)
    }
}

fn yaml(text: &str) -> Result<Loaded, Box<ConfigError>> {
    let files = BTreeMap::from([("c.yaml", text)]);
    let world = TestOrigin { files, ..TestOrigin::default() };
    world.load("c.yaml")
}

/// The text of a file in the repository's `config/`. The certificate and key files that it names do not
/// exist there: they are made here, all of one certificate.
fn shipped_text(path: &Path) -> io::Result<String> {
    static ISSUED: LazyLock<(String, String)> = LazyLock::new(|| {
        let issued = Authority::new().issue(&["a.test"]);
        (issued.chain(), issued.key())
    });
    let extension = path.extension().and_then(std::ffi::OsStr::to_str);
    match extension {
        Some("pem") => Ok(ISSUED.0.clone()),
        Some("key") => Ok(ISSUED.1.clone()),
        _ => std::fs::read_to_string(path).map(|text| text.replace("#: ", "")),
    }
}

/// Reads a file in the repository's `config/`, with the files it names.
pub(super) fn shipped(name: &str, variables: &[(&str, &str)]) -> Loaded {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    let read = shipped_text;
    let variable = |name: &str| variables.get(name).map(|text| (*text).to_owned());
    let origin = Origin { read: &read, variable: &variable, ..Origin::system() };
    load(&folder.join(name), origin).unwrap_or_else(|refused| panic!("{refused}"))
}

#[test]
fn the_smallest_file_gets_the_documented_defaults() {
    let Loaded { settings, warnings, .. } = shipped("minimal.yaml", &[]);
    assert!(warnings.is_empty());
    assert_eq!(settings.listeners[0].address.to_string(), "127.0.0.1:8080");
    assert_eq!((settings.admin, &*settings.environment), (None, ""));
    assert!(settings.limits.workers >= 1, "one for each processor");
    let limits = Limits {
        cleanup: Duration::from_secs(10),
        head_timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_secs(75),
        body_timeout: Duration::from_mins(1),
        minimum_rate: None,
        tunnel_timeout: Duration::from_hours(1),
        head_size: 64 * 1024,
        target_size: 16 * 1024,
        headers: 100,
        streams: 100,
        connections: 16_384,
        connections_given: false,
        requests: 16_384,
        cleanups: 1024,
        buffered_bytes: 256 << 20,
        workers: settings.limits.workers,
    };
    assert_eq!(settings.limits, limits);
    let observed = TelemetrySettings {
        access: Access { when: When::None, sample: 0.0 },
        tracing: None,
        buckets: BUCKETS.to_vec(),
    };
    assert_eq!(settings.observed, observed);
    let shutdown = Shutdown { delay: Duration::ZERO, grace: Duration::from_secs(30) };
    assert_eq!(settings.shutdown, shutdown);
}

#[test]
fn an_upstream_and_a_route_get_the_documented_defaults() {
    let settings = shipped("minimal.yaml", &[]).settings;
    let endpoint = Endpoint {
        host: "127.0.0.1".into(),
        port: 3000,
        authority: "127.0.0.1:3000".into(),
        socket: None,
        weight: 1,
        tls: None,
    };
    let upstream = Upstream {
        name: "app".into(),
        endpoints: vec![endpoint],
        balance: Balance::LeastRequest,
        protocol: Protocol::Http1,
        proxy_protocol: None,
        connect_timeout: Duration::from_secs(1),
        response_timeout: Duration::from_mins(1),
        idle_timeout: Duration::from_mins(1),
        keep_alive: Duration::from_secs(4),
        max_idle: 256,
        max_requests: 1024,
        max_wait: Duration::from_secs(1),
        retry_budget: None,
        ping_interval: Duration::ZERO,
        retry_after_max: Duration::from_mins(5),
        host: HostPolicy::Preserve,
        heads: HeadLimits { size: 64 * 1024, fields: 100 },
        health: None,
        ejection: None,
    };
    assert_eq!(settings.upstreams, [upstream]);
    let route = &settings.routes[0];
    let buffer = Buffer { request: 1024 * 1024, response: 1024 * 1024, replay: 64 * 1024 };
    assert_eq!(route.buffer, buffer);
    assert_eq!(route.matches, RouteMatch::default());
    assert!(!route.expose_failures && route.classify.is_empty());
}

#[test]
fn a_route_is_one_document() {
    let settings = yaml(
        "listeners: [{ address: 127.0.0.1:0 }]
upstreams: { app: { endpoints: [http://a] } }
stacks:
  outer: [{ provider: P1 }]
  pair: [{ stack: outer }, { provider: P2 }]
middleware: [{ stack: outer }]
routes:
  - name: one
    upstream: app
    output: 1
    assign: { a: 1 }
    input: null
    parameters: { type: object }
    middleware:
      - stack: pair
      - provider: F
        onAlways:
          with:
            call: { flow: { entrypoint: s, steps: { s: { middleware: [{ stack: outer }] } } } }
            middleware: [{ stack: outer }]
    catch: [{ match: { codes: ['*'] }, next: return }]
    steps:
      return: { action: Return, value: { stack: kept } }
  - { name: two, call: { provider: C, with: { middleware: [{ stack: kept }] } } }
  - { name: three, flow: { entrypoint: s, middleware: [{ provider: own }], steps: {} } }
",
    );
    let routes = settings.unwrap_or_else(|refused| panic!("{refused}")).settings.routes;
    let documents: Vec<String> = routes.iter().map(|route| route.document.to_string()).collect();
    let [one, two, three] = documents.as_slice() else {
        panic!("{documents:?}");
    };
    insta::assert_snapshot!(one, @r#"{"$schema":"https://mwl.dev/v0.1/flow/schema.json","entrypoint":"one","parameters":{"type":"object"},"steps":{"one":{"action":"Call","call":{"provider":"mwl:provider.call/mwl-proxy/http/v1","with":{"upstream":"app"}},"input":null,"output":1,"assign":{"a":1},"middleware":[{"provider":"P1"},{"provider":"P2"},{"provider":"F","onAlways":{"with":{"call":{"flow":{"entrypoint":"s","steps":{"s":{"middleware":[{"provider":"P1"}]}}}},"middleware":[{"provider":"P1"}]}}}],"catch":[{"match":{"codes":["*"]},"next":"return"}],"next":"return-2"},"return-2":{"action":"Return"},"return":{"action":"Return","value":{"stack":"kept"}}},"middleware":[{"provider":"P1"}]}"#);
    insta::assert_snapshot!(two, @r#"{"$schema":"https://mwl.dev/v0.1/flow/schema.json","entrypoint":"two","steps":{"two":{"action":"Call","call":{"provider":"C","with":{"middleware":[{"stack":"kept"}]}},"next":"return"},"return":{"action":"Return"}},"middleware":[{"provider":"P1"}]}"#);
    insta::assert_snapshot!(three, @r#"{"$schema":"https://mwl.dev/v0.1/flow/schema.json","entrypoint":"s","middleware":[{"provider":"P1"},{"provider":"own"}],"steps":{}}"#);
}

#[test]
fn a_stack_is_filled_where_it_is_used() {
    let settings = yaml(
        "listeners: [{ address: 127.0.0.1:0 }]
upstreams: { app: { endpoints: [http://a] } }
stacks:
  inner:
    parameters: { n: { type: integer }, who: { type: string, default: nobody } }
    middleware: [{ provider: \"P-${with.who}-${with.n}\", onEntry: { with: { n: \"${with.n}\", kept: \"{{ '${with.n}' }}\" } } }]
  outer:
    parameters: { n: { type: [integer, string], default: 1 } }
    middleware: [{ stack: inner, with: { n: \"${with.n}\" } }, { stack: inner, with: { n: 7, who: me } }]
routes:
  - { name: one, upstream: app, middleware: [{ stack: outer }, { stack: outer, with: { n: \"{{ vars.n }}\" } }] }
",
    );
    let settings = settings.unwrap_or_else(|refused| panic!("{refused}")).settings;
    let entries = settings.routes[0].document.get("steps").unwrap().get("one").unwrap();
    let entries = entries.get("middleware").unwrap().to_json();
    let said: Vec<String> = entries.as_array().unwrap().iter().map(ToString::to_string).collect();
    let entry = |who: &str, n: &str, value: &str| {
        format!(
            r#"{{"onEntry":{{"with":{{"kept":"{{{{ '${{with.n}}' }}}}","n":{value}}}}},"provider":"P-{who}-{n}"}}"#
        )
    };
    let computed = "{{ vars.n }}";
    assert_eq!(
        said,
        [
            entry("nobody", "1", "1"),
            entry("me", "7", "7"),
            entry("nobody", computed, r#""{{ vars.n }}""#),
            entry("me", "7", "7"),
        ]
    );
}

/// What an expression asks for, only a request has: its Flow is called with the arguments.
#[test]
fn arguments_by_expression_are_those_of_a_call() {
    let settings = yaml(
        "listeners: [{ address: 127.0.0.1:0 }]
upstreams: { app: { endpoints: [http://a] } }
middleware: [{ provider: P }]
routes:
  - { name: r, upstream: app, parameters: { type: object, properties: { n: {} } }, with: { n: \"{{ frame.input.path }}\" } }
",
    );
    let route = &settings.unwrap_or_else(|refused| panic!("{refused}")).settings.routes[0];
    assert!(route.with.as_object().unwrap().is_empty());
    insta::assert_snapshot!(route.document, @r#"{"$schema":"https://mwl.dev/v0.1/flow/schema.json","entrypoint":"r","steps":{"r":{"action":"Call","call":{"flow":{"entrypoint":"r","parameters":{"type":"object","properties":{"n":{}}},"steps":{"r":{"action":"Call","call":{"provider":"mwl:provider.call/mwl-proxy/http/v1","with":{"upstream":"app"}},"next":"return"},"return":{"action":"Return"}},"middleware":[{"provider":"P"}]},"with":{"n":"{{ frame.input.path }}"}},"next":"return"},"return":{"action":"Return"}}}"#);
}

#[test]
fn shipped_files_load() {
    let recipe = shipped("recipe.yaml", &[("AUDIT_URL", "http://audit:1")]);
    assert!(recipe.warnings.is_empty(), "{:?}", recipe.warnings);
    assert_eq!(recipe.settings.routes.len(), 10);
    assert_eq!(&*recipe.settings.upstreams[1].endpoints[0].authority, "audit:1");
    let charge = &recipe.settings.routes[0];
    let expected = Verdict::Failure {
        code: "Provider.Call.Payments.CardDeclined".into(),
        retryable: Some(RuledRetryable::Is(false)),
    };
    assert_eq!(charge.classify[0].verdict, expected);
    assert_eq!(charge.classify[0].status, [(402, 402)]);
    let variables =
        [("LISTEN", "127.0.0.1:8080"), ("ADMIN", "127.0.0.1:9900"), ("FLAKY", "127.0.0.1:1")];
    let quickstart = shipped("quickstart.yaml", &variables);
    assert!(quickstart.warnings.is_empty(), "{:?}", quickstart.warnings);
}

/// All sections, with the root.
pub(super) fn all_sections() -> Vec<&'static Section> {
    std::iter::once(&ROOT).chain(sections()).collect()
}

#[test]
fn the_reference_shows_every_key() {
    let loaded = shipped("reference.yaml", &[]);
    let mut shown = BTreeSet::new();
    keys(&loaded.written.to_json(), &mut shown);
    for section in all_sections() {
        for field in section.fields {
            assert!(shown.contains(field.key), "{}: `{}`", section.name, field.key);
        }
    }
}

fn keys(value: &serde_json::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        serde_json::Value::Object(members) => {
            for (key, value) in members {
                found.insert(key.clone());
                keys(value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_reference_shows_the_defaults() {
    let loaded = shipped("reference.yaml", &[]);
    let written = loaded.written.to_json();
    let at = |pointer: &str| written.pointer(pointer).unwrap();
    let places = [
        ("the configuration", ""),
        ("an upstream", "/upstreams/app"),
        ("`limits`", "/limits"),
        ("`admin`", "/admin"),
        ("`metrics`", "/metrics"),
        ("`access`", "/log/access"),
        ("`tracing`", "/tracing"),
        ("`otlp`", "/tracing/otlp"),
        ("`shutdown`", "/shutdown"),
        ("`buffer`", "/routes/0/buffer"),
        ("`forwarded`", "/forwarded"),
    ];
    for (name, pointer) in places {
        let section = all_sections().into_iter().find(|section| section.name == name).unwrap();
        for field in section.fields {
            let Absent::Default(default) = field.absent else {
                continue;
            };
            // Where the default is an empty map, the reference shows an example.
            if default == "{}" {
                continue;
            }
            let default: serde_json::Value = serde_json::from_str(default).unwrap();
            assert_eq!(at(pointer).get(field.key), Some(&default), "{name}: {}", field.key);
        }
    }
}

/// Every key in a table is read. `get` asserts the reverse.
#[test]
fn no_row_is_left_unread() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let text = shipped_text(&folder.join("reference.yaml")).unwrap();
    let read = shipped_text;
    let origin = Origin { read: &read, variable: &|_| None, ..Origin::system() };
    let mut sources = Sources::default();
    let node = sources.parse("c.yaml", &text, Format::Yaml).unwrap();
    let load = Load::new(origin, sources, Vec::new(), folder);
    load.settings(&node).unwrap();
    let asked = load.report.asked.borrow();
    for section in all_sections() {
        for field in section.fields {
            assert!(asked.contains(&(section.name, field.key)), "{}: {}", section.name, field.key);
        }
    }
}

/// What a crash or a typing mistake may make of a file.
fn damaged() -> impl Strategy<Value = String> {
    let files =
        [include_str!("../../config/reference.yaml"), include_str!("../../config/recipe.yaml")];
    let edits = prop::collection::vec((any::<prop::sample::Index>(), ".{0,8}", 0..40_usize), 0..4);
    (prop::sample::select(files.to_vec()), edits, any::<prop::sample::Index>(), any::<bool>())
        .prop_map(|(file, edits, end, cut)| {
            let mut chars: Vec<char> = file.chars().collect();
            for (place, put, gone) in edits {
                let from = place.index(chars.len());
                let to = (from + gone).min(chars.len());
                chars.splice(from..to, put.chars());
            }
            if cut {
                chars.truncate(end.index(chars.len() + 1));
            }
            chars.into_iter().collect()
        })
}

proptest! {
    /// Whatever the text, a load ends with settings or with errors that have places.
    #[test]
    fn a_damaged_file_is_read_or_refused(text in damaged()) {
        let mut world = TestOrigin::default();
        world.files.insert("c.yaml", &text);
        match world.load("c.yaml") {
            Ok(loaded) => prop_assert!(!loaded.warnings.has_errors()),
            Err(refused) => {
                prop_assert!(refused.diagnostics.has_errors());
                prop_assert!(refused.to_string().contains("--> "));
            }
        }
    }
}
