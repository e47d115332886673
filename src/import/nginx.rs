//! NGINX: `upstream`, and `proxy_pass` with `proxy_next_upstream`.

use super::form::{At, Endpoint, Form, Match, Notes, Route, Upstream, name};
use super::nginx_next::{ErrorPage, Next};
use super::nginx_syntax::{Directive, parse};
use super::nginx_upstream::upstream;
use super::read::{Reading, duration, is_host, is_path, short, url};
use crate::language::temporal::Span as Time;
use crate::source::Span;

/// NGINX's own bound for connecting, and for the pauses of a response.
const MINUTE: Time = Time::from_nanos(60_000_000_000);

/// Directives that are the proxy's own business, or change nothing here.
const OWN: [&str; 16] = [
    "listen",
    "server_name",
    "proxy_http_version",
    "access_log",
    "error_log",
    "proxy_request_buffering",
    "proxy_buffering",
    "proxy_buffer_size",
    "proxy_buffers",
    "proxy_redirect",
    "client_max_body_size",
    "keepalive_timeout",
    "proxy_socket_keepalive",
    "default_type",
    "root",
    "index",
];

/// How many directives of a name a place hands to those below it. NGINX has no bound; nobody writes so many.
const MAX_INHERITED: usize = 200;

/// What holds at a place, and below it where nothing else is said.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    connect: Option<Time>,
    send: Option<Time>,
    read: Option<Time>,
    pub(super) next: Next,
    headers: Vec<(String, String, At)>,
    hosts: Vec<String>,
}

/// Reads one file.
pub(super) struct Reader<'r> {
    reading: &'r Reading<'r>,
    form: Form,
    /// `location`s that answer by themselves, for `error_page`.
    answers: Vec<(String, u16)>,
}

pub(super) fn read(reading: &Reading<'_>, whole: Span, text: &str) -> Form {
    let directives = parse(reading, whole, text);
    let mut reader = Reader { reading, form: Form::default(), answers: Vec::new() };
    reader.upstreams(&directives);
    reader.answers(&directives);
    reader.walk(&directives, &Settings::default(), None);
    let form = reader.form;
    if form.upstreams.is_empty() && form.routes.is_empty() {
        let message = "there is neither an `upstream` nor a `proxy_pass` of NGINX in this";
        reading.not_this(whole, message, "give a configuration of NGINX, or blocks of one");
    }
    form
}

impl Reader<'_> {
    fn upstreams(&mut self, directives: &[Directive]) {
        for directive in directives {
            let block = directive.block.as_deref().unwrap_or_default();
            if directive.name() == "upstream" {
                let made = upstream(self.reading, directive, block);
                self.form.upstreams.push(made);
            } else {
                self.upstreams(block);
            }
        }
    }

    fn answers(&mut self, directives: &[Directive]) {
        for directive in directives {
            let block = directive.block.as_deref().unwrap_or_default();
            let returned = block.iter().find(|inner| inner.name() == "return");
            let status = returned.and_then(|inner| inner.word(1).parse().ok());
            if let Some(status) = status.filter(|_| directive.name() == "location") {
                let path = directive.words.last().cloned().unwrap_or_default();
                self.answers.push((path, status));
            }
            self.answers(block);
        }
    }

    /// Reads the directives of a block, whose `location` is `place`.
    fn walk(&mut self, directives: &[Directive], around: &Settings, place: Option<&Directive>) {
        let mut settings = around.clone();
        let mut own_headers = false;
        for directive in directives {
            self.set(directive, &mut settings, &mut own_headers);
        }
        let first = self.form.routes.len();
        let mut passed = false;
        for directive in directives {
            let block = directive.block.as_deref();
            match (directive.name(), block) {
                _ if self.form.is_full() => break,
                ("location", Some(block)) => {
                    self.walk(block, &settings, Some(directive));
                }
                ("server", Some(block)) => self.server(block, &settings),
                ("http" | "stream", Some(block)) => self.walk(block, &settings, None),
                ("proxy_pass", _) => {
                    passed = true;
                    self.route(directive, &settings, place);
                }
                _ => {}
            }
        }
        if place.is_none() {
            self.sort(first);
        }
        if passed {
            self.unread(directives, first);
        }
    }

    fn server(&mut self, block: &[Directive], settings: &Settings) {
        let mut settings = settings.clone();
        settings.hosts.clear();
        for directive in block {
            match directive.name() {
                "server_name" => {
                    let hosts =
                        directive.arguments().iter().filter(|host| is_host(host) && *host != "_");
                    settings.hosts.extend(hosts.cloned());
                }
                "listen" => self.listen(directive.word(1)),
                _ => {}
            }
        }
        self.walk(block, &settings, None);
    }

    fn listen(&mut self, text: &str) {
        let address = match text.parse::<u16>() {
            Ok(port) => format!("0.0.0.0:{port}"),
            Err(_) => text.replacen("*:", "0.0.0.0:", 1),
        };
        let valid = address.parse::<std::net::SocketAddr>().is_ok();
        if valid && !self.form.listeners.contains(&address) {
            self.form.listeners.push(address);
        }
    }

    /// Applies a directive that is inherited.
    fn set(&self, directive: &Directive, settings: &mut Settings, own_headers: &mut bool) {
        let first = directive.word(1);
        let reading = self.reading;
        let at = reading.at(directive.span);
        let time = || {
            let read = duration(first, Some("s"));
            if read.is_none() {
                let message = format!(
                    "`{}` is `{}`; wanted: a time such as `10s`",
                    directive.name(),
                    short(first)
                );
                reading.wrong(directive.span, message);
            }
            read
        };
        let next = &mut settings.next;
        match directive.name() {
            "proxy_connect_timeout" => settings.connect = time(),
            "proxy_send_timeout" => settings.send = time(),
            "proxy_read_timeout" => settings.read = time(),
            "proxy_next_upstream" => next.on = Some((directive.arguments().to_vec(), at)),
            "proxy_next_upstream_tries" => {
                if let Ok(tries) = first.parse() {
                    next.tries = tries;
                } else {
                    let message = format!("`{}` is no number of tries", short(first));
                    reading.wrong(directive.span, message);
                }
            }
            "proxy_next_upstream_timeout" => next.within = time(),
            "proxy_intercept_errors" => next.intercepts = first == "on",
            "error_page" if next.pages.len() < MAX_INHERITED => {
                next.pages.push(self.page(directive));
            }
            "proxy_set_header" if settings.headers.len() < MAX_INHERITED => {
                // A level that sets one does not inherit any.
                if !*own_headers {
                    settings.headers.clear();
                    *own_headers = true;
                }
                settings.headers.push((first.to_owned(), directive.word(2).to_owned(), at));
            }
            _ => {}
        }
    }

    fn page(&self, directive: &Directive) -> ErrorPage {
        let at = self.reading.at(directive.span);
        let uri = directive.words.last().map_or("", String::as_str);
        let answered = self.answers.iter().find(|(path, _)| path == uri).map(|(_, status)| *status);
        let mut page =
            ErrorPage { at, statuses: Vec::new(), answer: answered, whole: answered.is_some() };
        for word in directive.arguments() {
            if let Some(status) = word.strip_prefix('=') {
                page.answer = status.parse().ok().or(page.answer);
            } else {
                page.statuses.extend(word.parse::<u16>().ok());
            }
        }
        page.answer = page.answer.filter(|status| (200..600).contains(status));
        page
    }

    fn route(&mut self, pass: &Directive, settings: &Settings, place: Option<&Directive>) {
        let reading = self.reading;
        let at = reading.at(pass.span);
        let target = pass.word(1);
        let (secure, rest) = match (target.strip_prefix("http://"), target.strip_prefix("https://"))
        {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            _ => {
                let text = format!("`proxy_pass {}`.", short(target));
                return self.form.notes.lost(at, text);
            }
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at_checked(at).unwrap_or((rest, "")),
            None => (rest, ""),
        };
        let mut notes = Notes::default();
        let matches = self.place(place, settings, &mut notes);
        let known = self.form.upstreams.iter().any(|upstream| upstream.name == name(authority));
        if !known {
            let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
            let port = if port.is_empty() { None } else { Some(port.parse().unwrap_or(0)) };
            let Some(url) = url(host, port, secure) else {
                let text = format!("`proxy_pass {}`.", short(target));
                return self.form.notes.lost(at, text);
            };
            let endpoints = vec![Endpoint::new(url)];
            let made = Upstream { name: name(authority), endpoints, ..Upstream::default() };
            self.form.upstreams.push(made);
        }
        let upstream = self.timed(&name(authority), settings, secure && known);
        let servers = self.form.upstream(&upstream).map_or(1, |upstream| upstream.endpoints.len());
        let shown = matches.path.as_ref().or(matches.path_prefix.as_ref());
        let named = shown.map_or_else(|| authority.to_owned(), |path| format!("{authority}{path}"));
        let mut route = Route { name: name(&named), matches, upstream, notes, ..Route::default() };
        settings.next.apply(servers, &mut route);
        if is_path(path) && route.matches.path_prefix.is_some() {
            route.rewrite_prefix = Some(path.to_owned());
        } else if !path.is_empty() && path != "/" {
            route.notes.lost(at, format!("the path of `proxy_pass {}`.", short(target)));
        }
        fields(settings, &mut route);
        self.form.routes.push(route);
    }

    /// The upstream with the timeouts that hold here: another one of the same endpoints if a place before had others.
    fn timed(&mut self, base: &str, settings: &Settings, secure: bool) -> String {
        let read = settings.read.unwrap_or(MINUTE);
        let connect = settings.connect.unwrap_or(MINUTE);
        let send = settings.send.unwrap_or(MINUTE);
        let Some(upstream) = self.form.upstream(base) else { return base.to_owned() };
        let same = upstream.response_timeout.is_none_or(|time| time == read)
            && upstream.connect_timeout.is_none_or(|time| time == connect);
        let mut made = upstream.clone();
        made.response_timeout = Some(read);
        made.connect_timeout = Some(connect);
        made.idle_timeout = Some(read.max(send));
        if secure {
            for endpoint in &mut made.endpoints {
                endpoint.url = endpoint.url.replacen("http://", "https://", 1);
            }
        }
        if same {
            if read != send && upstream.response_timeout.is_none() {
                made.notes
                    .told("`idleTimeout` is the longer one of NGINX's send and read timeouts.");
            }
            *upstream = made;
            return base.to_owned();
        }
        let taken: Vec<String> = self.form.upstreams.iter().map(|one| one.name.clone()).collect();
        made.name = super::form::unique(base.to_owned(), &taken);
        made.notes.told(format!("The endpoints of `{base}`, with other timeouts."));
        let named = made.name.clone();
        self.form.upstreams.push(made);
        named
    }

    /// What a `location` matches.
    fn place(&self, place: Option<&Directive>, settings: &Settings, notes: &mut Notes) -> Match {
        let mut matches = Match { hosts: settings.hosts.clone(), ..Match::default() };
        let Some(place) = place else { return matches };
        let path = place.words.last().map_or("", String::as_str);
        match (place.word(1), is_path(path)) {
            ("=", true) => matches.path = Some(path.to_owned()),
            ("~" | "~*", _) | (_, false) => {
                notes.lost(
                    self.reading.at(place.span),
                    format!("the match of `location {}`.", short(&place.arguments().join(" "))),
                );
                notes.told("This route matches a field that nobody sends: say here which requests it is for.");
                matches.headers.push(("x-import-no-equal".to_owned(), None));
            }
            (_, true) => matches.path_prefix = Some(path.to_owned()).filter(|path| path != "/"),
        }
        matches
    }

    /// NGINX takes the longest prefix; the proxy the first route that matches.
    fn sort(&mut self, first: usize) {
        let routes = self.form.routes.get_mut(first..).unwrap_or_default();
        let rank = |route: &Route| {
            let length = route.matches.path_prefix.as_ref().map_or(0, String::len);
            (route.matches.path.is_none(), std::cmp::Reverse(length))
        };
        if !routes.is_sorted_by_key(rank) {
            routes.sort_by_key(rank);
            self.form.notes.told("NGINX takes the longest prefix, the proxy the first route that matches: longer ones stand first.");
        }
    }

    /// Notes the directives beside a `proxy_pass` that nothing has read.
    fn unread(&mut self, directives: &[Directive], first: usize) {
        let reading = self.reading;
        let Some(route) = self.form.routes.get_mut(first..).and_then(|routes| routes.last_mut())
        else {
            return;
        };
        for directive in directives {
            let known = directive.name().starts_with("proxy_next_upstream")
                || directive.block.is_some()
                || OWN.contains(&directive.name())
                || [
                    "proxy_pass",
                    "proxy_connect_timeout",
                    "proxy_send_timeout",
                    "proxy_read_timeout",
                    "proxy_intercept_errors",
                    "proxy_set_header",
                    "error_page",
                ]
                .contains(&directive.name());
            if !known {
                route.notes.lost(
                    reading.at(directive.span),
                    format!("`{}`.", short(&directive.words.join(" "))),
                );
            }
        }
    }
}

/// The fields that NGINX sets.
fn fields(settings: &Settings, route: &mut Route) {
    for (field, value, at) in &settings.headers {
        let lower = field.to_ascii_lowercase();
        match (lower.as_str(), value.as_str()) {
            ("host", "$host" | "$http_host") | ("connection" | "upgrade", _) => {}
            ("host", host) if is_host(host) => route.rewrite_host = Some(host.to_owned()),
            ("x-real-ip" | "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host", value)
                if value.starts_with('$') =>
            {
                route.notes.lost(*at, format!("the field `{field}`: see `forwarded:`."));
            }
            (_, value)
                if !value.contains('$') && super::headers::may_change(field, value, true) =>
            {
                route.request_headers.set.push((field.clone(), value.to_owned()));
            }
            _ => route.notes.lost(*at, format!("the field `{}`.", short(field))),
        }
    }
}
