//! tower: the layers of each `ServiceBuilder`, from the outside in, in Rust code.

use super::form::{
    Backoff, Form, Layer, Match, Notes, Policy, Retry, Route, Upstream, name, unique,
};
use super::read::{Reading, short};
use super::tokens::{Style, Token, tokens};
use super::write::duration;
use super::yaml::Tree;
use crate::language::temporal::Span as Time;
use crate::source::Span;

/// Names for how often a policy retries, and for the waits of a backoff.
const RETRIES: [&str; 6] =
    ["max_attempts", "max_retries", "attempts", "retries", "remaining_attempts", "remaining"];
const BASE: [&str; 5] = ["base", "base_delay", "initial", "initial_delay", "min"];
const CAP: [&str; 4] = ["cap", "max_delay", "max_backoff", "max"];

/// How many tokens the arguments of a layer may have. Behind more of them the chain is not read.
const MAX_ARGUMENTS: usize = 2000;

/// What the code says of its policy, wherever that stands.
#[derive(Debug, Default)]
struct Found {
    retries: Option<u64>,
    base: Option<Time>,
    cap: Option<Time>,
    jitter: bool,
}

/// A layer: its name, its arguments, its place.
#[derive(Debug)]
struct Laid<'t> {
    name: &'t str,
    arguments: &'t [Token],
    span: Span,
}

pub(super) fn read(reading: &Reading<'_>, whole: Span, text: &str) -> Form {
    let tokens = tokens(whole, text, Style { hash: false, single: false });
    let found = Found::of(&tokens);
    let mut form = Form::default();
    let begins = |place: &usize| {
        tokens.get(*place).and_then(Token::word) == Some("ServiceBuilder")
            && tokens.get(place + 3).and_then(Token::word) == Some("new")
    };
    let starts: Vec<usize> = (0..tokens.len()).filter(begins).collect();
    if starts.is_empty() {
        let message = "there is no `ServiceBuilder::new()` of tower in this";
        reading.not_this(whole, message, "give Rust code with a `ServiceBuilder` and its layers");
    }
    for start in &starts {
        if form.is_full() {
            break;
        }
        let before = tokens.get(..*start).unwrap_or_default();
        let assigned = before.last().is_some_and(|token| token.is('='));
        let named = before.len().checked_sub(2).and_then(|at| before.get(at)).and_then(Token::word);
        let named = named.filter(|_| assigned).unwrap_or("service");
        let taken: Vec<String> = form.routes.iter().map(|route| route.name.clone()).collect();
        let named = unique(name(named), &taken);
        let mut route = Route { name: named.clone(), upstream: named.clone(), ..Route::default() };
        if starts.len() > 1 {
            let path_prefix = Some(format!("/{named}"));
            route.matches = Match { path_prefix, ..Match::default() };
        }
        let mut upstream =
            Upstream { name: named, response_timeout: Some(Time::ZERO), ..Upstream::default() };
        let chain = chain(tokens.get(*start + 4..).unwrap_or_default());
        for laid in &chain {
            laid.read(reading, &found, &mut route, &mut upstream);
        }
        form.upstreams.push(upstream);
        form.routes.push(route);
    }
    form
}

/// The layers behind `ServiceBuilder::new`.
fn chain(tokens: &[Token]) -> Vec<Laid<'_>> {
    let mut chain = Vec::new();
    let mut rest = tokens.get(call(tokens)..).unwrap_or_default();
    while let [dot, method, open, ..] = rest
        && dot.is('.')
        && open.is('(')
        && let Some(name) = method.word()
    {
        let after = rest.get(2..).unwrap_or_default();
        let length = call(after);
        let arguments = after.get(1..length.saturating_sub(1)).unwrap_or_default();
        if matches!(name, "service" | "service_fn") {
            break;
        }
        chain.push(Laid { name, arguments, span: method.span });
        rest = after.get(length..).unwrap_or_default();
    }
    chain
}

/// The number of tokens of the parentheses with which `tokens` begin.
fn call(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().take(MAX_ARGUMENTS) {
        depth += usize::from(token.is('('));
        if token.is(')') {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 {
            return place + 1;
        }
    }
    tokens.len()
}

impl Found {
    fn of(tokens: &[Token]) -> Self {
        let mut found = Self::default();
        for (place, token) in tokens.iter().enumerate() {
            let Some(word) = token.word() else { continue };
            let after = tokens.get(place + 2..).unwrap_or_default();
            let mark = |mark| tokens.get(place + 1).is_some_and(|next| next.is(mark));
            if RETRIES.contains(&word) && (mark(':') || mark('=')) {
                found.retries = found.retries.or_else(|| whole(after.first()?));
            }
            if mark('=') || mark(':') {
                if BASE.contains(&word) {
                    found.base = found.base.or_else(|| time(after));
                }
                if CAP.contains(&word) {
                    found.cap = found.cap.or_else(|| time(after));
                }
            }
            found.jitter |= matches!(word, "rand" | "random" | "jitter" | "jitter_ms");
        }
        found
    }

    fn retry(&self, reading: &Reading<'_>, span: Span) -> Retry {
        let mut notes = Notes::default();
        let retries = self.retries.unwrap_or_else(|| {
            notes.lost(reading.at(span), "the number of retries, which is not written as one: 3.");
            3
        });
        notes.told("Who fails says whether a retry may help: `retryable` is by the failure and the method.");
        let backoff = self.base.map(|initial| Backoff {
            initial,
            rate: 2.0,
            max: self.cap,
            jitter: self.jitter.then_some("full"),
            ..Backoff::default()
        });
        let policy = Policy {
            codes: vec!["*".to_owned()],
            retryable: true,
            attempts: retries.saturating_add(1),
            backoff,
            ..Policy::default()
        };
        Retry { notes, policies: vec![policy], ..Retry::default() }
    }
}

impl Laid<'_> {
    fn read(
        &self,
        reading: &Reading<'_>,
        found: &Found,
        route: &mut Route,
        upstream: &mut Upstream,
    ) {
        let at = reading.at(self.span);
        let (layer, arguments) = match (self.name, self.arguments) {
            // `.layer(TimeoutLayer::new(…))`
            ("layer", [layer, rest @ ..]) => {
                let open =
                    rest.iter().position(|token| token.is('(')).map_or(rest.len(), |at| at + 1);
                (layer.word().unwrap_or_default(), rest.get(open..).unwrap_or_default())
            }
            (name, arguments) => (name, arguments),
        };
        let other = |name, with, waits: &str| {
            let mut notes = Notes::default();
            notes.told(format!("tower lets a caller wait for as long as that takes: see {waits}."));
            Layer::Other { name, with, notes }
        };
        match layer {
            "TimeoutLayer" | "timeout" => {
                let Some(bound) = time(arguments) else {
                    return reading.wrong(
                        self.span,
                        "a Timeout wants a `Duration::from_secs(…)` or `from_millis(…)`",
                    );
                };
                let within = route.layers.iter().any(|layer| matches!(layer, Layer::Retry(_)));
                if within && bound > Time::ZERO {
                    upstream.response_timeout = Some(bound);
                    upstream.notes.told(
                        "`responseTimeout` is the Timeout within the Retry: each attempt's own.",
                    );
                } else {
                    route.layers.push(Layer::Timeout { duration: bound, notes: Notes::default() });
                }
            }
            "RetryLayer" | "retry" => {
                route.layers.push(Layer::Retry(found.retry(reading, self.span)));
            }
            "ConcurrencyLimitLayer" | "GlobalConcurrencyLimitLayer" | "concurrency_limit" => {
                match arguments
                    .first()
                    .and_then(whole)
                    .filter(|most| (1..=1_000_000).contains(most))
                {
                    Some(most) => {
                        let with = vec![("max", Tree::word(most))];
                        route.layers.push(other(
                            "mwl-proxy/concurrency-limit",
                            with,
                            "`queue` and `wait`",
                        ));
                    }
                    None => route
                        .notes
                        .lost(at, format!("`{}` of something that is no number.", short(layer))),
                }
            }
            "RateLimitLayer" | "rate_limit" => {
                let per = arguments.get(2..).and_then(time);
                match arguments
                    .first()
                    .and_then(whole)
                    .filter(|rate| *rate > 0)
                    .zip(per.filter(|per| *per > Time::ZERO))
                {
                    Some((rate, per)) => {
                        let with = vec![("rate", Tree::word(rate)), ("per", duration(per))];
                        route.layers.push(other("mwl-proxy/rate-limit", with, "`wait`"));
                    }
                    None => route
                        .notes
                        .lost(at, format!("`{}` of something that is no number.", short(layer))),
                }
            }
            layer => route.notes.lost(at, format!("the layer `{}`.", short(layer))),
        }
    }
}

fn whole(token: &Token) -> Option<u64> {
    let number = token.number().filter(|number| number.fract() == 0.0 && *number < 1e9)?;
    format!("{number}").parse().ok()
}

/// Reads `Duration::from_secs(2)` at the beginning of `tokens`.
fn time(tokens: &[Token]) -> Option<Time> {
    let place = tokens.iter().take(8).position(|token| token.word() == Some("Duration"))?;
    let [_, _, _, unit, _, number, ..] = tokens.get(place..)? else { return None };
    let nanos = match unit.word()? {
        "from_secs" | "from_secs_f64" | "from_secs_f32" => 1e9,
        "from_millis" => 1e6,
        "from_micros" => 1e3,
        "from_nanos" => 1.0,
        "from_mins" => 6e10,
        _ => return None,
    };
    let number = number.number().filter(|number| *number < 1e9)?;
    #[expect(clippy::cast_possible_truncation, reason = "below 10^20")]
    Some(Time::from_nanos((number * nanos) as i128))
}
