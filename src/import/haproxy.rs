//! `HAProxy`: `backend`, `listen`, `frontend` and `defaults`, with `retries` and `retry-on`.

use super::codes;
use super::features::{Ejection, Health, balance};
use super::form::{
    At, Endpoint, Feature, Form, Layer, Notes, Policy, Retry, Retryable, Route, Rule, Status,
    Upstream, name,
};
use super::haproxy_lines::{Line, Section, sections};
use super::read::{Reading, duration, is_path, short, url};
use super::retry_on::RETRIABLE;
use super::yaml::Tree;
use crate::language::temporal::Span as Time;
use crate::source::Span;

/// How often a connection is tried again where nothing else is said.
const RETRIES: u64 = 3;

/// What `defaults` says, and a section after it.
#[derive(Clone, Debug, Default)]
struct Settings {
    connect: Option<Time>,
    server: Option<Time>,
    queue: Option<Time>,
    retries: Option<u64>,
    retry_on: Vec<String>,
    retry_at: At,
    /// The methods that may be sent again, if not all.
    methods: Option<Vec<&'static str>>,
    balance: Option<(String, At)>,
    check: Option<String>,
}

/// What servers share, from `default-server`.
#[derive(Clone, Debug, Default)]
struct Checks {
    on: bool,
    interval: Option<Time>,
    fall: Option<u64>,
    rise: Option<u64>,
    places: u64,
    ejection: Option<u64>,
    /// The version of the PROXY header that servers get.
    header: Option<&'static str>,
}

pub(super) fn read(reading: &Reading<'_>, whole: Span, text: &str) -> Form {
    let sections = sections(whole, text);
    let mut form = Form::default();
    let mut defaults = Settings::default();
    let mut backends = Vec::new();
    let mut fronted = false;
    for section in &sections {
        if form.is_full() {
            break;
        }
        match section.kind {
            "defaults" => {
                defaults = Settings::default();
                let mut notes = Notes::default();
                for line in &section.lines {
                    setting(reading, line, &mut defaults, &mut notes);
                }
                form.notes.0.append(&mut notes.0);
            }
            "backend" | "listen" => {
                backends.push(section.name.to_owned());
                let route = backend(reading, section, &defaults, &mut form);
                form.routes.push(route);
            }
            _ => {}
        }
    }
    for section in sections.iter().filter(|section| section.kind == "frontend") {
        fronted |= frontend(reading, section, &mut form);
    }
    if backends.is_empty() {
        let message = "there is no `backend` and no `listen` of HAProxy in this";
        reading.not_this(whole, message, "give a configuration of HAProxy, or sections of one");
    }
    if !fronted && form.routes.len() > 1 {
        for route in form.routes.iter_mut().filter(|route| route.matches.headers.is_empty()) {
            route.matches.path_prefix = Some(format!("/{}", route.name));
            route.notes.told("Nothing says which requests it is for: say it here.");
        }
    }
    form
}

/// Orders the routes as a frontend chooses. Returns whether it chooses.
fn frontend(reading: &Reading<'_>, section: &Section<'_>, form: &mut Form) -> bool {
    let mut usual = None;
    for line in &section.lines {
        let at = reading.at(line.span);
        match line.word(0) {
            "bind" => bind(line.word(1), form),
            "default_backend" => usual = Some(name(line.word(1))),
            "use_backend" => {
                let wanted = name(line.word(1));
                if let Some(route) = form.routes.iter_mut().find(|route| route.name == wanted) {
                    let condition = short(&line.words.get(2..).unwrap_or_default().join(" "));
                    route.notes.lost(at, format!("the condition `{condition}`."));
                    route.notes.told("This route matches a field that nobody sends: say here which requests it is for.");
                    route.matches.headers = vec![("x-import-no-equal".to_owned(), None)];
                }
            }
            "mode" | "acl" | "option" | "timeout" | "maxconn" | "log" => {}
            _ => form.notes.lost(at, format!("`{}`.", short(&line.words.join(" ")))),
        }
    }
    let Some(usual) = usual else { return false };
    // The usual one takes what the others leave.
    form.routes.sort_by_key(|route| route.name == usual);
    true
}

fn bind(text: &str, form: &mut Form) {
    let address = match text.strip_prefix('*').unwrap_or(text) {
        port if port.starts_with(':') => format!("0.0.0.0{port}"),
        address => address.to_owned(),
    };
    if address.parse::<std::net::SocketAddr>().is_ok() && !form.listeners.contains(&address) {
        form.listeners.push(address);
    }
}

/// Reads a line that `defaults` may have, too. Returns whether it is one.
fn setting(
    reading: &Reading<'_>,
    line: &Line<'_>,
    settings: &mut Settings,
    notes: &mut Notes,
) -> bool {
    let at = reading.at(line.span);
    let time = |text: &str| {
        let read = duration(text, Some("ms"));
        if read.is_none() {
            reading.wrong(line.span, format!("`{}` is no time such as `5s`", short(text)));
        }
        read
    };
    match (line.word(0), line.word(1)) {
        ("timeout", "connect") => settings.connect = time(line.word(2)),
        ("timeout", "server") => settings.server = time(line.word(2)),
        ("timeout", "queue") => settings.queue = time(line.word(2)),
        ("timeout", "client" | "http-request" | "http-keep-alive" | "check" | "tunnel") => {
            let text = format!("`timeout {}`: see `limits:` for clients.", line.word(1));
            notes.lost(at, text);
        }
        ("retries", count) => match count.parse() {
            Ok(count) => settings.retries = Some(count),
            Err(_) => {
                reading.wrong(line.span, format!("`{}` is no number of retries", short(count)));
            }
        },
        ("retry-on", _) => {
            settings.retry_on = line.words.iter().skip(1).map(|word| (*word).to_owned()).collect();
            settings.retry_at = at;
        }
        ("option", "redispatch") => {
            notes.told("`option redispatch`: each attempt prefers a server that was not tried.");
        }
        ("option", "httpchk") => {
            let path = line.words.iter().skip(2).find(|word| is_path(word));
            settings.check = Some(path.map_or_else(|| "/".to_owned(), ToString::to_string));
        }
        ("http-request", "disable-l7-retry") => {
            let condition = line.words.get(2..).unwrap_or_default();
            settings.methods = methods(condition);
            if settings.methods.is_none() {
                notes.lost(at, format!("`{}`.", short(&line.words.join(" "))));
            }
        }
        ("balance", how) => settings.balance = Some((how.to_owned(), at)),
        ("mode" | "log" | "maxconn", _)
        | ("option", "httplog" | "dontlognull" | "forwardfor" | "http-server-close") => {}
        _ => return false,
    }
    true
}

/// The methods that may be sent again, by the condition under which they are not.
fn methods(condition: &[&str]) -> Option<Vec<&'static str>> {
    let all = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"];
    let of = |word: &str| -> Option<Vec<&'static str>> {
        let wanted = word.strip_prefix("METH_")?;
        let mut found: Vec<_> = all.into_iter().filter(|method| *method == wanted).collect();
        // HAProxy's METH_GET is for HEAD, too.
        found.extend((wanted == "GET").then_some("HEAD"));
        (!found.is_empty()).then_some(found)
    };
    match condition {
        ["unless", word] => of(word),
        ["if", word] => {
            if let Some(word) = word.strip_prefix('!') {
                return of(word);
            }
            let not = of(word)?;
            Some(all.into_iter().filter(|method| !not.contains(method)).collect())
        }
        _ => None,
    }
}

fn backend(
    reading: &Reading<'_>,
    section: &Section<'_>,
    defaults: &Settings,
    form: &mut Form,
) -> Route {
    let named = name(section.name);
    let mut settings = defaults.clone();
    let mut upstream = Upstream { name: named.clone(), ..Upstream::default() };
    let mut route = Route { name: named.clone(), upstream: named, ..Route::default() };
    let mut shared = Checks::default();
    for line in &section.lines {
        let at = reading.at(line.span);
        match line.word(0) {
            "bind" => bind(line.word(1), form),
            "server" => server(reading, line, &mut shared, &mut upstream),
            "default-server" => parameters(reading, line, 1, &mut shared, &mut upstream.notes),
            _ if setting(reading, line, &mut settings, &mut route.notes) => {}
            _ => route.notes.lost(at, format!("`{}`.", short(&line.words.join(" ")))),
        }
    }
    upstream.connect_timeout = settings.connect;
    upstream.response_timeout = settings.server;
    upstream.idle_timeout = settings.server;
    upstream.max_wait = settings.queue.or(settings.connect);
    upstream.max_requests = Some(shared.places).filter(|places| *places > 0);
    let at = reading.at(section.span);
    if let Some((how, at)) = &settings.balance {
        match balance(how, *at) {
            Some(feature) => upstream.features.push(feature),
            None => upstream.notes.lost(*at, format!("`balance {}`.", short(how))),
        }
    }
    if settings.balance.is_none() && upstream.endpoints.len() > 1 {
        upstream.features.extend(balance("roundrobin", at));
    }
    match settings.check.clone().filter(|_| shared.on) {
        Some(path) => {
            let health = Health {
                path,
                interval: shared.interval,
                healthy_after: shared.rise,
                unhealthy_after: shared.fall,
                ..Health::default()
            };
            upstream.features.push(health.feature(at));
        }
        None if shared.on => upstream.notes.lost(at, "`check`: that a server accepts connections."),
        None => {}
    }
    if let Some(failures) = shared.ejection {
        let ejection = Ejection { failures, base: None, max: None, percent: None };
        upstream.features.extend(ejection.feature(at));
    }
    if let Some(version) = shared.header {
        upstream.features.push(Feature { key: "proxyProtocol", value: Tree::own(version), at });
    }
    retry(&settings, &mut route);
    form.upstreams.push(upstream);
    route
}

fn server(reading: &Reading<'_>, line: &Line<'_>, shared: &mut Checks, upstream: &mut Upstream) {
    let at = reading.at(line.span);
    let address = line.word(2);
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse().unwrap_or(0))),
        None => (address, None),
    };
    let secure = line.words.contains(&"ssl");
    match url(host.trim_start_matches('[').trim_end_matches(']'), port, secure) {
        Some(url) => {
            let weight = line.words.iter().skip_while(|word| **word != "weight").nth(1);
            let weight = weight.and_then(|weight| weight.parse().ok());
            upstream.endpoints.push(Endpoint { weight, ..Endpoint::new(url) });
        }
        None => upstream.notes.lost(at, format!("the server `{}`.", short(address))),
    }
    parameters(reading, line, 3, shared, &mut upstream.notes);
}

/// The parameters of a server, from the word `first` on.
fn parameters(
    reading: &Reading<'_>,
    line: &Line<'_>,
    first: usize,
    shared: &mut Checks,
    notes: &mut Notes,
) {
    let at = reading.at(line.span);
    let mut words = line.words.iter().skip(first);
    while let Some(word) = words.next() {
        let mut count = || words.next().and_then(|word| word.parse::<u64>().ok());
        match *word {
            "check" => shared.on = true,
            "send-proxy" => shared.header = Some("v1"),
            "send-proxy-v2" => shared.header = Some("v2"),
            "ssl" | "resolvers" => {}
            "inter" => shared.interval = words.next().and_then(|word| duration(word, Some("ms"))),
            "fall" => shared.fall = count(),
            "rise" => shared.rise = count(),
            "maxconn" => shared.places = shared.places.saturating_add(count().unwrap_or(0)),
            "error-limit" => shared.ejection = count(),
            "weight" => drop(words.next()),
            "verify" | "ca-file" | "sni" | "crt" => {
                notes.lost(at, format!("`{word}`: see `tls` of an upstream."));
                words.next();
            }
            "observe" | "on-error" | "cookie" | "init-addr" => {
                notes.lost(at, format!("`{word}` of a server."));
                words.next();
            }
            word => notes.lost(at, format!("`{}` of a server.", short(word))),
        }
    }
}

fn retry(settings: &Settings, route: &mut Route) {
    let mut notes = Notes::default();
    let mut taken = Vec::new();
    let mut statuses = Vec::new();
    let conditions: Vec<&str> = match settings.retry_on.as_slice() {
        [] => vec!["conn-failure"],
        some => some.iter().map(String::as_str).collect(),
    };
    for word in conditions {
        match word {
            "none" | "0rtt-rejected" => {}
            "conn-failure" => taken.push(codes::REFUSED),
            "empty-response" => taken.push(codes::LOST),
            "junk-response" => taken.push(codes::INVALID),
            "response-timeout" => taken.push(codes::SLOW),
            "all-retryable-errors" => {
                taken.extend([codes::REFUSED, codes::LOST, codes::INVALID, codes::SLOW]);
                statuses.extend([500, 502, 503, 504]);
            }
            word => match word.parse() {
                Ok(status @ 400..=599) => statuses.push(status),
                _ => notes.lost(settings.retry_at, format!("retries on `{}`.", short(word))),
            },
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    taken.sort_unstable();
    taken.dedup();
    let attempts = settings.retries.unwrap_or(RETRIES).saturating_add(1);
    if attempts > 1 && !statuses.is_empty() {
        let statuses = statuses.into_iter().map(Status::One).collect();
        let (code, retryable) = (RETRIABLE.to_owned(), Some(Retryable::Yes));
        route.classify.push(Rule { statuses, code, retryable, ..Rule::default() });
        taken.push(RETRIABLE);
    }
    if attempts < 2 || taken.is_empty() {
        route.notes.0.append(&mut notes.0);
        return;
    }
    if settings.retries.is_none() {
        notes.told("HAProxy's own number of retries.");
    }
    let when = settings.methods.as_ref().map(|methods| {
        let methods: Vec<String> = methods.iter().map(|method| format!("'{method}'")).collect();
        format!(
            "step.input.method in [{}] || middleware.result.code == '{}'",
            methods.join(", "),
            codes::REFUSED
        )
    });
    let mut policy = Policy {
        codes: taken.into_iter().map(str::to_owned).collect(),
        attempts,
        ..Policy::default()
    };
    if when.is_none() {
        policy.tell_of_methods("HAProxy", &[]);
    }
    route.layers.push(Layer::Retry(Retry {
        notes,
        policies: vec![policy],
        when,
        ..Retry::default()
    }));
}
