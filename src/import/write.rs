//! Writes the neutral form as our configuration.

use super::form::{
    At, Backoff, Catch, Edits, Endpoint, Feature, Form, Layer, Match, Note, Notes, Policy, Retry,
    Retryable, Route, Rule, Status, Step, Upstream, unique,
};
use super::yaml::{Entry, Item, Tree};
use crate::language::temporal::Span;

/// Where clients connect if the source says nothing.
const LISTENER: &str = "127.0.0.1:8080";
/// Where an upstream answers if the source says nothing.
const ENDPOINT: &str = "http://127.0.0.1:3000";
/// The largest weight of an endpoint.
const MAX_WEIGHT: u64 = 1000;
/// The longest duration of an upstream's key.
const LONGEST: i128 = 365 * 86_400 * 1_000_000_000;

/// Writes, and collects what the source asks for and has no equal.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) lost: Vec<(At, String)>,
}

impl Writer {
    /// The configuration, below the lines of `head`.
    pub(super) fn document(&mut self, form: &Form, head: Vec<String>) -> String {
        let mut comments = head;
        comments.extend(self.notes(&form.notes));
        let listeners = match form.listeners.as_slice() {
            [] => vec![LISTENER.to_owned()],
            some => some.to_vec(),
        };
        let listeners =
            listeners.iter().map(|address| Tree::map([("address", Tree::own(address))]));
        let mut upstreams: Vec<Entry> =
            form.upstreams.iter().map(|upstream| self.upstream(upstream)).collect();
        let mut known: Vec<&str> = form.upstreams.iter().map(|one| one.name.as_str()).collect();
        for route in &form.routes {
            if !known.contains(&route.upstream.as_str()) {
                known.push(&route.upstream);
                let missing = Upstream { name: route.upstream.clone(), ..Upstream::default() };
                upstreams.push(self.upstream(&missing));
            }
        }
        let mut names = Vec::new();
        let mut routes = Vec::new();
        for route in &form.routes {
            let name = unique(route.name.clone(), &names);
            names.push(name.clone());
            routes.push(self.route(route, &name));
        }
        let root = Tree::Map(vec![
            Entry::new("listeners", Tree::list(listeners)).below(comments),
            Entry::block("upstreams", Tree::Map(upstreams)),
            Entry::block("routes", Tree::List(routes)),
        ]);
        root.document()
    }

    /// The comments of notes.
    fn notes(&mut self, Notes(notes): &Notes) -> Vec<String> {
        let mut said = Vec::new();
        let mut notes: Vec<&Note> = notes.iter().collect();
        notes.sort_by_key(|note| (note.lost, note.at));
        for Note { at, text, lost } in notes {
            if *lost {
                self.lost.push((*at, text.clone()));
                said.push(format!("No equal (line {}): {text}", at.line));
            } else {
                said.push(text.clone());
            }
        }
        said
    }

    fn upstream(&mut self, upstream: &Upstream) -> Entry {
        let mut comments = self.notes(&upstream.notes);
        let mut entries = Vec::new();
        let endpoints = if upstream.endpoints.is_empty() {
            let note = format!("The source does not say where `{}` answers.", upstream.name);
            Entry::new("endpoints", Tree::list([Tree::own(ENDPOINT)])).below(vec![note])
        } else {
            let items = upstream.endpoints.iter().map(|endpoint| self.endpoint(endpoint));
            Entry::new("endpoints", Tree::List(items.collect()))
        };
        entries.push(endpoints);
        if upstream.http2 {
            entries.push(Entry::new("protocol", Tree::own("http2")));
        }
        let shortest = Span::from_nanos(1_000_000);
        let durations = [
            ("connectTimeout", upstream.connect_timeout, shortest),
            ("responseTimeout", upstream.response_timeout, Span::ZERO),
            ("idleTimeout", upstream.idle_timeout, shortest),
            ("keepAlive", upstream.keep_alive, Span::ZERO),
            ("retryAfterMax", upstream.retry_after_max, Span::ZERO),
            ("maxWait", upstream.max_wait, Span::ZERO),
        ];
        for (key, value, least) in durations {
            let within = |span: Span| span.clamp(least, Span::from_nanos(LONGEST));
            entries.extend(value.map(|value| Entry::new(key, duration(within(value)))));
        }
        if let Some(most) = upstream.max_requests {
            entries.push(Entry::new("maxRequests", Tree::word(most.clamp(1, 1_000_000))));
        }
        let mut written: Vec<&str> = Vec::new();
        for Feature { key, value, at } in &upstream.features {
            if written.contains(key) {
                let again = format!("another `{key}`.");
                self.lost.push((*at, again.clone()));
                comments.push(format!("No equal (line {}): {again}", at.line));
            } else {
                written.push(key);
                entries.push(Entry::new(*key, value.clone()));
            }
        }
        Entry::block(upstream.name.as_str(), Tree::Map(entries)).below(comments)
    }

    fn endpoint(&mut self, endpoint: &Endpoint) -> Item {
        let comments = self.notes(&endpoint.notes);
        let url = Tree::text(&endpoint.url);
        let value = match endpoint.weight.filter(|weight| *weight != 1) {
            Some(weight) => {
                let weight = Tree::word(weight.clamp(1, MAX_WEIGHT));
                Tree::map([("url", url), ("weight", weight)])
            }
            None => url,
        };
        Item::new(comments, value)
    }

    fn route(&mut self, route: &Route, name: &str) -> Item {
        let comments = self.notes(&route.notes);
        let mut entries = vec![Entry::new("name", Tree::own(name))];
        entries.extend(matches(&route.matches));
        entries.push(Entry::new("upstream", Tree::own(&route.upstream)));
        let rewrite = [("pathPrefix", &route.rewrite_prefix), ("host", &route.rewrite_host)];
        let rewrite = rewrite.into_iter();
        let rewrite: Vec<_> =
            rewrite.filter_map(|(key, value)| Some((key, Tree::text(value.as_deref()?)))).collect();
        if !rewrite.is_empty() {
            entries.push(Entry::new("rewrite", Tree::map(rewrite)));
        }
        entries.extend(edits("requestHeaders", &route.request_headers));
        entries.extend(edits("responseHeaders", &route.response_headers));
        if !route.classify.is_empty() {
            let rules = route.classify.iter().map(|rule| self.rule(rule)).collect();
            entries.push(Entry::block("classify", Tree::List(rules)));
        }
        if !route.layers.is_empty() {
            let layers = route.layers.iter().map(|layer| self.layer(layer)).collect();
            entries.push(Entry::block("middleware", Tree::List(layers)));
        }
        if !route.catch.is_empty() {
            let clauses = route.catch.iter().map(|clause| self.catch(clause)).collect();
            entries.push(Entry::block("catch", Tree::List(clauses)));
        }
        if !route.steps.is_empty() {
            let steps = route.steps.iter().map(|step| self.step(step)).collect();
            entries.push(Entry::block("steps", Tree::Map(steps)));
        }
        Item::new(comments, Tree::Map(entries))
    }

    fn rule(&mut self, rule: &Rule) -> Item {
        let mut entries = Vec::new();
        if !rule.statuses.is_empty() {
            let statuses = rule.statuses.iter().map(|status| match status {
                Status::One(status) => Tree::word(status),
                Status::Class(digit) => Tree::own(&format!("{digit}xx")),
            });
            entries.push(Entry::new("status", Tree::list(statuses)));
        }
        entries.extend(rule.when.as_ref().map(|when| Entry::new("when", expression(when))));
        entries.push(Entry::new("code", Tree::own(&rule.code)));
        let retryable = rule.retryable.map(|retryable| match retryable {
            Retryable::Yes => Tree::word(true),
            Retryable::No => Tree::word(false),
            Retryable::ByMethod => Tree::own("byMethod"),
        });
        entries.extend(retryable.map(|value| Entry::new("retryable", value)));
        Item::new(self.notes(&rule.notes), Tree::Map(entries))
    }

    fn layer(&mut self, layer: &Layer) -> Item {
        let (name, notes, mut phases) = match layer {
            Layer::Timeout { duration: bound, notes } => {
                let with = Tree::map([("duration", duration(*bound))]);
                (provider("mwl/timeout"), notes, vec![Entry::new("onEntry", with_of(with))])
            }
            Layer::Retry(retry) => (provider("mwl/retry"), &retry.notes, self.retry(retry)),
            Layer::Other { name, with, notes, .. } => {
                let with = Tree::map(with.iter().map(|(key, value)| (*key, value.clone())));
                (provider(name), notes, vec![Entry::new("onEntry", with_of(with))])
            }
        };
        let comments = self.notes(notes);
        phases.insert(0, Entry::block("provider", Tree::own(&name)));
        Item::new(comments, Tree::Map(phases))
    }

    fn retry(&mut self, retry: &Retry) -> Vec<Entry> {
        let policies = retry.policies.iter().map(|policy| self.policy(policy)).collect();
        let with = Tree::Map(vec![Entry::block("policies", Tree::List(policies))]);
        let mut phases = vec![Entry::block("onEntry", Tree::Map(vec![Entry::block("with", with)]))];
        let mut ascent = Vec::new();
        ascent.extend(retry.when.as_ref().map(|when| Entry::new("when", expression(when))));
        ascent.extend(retry.delay.as_ref().map(|delay| {
            Entry::block("with", Tree::Map(vec![Entry::block("delay", expression(delay))]))
        }));
        ascent.extend(retry.code.as_ref().map(|code| Entry::new("code", expression(code))));
        if !ascent.is_empty() {
            phases.push(Entry::block("onFailure", Tree::Map(ascent)));
        }
        phases
    }

    fn policy(&mut self, policy: &Policy) -> Item {
        let mut matcher = matcher(&policy.codes, &policy.types);
        if policy.retryable {
            matcher.push(("retryable", Tree::word(true)));
        }
        let attempts = Tree::word(policy.attempts.clamp(1, u64::from(u32::MAX)));
        let mut entries =
            vec![Entry::new("match", Tree::map(matcher)), Entry::new("attempts", attempts)];
        let backoff = policy.backoff.as_ref().filter(|backoff| backoff.initial > Span::ZERO);
        if let Some(backoff) = backoff.filter(|_| policy.attempts > 1) {
            let comments = self.notes(&backoff.notes);
            entries.push(Entry::new("backoff", schedule(backoff)).below(comments));
        }
        Item::new(self.notes(&policy.notes), Tree::Map(entries))
    }

    fn catch(&mut self, clause: &Catch) -> Item {
        let matcher = matcher(&clause.codes, &clause.types);
        let entries = [("match", Tree::map(matcher)), ("next", Tree::own(&clause.next))];
        Item::new(self.notes(&clause.notes), Tree::map(entries))
    }

    fn step(&mut self, step: &Step) -> Entry {
        let comments = self.notes(&step.notes);
        Entry::new(step.name.as_str(), Tree::Map(step.fields.clone())).below(comments)
    }
}

/// The URI of a middleware.
fn provider(name: &str) -> String {
    format!("mwl:provider.middleware/{name}/v1")
}

/// The members of a matcher.
fn matcher(codes: &[String], types: &[&'static str]) -> Vec<(&'static str, Tree)> {
    let mut matcher = Vec::new();
    if !codes.is_empty() {
        matcher.push(("codes", Tree::list(codes.iter().map(|code| Tree::own(code)))));
    }
    if !types.is_empty() {
        matcher.push(("types", Tree::texts(types.iter().copied())));
    }
    matcher
}

fn with_of(with: Tree) -> Tree {
    Tree::map([("with", with)])
}

pub(super) fn duration(span: Span) -> Tree {
    Tree::own(&span.to_string())
}

fn expression(text: &str) -> Tree {
    Tree::own(&format!("{{{{ {text} }}}}"))
}

fn schedule(backoff: &Backoff) -> Tree {
    let mut entries = vec![("initial", duration(backoff.initial))];
    if backoff.rate > 1.0 {
        entries.push(("rate", Tree::word(backoff.rate)));
    }
    entries.extend(backoff.max.map(|max| ("max", duration(max))));
    entries.extend(backoff.jitter.map(|jitter| ("jitter", Tree::own(jitter))));
    Tree::map(entries)
}

fn matches(matches: &Match) -> Option<Entry> {
    let Match { hosts, path, path_prefix, methods, headers, query } = matches;
    let list = |texts: &[String]| Tree::texts(texts.iter().map(String::as_str));
    let pairs = |pairs: &[(String, Option<String>)]| {
        let value = |value: &Option<String>| {
            value.as_deref().map_or_else(|| Tree::word("null"), Tree::text)
        };
        Tree::map(pairs.iter().map(|(name, wanted)| (name.as_str(), value(wanted))))
    };
    let mut entries = Vec::new();
    if !hosts.is_empty() {
        entries.push(("hosts", list(hosts)));
    }
    entries.extend(path.as_ref().map(|path| ("path", Tree::text(path))));
    entries.extend(path_prefix.as_ref().map(|prefix| ("pathPrefix", Tree::text(prefix))));
    if !methods.is_empty() {
        entries.push(("methods", list(methods)));
    }
    if !headers.is_empty() {
        entries.push(("headers", pairs(headers)));
    }
    if !query.is_empty() {
        entries.push(("query", pairs(query)));
    }
    (!entries.is_empty()).then(|| Entry::new("match", Tree::map(entries)))
}

fn edits(key: &str, edits: &Edits) -> Option<Entry> {
    let Edits { set, append, remove } = edits;
    let pairs = |pairs: &[(String, String)]| {
        Tree::map(pairs.iter().map(|(name, value)| (name.as_str(), Tree::text(value))))
    };
    let mut entries = Vec::new();
    if !set.is_empty() {
        entries.push(("set", pairs(set)));
    }
    if !append.is_empty() {
        entries.push(("append", pairs(append)));
    }
    if !remove.is_empty() {
        entries.push(("remove", Tree::texts(remove.iter().map(String::as_str))));
    }
    (!entries.is_empty()).then(|| Entry::new(key, Tree::map(entries)))
}
