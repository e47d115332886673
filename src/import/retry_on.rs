//! Envoy's conditions for a retry (`retry_on`), which Istio and Envoy Gateway use, too; and the stack that they make.

use super::codes;
use super::form::{At, Backoff, Layer, Notes, Policy, Retry, Retryable, Route, Rule, Status};
use super::read::short;
use crate::language::temporal::Span;

/// The code of a response that is sent again.
pub(super) const RETRIABLE: &str = "Upstream.Retriable";

const MILLISECOND: i128 = 1_000_000;

/// Conditions that only gRPC knows, and our codes.
const GRPC: [(&str, &str); 5] = [
    ("cancelled", "Provider.Call.Http.Grpc.Cancelled"),
    ("deadline-exceeded", "Provider.Call.Http.Grpc.DeadlineExceeded"),
    ("internal", "Provider.Call.Http.Grpc.Internal"),
    ("resource-exhausted", "Provider.Call.Http.Grpc.ResourceExhausted"),
    ("unavailable", "Provider.Call.Http.Grpc.Unavailable"),
];

/// When a request is sent again.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    pub(super) statuses: Vec<Status>,
    refused: bool,
    lost: bool,
    grpc: Vec<&'static str>,
    pub(super) notes: Notes,
}

impl Conditions {
    /// Reads a list of conditions. A number is a status, as Istio has it.
    pub(super) fn add(&mut self, list: &str, at: At, http2: bool) {
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "5xx" => {
                    self.statuses.push(Status::Class(5));
                    (self.refused, self.lost) = (true, true);
                }
                "gateway-error" => {
                    self.statuses.extend([502, 503, 504].map(Status::One));
                    (self.refused, self.lost) = (true, true);
                }
                "reset" => (self.refused, self.lost) = (true, true),
                // An HTTP/2 server that refuses a stream has not begun with the request.
                "connect-failure" | "refused-stream" | "reset-before-request" => {
                    self.refused = true;
                }
                "retriable-4xx" => self.statuses.push(Status::One(409)),
                "envoy-ratelimited" => self.statuses.push(Status::One(429)),
                // The statuses stand in a list of their own.
                "retriable-status-codes" => {}
                word => self.other(word, at, http2),
            }
        }
        self.statuses.sort_unstable();
        self.statuses.dedup();
    }

    fn other(&mut self, word: &str, at: At, http2: bool) {
        if let Some((_, code)) = GRPC.iter().find(|(name, _)| *name == word) {
            if http2 {
                self.grpc.push(code);
            } else {
                self.notes.told(format!(
                    "`{word}` is gRPC's: with `protocol: http2` for the upstream, add `{code}`."
                ));
            }
        } else if let Ok(status @ 100..=599) = word.parse::<u16>() {
            self.statuses.push(Status::One(status));
        } else {
            self.notes.lost(at, format!("retries on `{}`.", short(word)));
        }
    }

    /// A list of statuses.
    pub(super) fn status(&mut self, status: u64, at: At) {
        match u16::try_from(status) {
            Ok(status @ 100..=599) => self.statuses.push(Status::One(status)),
            _ => self.notes.lost(at, format!("retries on the status {status}: there is none.")),
        }
        self.statuses.sort_unstable();
        self.statuses.dedup();
    }
}

/// A retry policy of Envoy's.
#[derive(Clone, Debug)]
pub(super) struct Retrying {
    pub(super) who: &'static str,
    pub(super) conditions: Conditions,
    pub(super) retries: u64,
    pub(super) per_try: Option<Span>,
    /// The base and the longest of the waits.
    pub(super) backoff: (Option<Span>, Option<Span>),
    /// Whether a field of the response says how long to wait.
    pub(super) by_header: bool,
}

impl Retrying {
    pub(super) fn new(who: &'static str, retries: u64) -> Self {
        let conditions = Conditions::default();
        Self { who, conditions, retries, per_try: None, backoff: (None, None), by_header: false }
    }

    /// Puts the entries onto the route's stack.
    pub(super) fn apply(self, route: &mut Route) {
        let Self { who, conditions, retries, per_try, backoff, by_header } = self;
        let Conditions { statuses, refused, lost, grpc, mut notes } = conditions;
        let per_try = per_try.filter(|bound| *bound > Span::ZERO);
        let mut taken = Vec::new();
        if !statuses.is_empty() {
            // A class holds its statuses.
            let class = |digit: u16| statuses.contains(&Status::Class(digit));
            let statuses = statuses.iter().copied().filter(|status| match status {
                Status::One(status) => !class(status / 100),
                Status::Class(_) => true,
            });
            route.classify.push(Rule {
                statuses: statuses.collect(),
                code: RETRIABLE.to_owned(),
                retryable: Some(Retryable::Yes),
                ..Rule::default()
            });
            taken.push(RETRIABLE);
        }
        if refused {
            taken.push(codes::REFUSED);
        }
        if lost {
            taken.extend([codes::LOST, codes::INVALID]);
            taken.extend(per_try.map(|_| codes::BOUND));
        }
        taken.extend(grpc);
        if retries > 0 && !taken.is_empty() {
            if per_try.is_some() && !lost {
                notes.told(format!(
                    "A try that times out is not retried: {who} does that for `5xx`, `gateway-error` and `reset`."
                ));
            }
            let mut policy = Policy {
                codes: taken.into_iter().map(str::to_owned).collect(),
                attempts: retries.saturating_add(1),
                backoff: Some(schedule(backoff)),
                ..Policy::default()
            };
            policy.tell_of_methods(who, &route.matches.methods);
            let delay = by_header.then(|| RETRY_AFTER.to_owned());
            route.layers.push(Layer::Retry(Retry {
                notes,
                policies: vec![policy],
                delay,
                ..Retry::default()
            }));
        } else {
            route.notes.0.append(&mut notes.0);
            if retries > 0 {
                route.notes.told("No retry: none of the conditions can come.");
            } else {
                route.classify.retain(|rule| rule.code != RETRIABLE);
            }
        }
        route
            .layers
            .extend(per_try.map(|duration| Layer::Timeout { duration, notes: Notes::default() }));
    }
}

/// The wait that a response asks for.
pub(super) const RETRY_AFTER: &str =
    "has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null";

/// Envoy's n-th wait is a draw from zero to (2^n - 1) times the base, and by default at most ten times the base.
fn schedule((base, max): (Option<Span>, Option<Span>)) -> Backoff {
    let base = base.unwrap_or(Span::from_nanos(25 * MILLISECOND));
    let ten = Span::from_nanos(base.as_nanos().saturating_mul(10));
    let mut notes = Notes::default();
    notes.told("Envoy's ceilings are 1, 3, 7… times the first; these are 1, 2, 4… times.");
    let max = max.unwrap_or(ten).max(base);
    Backoff { notes, initial: base, rate: 2.0, max: Some(max), jitter: Some("full") }
}
