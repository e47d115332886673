//! Chevere Workflow: the jobs of PHP code, and their `withRetry`.

use super::form::{
    Backoff, Form, Layer, MAX_ROUTES, Match, Notes, Policy, Retry, Route, Upstream, name,
};
use super::read::{Reading, short};
use super::tokens::{Piece, Style, Token, tokens};
use crate::language::temporal::Span as Time;
use crate::source::Span;

const MILLISECOND: i128 = 1_000_000;
/// The parameters of `withRetry`, in their order.
const PARAMETERS: [&str; 3] = ["timeout", "maxAttempts", "delay"];

/// A job, and its retry policy: timeout, attempts, delay.
#[derive(Debug)]
struct Job {
    name: String,
    span: Span,
    asynchronous: bool,
    policy: Option<[u64; 3]>,
    /// The jobs whose responses it reads.
    reads: Vec<(String, Span)>,
}

pub(super) fn read(reading: &Reading<'_>, whole: Span, text: &str) -> Form {
    let tokens = tokens(whole, text, Style { hash: true, single: true });
    let jobs = jobs(reading, &tokens);
    let mut form = Form::default();
    if jobs.is_empty() {
        let message = "there is no `withRetry(…)` and no job of Chevere's in this";
        reading.not_this(whole, message, "give PHP code with `sync(…)` or `async(…)`");
    }
    let several = jobs.len() > 1;
    for job in jobs {
        if form.is_full() {
            break;
        }
        job.write(reading, several, &mut form);
    }
    form
}

fn jobs(reading: &Reading<'_>, tokens: &[Token]) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        if jobs.len() > MAX_ROUTES {
            break;
        }
        let Some(word) = token.word() else { continue };
        let calls = tokens.get(place + 1).is_some_and(|next| next.is('('));
        if !calls {
            continue;
        }
        let inner = tokens.get(place + 2..).unwrap_or_default();
        match word {
            "sync" | "async" => jobs.push(Job {
                name: job_name(tokens.get(..place).unwrap_or_default(), inner),
                span: token.span,
                asynchronous: word == "async",
                policy: None,
                reads: Vec::new(),
            }),
            "withRetry" => {
                let policy = arguments(reading, inner);
                match jobs.last_mut() {
                    Some(job) if job.policy.is_none() => job.policy = Some(policy),
                    _ => jobs.push(Job {
                        name: "job".to_owned(),
                        span: token.span,
                        asynchronous: false,
                        policy: Some(policy),
                        reads: Vec::new(),
                    }),
                }
            }
            "response" => {
                if let (Some(job), Some(Piece::Text(other))) =
                    (jobs.last_mut(), inner.first().map(|token| &token.piece))
                {
                    job.reads.push((other.clone(), token.span));
                }
            }
            _ => {}
        }
    }
    jobs
}

/// The name of a job: its argument's in `workflow(…)`, else its action's, else its variable's.
fn job_name(before: &[Token], inner: &[Token]) -> String {
    let last = |back: usize| before.len().checked_sub(back).and_then(|at| before.get(at));
    if last(1).is_some_and(|token| token.is(':'))
        && let Some(label) = last(2).and_then(Token::word)
    {
        return label.to_owned();
    }
    let made = inner.first().and_then(Token::word) == Some("new");
    let action = inner.get(usize::from(made)).and_then(Token::word);
    if let Some(action) = action.filter(|_| made) {
        return action.to_owned();
    }
    let variable =
        last(2).and_then(Token::word).filter(|_| last(1).is_some_and(|token| token.is('=')));
    variable.unwrap_or("job").to_owned()
}

/// The arguments of `withRetry(`, by name or in order.
fn arguments(reading: &Reading<'_>, inner: &[Token]) -> [u64; 3] {
    let mut values = [0, 1, 0];
    let mut tokens = inner.iter().peekable();
    let mut place = 0;
    while let Some(token) = tokens.next() {
        if token.is(')') {
            break;
        }
        if token.is(',') {
            continue;
        }
        let mut value = token;
        let mut named = PARAMETERS.get(place).copied().unwrap_or("an argument");
        if let Some(word) = token.word()
            && tokens.next_if(|next| next.is(':')).is_some()
        {
            named = word;
            let Some(next) = tokens.next() else { break };
            value = next;
        }
        place += 1;
        let whole = value.number().filter(|number| number.fract() == 0.0 && *number < 1e12);
        let ends = tokens.peek().is_none_or(|next| next.is(',') || next.is(')'));
        let known = PARAMETERS.iter().position(|known| *known == named);
        match (known.and_then(|at| values.get_mut(at)), whole.filter(|_| ends)) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole, and below 10^12"
            )]
            (Some(into), Some(number)) => *into = number as u64,
            (None, _) => {
                let message = format!(
                    "`withRetry` has no `{}`; it has `timeout`, `maxAttempts` and `delay`",
                    short(named)
                );
                reading.wrong(token.span, message);
                break;
            }
            (_, None) => {
                let message =
                    format!("`{}` is no whole number, which `import` can read", short(named));
                reading.wrong(value.span, message);
                break;
            }
        }
    }
    if values.get(1) == Some(&0) {
        let span = inner.first().map_or_else(Span::default, |token| token.span);
        reading.wrong(span, "`maxAttempts` is 0; it is at least 1");
    }
    values
}

impl Job {
    fn write(self, reading: &Reading<'_>, several: bool, form: &mut Form) {
        let Self { name: job, span, asynchronous, policy, reads } = self;
        let mut route = Route { name: name(&job), ..Route::default() };
        let taken: Vec<String> = form.routes.iter().map(|route| route.name.clone()).collect();
        route.name = super::form::unique(route.name, &taken);
        route.upstream.clone_from(&route.name);
        if several {
            let path_prefix = Some(format!("/{}", route.name));
            route.matches = Match { path_prefix, ..Match::default() };
        }
        if asynchronous && several {
            route.notes.told(
                "It runs beside the other jobs there: a Gather does that (docs/coming-from.md).",
            );
        }
        for (other, span) in reads {
            let text = format!(
                "it reads the response of `{}`: a Flow does that (docs/coming-from.md).",
                short(&other)
            );
            route.notes.lost(reading.at(span), text);
        }
        let [timeout, attempts, delay] = policy.unwrap_or([0, 1, 0]);
        let time = |milliseconds: u64| Time::from_nanos(i128::from(milliseconds) * MILLISECOND);
        if attempts > 1 {
            let mut notes = Notes::default();
            if timeout > 0 {
                notes.told("A job that timed out is not tried again: its runner stops there. Without `types` it would be.");
            }
            let mut policy = Policy { codes: vec!["*".to_owned()], attempts, ..Policy::default() };
            policy.types.extend((timeout > 0).then_some("error"));
            policy.backoff =
                Some(Backoff { initial: time(delay), rate: 1.0, ..Backoff::default() });
            policy.tell_of_methods("Chevere", &[]);
            route.layers.push(Layer::Retry(Retry {
                notes,
                policies: vec![policy],
                ..Retry::default()
            }));
        } else if policy.is_some() {
            route.notes.told(format!(
                "`maxAttempts` is 1 (line {}): nothing is retried.",
                reading.at(span).line
            ));
        }
        if timeout > 0 {
            route.layers.push(Layer::Timeout { duration: time(timeout), notes: Notes::default() });
        }
        form.upstreams.push(Upstream {
            name: route.upstream.clone(),
            response_timeout: Some(Time::ZERO),
            ..Upstream::default()
        });
        form.routes.push(route);
    }
}
