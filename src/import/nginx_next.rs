//! NGINX's `proxy_next_upstream` and `error_page`.

use super::codes;
use super::form::{At, Catch, Layer, Notes, Policy, Retry, Retryable, Route, Rule, Status, Step};
use super::read::short;
use super::retry_on::RETRIABLE;
use crate::language::temporal::Span;

/// When the next server is asked, and what takes the place of an error.
#[derive(Clone, Debug, Default)]
pub(super) struct Next {
    pub(super) on: Option<(Vec<String>, At)>,
    /// 0: each server once.
    pub(super) tries: u64,
    pub(super) within: Option<Span>,
    pub(super) intercepts: bool,
    pub(super) pages: Vec<ErrorPage>,
}

#[derive(Clone, Debug)]
pub(super) struct ErrorPage {
    pub(super) at: At,
    pub(super) statuses: Vec<u16>,
    pub(super) answer: Option<u16>,
    /// Whether nothing is lost: there is no body.
    pub(super) whole: bool,
}

/// An `error_page` that is a status.
#[derive(Debug)]
struct Page {
    statuses: Vec<u16>,
    answer: u16,
}

impl Next {
    /// Puts the entries onto the route, whose upstream has so many servers.
    pub(super) fn apply(&self, servers: usize, route: &mut Route) {
        let usual = (vec!["error".to_owned(), "timeout".to_owned()], At::default());
        let (words, at) = self.on.as_ref().unwrap_or(&usual);
        let has = |word: &str| words.iter().any(|other| other == word);
        let mut notes = Notes::default();
        let mut taken: Vec<String> = Vec::new();
        let mut statuses = Vec::new();
        for word in words {
            match word.as_str() {
                "error" => taken.extend([codes::REFUSED, codes::LOST].map(str::to_owned)),
                "timeout" => taken.push(codes::SLOW.to_owned()),
                "invalid_header" => taken.push(codes::INVALID.to_owned()),
                "non_idempotent" | "off" => {}
                word => match word.strip_prefix("http_").and_then(|code| code.parse().ok()) {
                    Some(status @ 400..=599) => statuses.push(status),
                    _ => notes.lost(*at, format!("the next server on `{}`.", short(word))),
                },
            }
        }
        let all = u64::try_from(servers).unwrap_or(u64::MAX);
        let attempts = if self.tries == 0 { all } else { self.tries.min(all) };
        let repeats = has("non_idempotent");
        let retryable = if repeats { Retryable::Yes } else { Retryable::ByMethod };
        let retries = attempts > 1 && !has("off") && !(taken.is_empty() && statuses.is_empty());
        let pages = self.pages(route);
        let mut rule = |statuses: Vec<u16>, code: String, retryable| {
            if !statuses.is_empty() {
                let statuses = statuses.into_iter().map(Status::One).collect();
                let retryable = Some(retryable);
                route.classify.push(Rule { statuses, code, retryable, ..Rule::default() });
            }
        };
        let mut open = if retries { statuses } else { Vec::new() };
        for page in pages.iter().filter(|_| self.intercepts) {
            let (both, rest): (Vec<u16>, Vec<u16>) =
                open.into_iter().partition(|status| page.statuses.contains(status));
            let alone = page.statuses.iter().copied().filter(|status| !both.contains(status));
            rule(alone.collect(), page.code(), Retryable::No);
            if !both.is_empty() {
                taken.push(page.retried());
            }
            rule(both, page.retried(), retryable);
            open = rest;
        }
        if !open.is_empty() {
            taken.push(RETRIABLE.to_owned());
        }
        rule(open, RETRIABLE.to_owned(), retryable);
        if let Some(duration) = self.within.filter(|within| *within > Span::ZERO && retries) {
            let mut notes = Notes::default();
            notes.told("NGINX begins no try after that; this ends one that runs, too.");
            route.layers.push(Layer::Timeout { duration, notes });
        }
        if !retries {
            route.notes.0.append(&mut notes.0);
            if servers < 2 && !has("off") {
                route.notes.told("With one server NGINX has no next one, so there is no Retry.");
            }
            return;
        }
        if self.on.is_none() {
            notes.told("NGINX's own default.");
        }
        let mut policy =
            Policy { codes: taken, retryable: !repeats, attempts, ..Policy::default() };
        policy.tell_of_methods("NGINX, by `non_idempotent`,", &route.matches.methods);
        let code = (!pages.is_empty()).then(|| renamed(&pages));
        if code.is_some() {
            notes.told(
                "`code` names what an `error_page` answers, also where the Retry has given up.",
            );
        }
        let policies = vec![policy];
        route.layers.push(Layer::Retry(Retry { notes, policies, code, ..Retry::default() }));
    }

    /// Writes the `catch` of the pages that are a status.
    fn pages(&self, route: &mut Route) -> Vec<Page> {
        let mut pages: Vec<Page> = Vec::new();
        for page in &self.pages {
            let Some(answer) = page.answer else {
                route.notes.lost(page.at, "an `error_page` that is a page.");
                continue;
            };
            if !page.whole {
                route
                    .notes
                    .lost(page.at, "the body of an `error_page`: give the `Return` a `body`.");
            }
            let known = |status: &u16| pages.iter().any(|page| page.statuses.contains(status));
            let mut statuses: Vec<u16> = page.statuses.clone();
            statuses.retain(|status| (400..600).contains(status) && !known(status));
            statuses.sort_unstable();
            statuses.dedup();
            if statuses.is_empty() || pages.iter().any(|page| page.answer == answer) {
                route.notes.lost(page.at, "an `error_page` beside another one.");
                continue;
            }
            pages.push(Page { statuses, answer });
        }
        for page in &pages {
            let next = format!("answer-{}", page.answer);
            route.steps.push(Step::answer(&next, page.answer));
            route.catch.push(Catch { codes: page.codes(), next, ..Catch::default() });
        }
        pages
    }
}

impl Page {
    /// The code of a response that it replaces.
    fn code(&self) -> String {
        format!("Nginx.Answer{}", self.answer)
    }

    /// The same, of a response that is asked for again first.
    fn retried(&self) -> String {
        format!("Nginx.Retried{}", self.answer)
    }

    /// All that it replaces.
    fn codes(&self) -> Vec<String> {
        let mut codes = vec![self.code(), self.retried()];
        let has = |status| self.statuses.contains(&status);
        let lost = [codes::REFUSED, codes::LOST, codes::INVALID].map(str::to_owned);
        codes.extend(has(502).then_some(lost).into_iter().flatten());
        let late = [codes::SLOW, codes::BOUND].map(str::to_owned);
        codes.extend(has(504).then_some(late).into_iter().flatten());
        codes
    }
}

/// An expression for the code under which a failure rises from the Retry: of what it gave up on, that is one of the pages'.
fn renamed(pages: &[Page]) -> String {
    let taken = pages.iter().map(|page| {
        let listed: Vec<String> = page.codes().iter().map(|code| format!("'{code}'")).collect();
        let (listed, code) = (listed.join(", "), page.code());
        let previous = "middleware.result.previous";
        format!("has({previous}) && {previous}.code in [{listed}] ? '{code}' : ")
    });
    taken.collect::<String>() + "middleware.result.code"
}
