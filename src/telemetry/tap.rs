//! Filters the execution events for `/tap`.
//!
//! The outcome of an execution is known only at its end. So with a filter by outcome, its events are held back
//! until then. The number of held events is bounded; what exceeds it is reported as missed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value as Json;

use super::events::{self, Listener, TapMessage};

/// How many events may be held for running executions.
const HELD: usize = 4096;

/// Selects executions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those of this route.
    pub route: Option<String>,
    /// Only those with this outcome.
    pub outcome: Option<OutcomeFilter>,
}

/// The outcome that an execution must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeFilter {
    /// A success, and no failure was caught on the way.
    Success,
    /// A success on whose way a `catch` took a failure.
    Degraded,
    /// Anything but a success.
    Failure,
    /// A failure of this type: `error`, `timeout`, `cancellation`, an extension's.
    Type(String),
}

/// A listener with a filter.
#[derive(Debug)]
pub struct Tap {
    listener: Listener,
    sieve: PendingEvents,
}

/// The filter, and the events that it holds back.
#[derive(Debug, Default)]
struct PendingEvents {
    filter: Filter,
    /// The events of running executions, by execution.
    held: HashMap<String, Vec<Arc<Json>>>,
    /// Executions in the order of their first held event. Some of them are no longer in `held`.
    order: VecDeque<String>,
    count: usize,
    ready: VecDeque<TapMessage>,
}

impl OutcomeFilter {
    /// Parses the value of `outcome`.
    pub fn of(text: &str) -> Self {
        match text {
            "success" => Self::Success,
            "degraded" => Self::Degraded,
            "failure" => Self::Failure,
            other => Self::Type(other.to_owned()),
        }
    }

    fn is(&self, ty: &str, caught: bool) -> bool {
        match self {
            Self::Success => ty == "success" && !caught,
            Self::Degraded => ty == "success" && caught,
            Self::Failure => ty != "success",
            Self::Type(wanted) => ty == wanted,
        }
    }
}

impl Tap {
    /// Starts to listen.
    pub fn new(filter: Filter) -> Self {
        Self {
            listener: events::listen(),
            sieve: PendingEvents { filter, ..PendingEvents::default() },
        }
    }

    /// Waits for the next event that passes the filter, or the number of events missed before it.
    pub async fn next(&mut self) -> TapMessage {
        loop {
            if let Some(heard) = self.sieve.ready.pop_front() {
                return heard;
            }
            match self.listener.next().await {
                TapMessage::Event(event) => self.sieve.put(event),
                missed @ TapMessage::Missed(_) => return missed,
            }
        }
    }

    /// The same, if there is one now.
    pub fn try_next(&mut self) -> Option<TapMessage> {
        loop {
            if let Some(heard) = self.sieve.ready.pop_front() {
                return Some(heard);
            }
            match self.listener.try_next()? {
                TapMessage::Event(event) => self.sieve.put(event),
                missed @ TapMessage::Missed(_) => return Some(missed),
            }
        }
    }
}

impl PendingEvents {
    fn put(&mut self, event: Arc<Json>) {
        let text = |name: &str| event.get(name).and_then(Json::as_str).unwrap_or_default();
        if self.filter.route.as_deref().is_some_and(|route| route != text("route")) {
            return;
        }
        let Some(wanted) = &self.filter.outcome else {
            self.ready.push_back(TapMessage::Event(event));
            return;
        };
        let execution = text("execution").to_owned();
        if text("event") == "execution.done" {
            let held = self.held.remove(&execution).unwrap_or_default();
            self.count -= held.len();
            if wanted.is(text("type"), event.get("caught").is_some()) {
                self.ready.extend(held.into_iter().map(TapMessage::Event));
                self.ready.push_back(TapMessage::Event(event));
            }
            return;
        }
        if text("event") == events::TRUNCATED {
            // The execution ended before, with whatever Result. This is a failure of its own.
            if wanted.is(text("type"), false) {
                self.ready.push_back(TapMessage::Event(event));
            }
            return;
        }
        self.hold(execution, event);
    }

    fn hold(&mut self, execution: String, event: Arc<Json>) {
        if self.count >= HELD {
            self.give_up_oldest();
        }
        if !self.held.contains_key(&execution) {
            self.order.push_back(execution.clone());
        }
        self.held.entry(execution).or_default().push(event);
        self.count += 1;
        // Ids of executions that have ended stay in `order`; a tap that stays open would keep them all.
        if self.order.len() > 2 * HELD {
            self.order.retain(|execution| self.held.contains_key(execution));
        }
    }

    fn give_up_oldest(&mut self) {
        while let Some(oldest) = self.order.pop_front() {
            if let Some(held) = self.held.remove(&oldest) {
                self.count -= held.len();
                self.ready.push_back(TapMessage::Missed(held.len() as u64));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sieve(route: Option<&str>, outcome: Option<&str>) -> PendingEvents {
        let filter =
            Filter { route: route.map(str::to_owned), outcome: outcome.map(OutcomeFilter::of) };
        PendingEvents { filter, ..PendingEvents::default() }
    }

    fn event(execution: &str, route: &str, name: &str, ty: &str) -> Arc<Json> {
        Arc::new(json!({ "execution": execution, "route": route, "event": name, "type": ty }))
    }

    fn heard(sieve: &mut PendingEvents) -> Vec<String> {
        let shown = |heard| match heard {
            TapMessage::Event(event) => {
                format!(
                    "{} {}",
                    event["execution"].as_str().unwrap(),
                    event["event"].as_str().unwrap()
                )
            }
            TapMessage::Missed(count) => format!("missed {count}"),
        };
        sieve.ready.drain(..).map(shown).collect()
    }

    #[test]
    fn a_route_is_heard_at_once() {
        let mut sieve = sieve(Some("pay"), None);
        sieve.put(event("1", "pay", "execution.started", ""));
        sieve.put(event("2", "other", "execution.started", ""));
        assert_eq!(heard(&mut sieve), ["1 execution.started"]);
    }

    #[test]
    fn an_outcome_is_heard_when_it_is_known() {
        for (wanted, through) in
            [("failure", &["2", "3"][..]), ("success", &["1"]), ("timeout", &["3"]), ("none", &[])]
        {
            let mut sieve = sieve(None, Some(wanted));
            for id in ["1", "2", "3"] {
                sieve.put(event(id, "pay", "execution.started", ""));
            }
            assert!(heard(&mut sieve).is_empty());
            for (id, ty) in [("1", "success"), ("2", "error"), ("3", "timeout")] {
                sieve.put(event(id, "pay", "execution.done", ty));
            }
            let wanted: Vec<String> = through
                .iter()
                .flat_map(|id| ["started", "done"].map(|name| format!("{id} execution.{name}")))
                .collect();
            assert_eq!(heard(&mut sieve), wanted);
            assert_eq!((sieve.count, sieve.held.len()), (0, 0));
        }
    }

    #[test]
    fn a_success_on_whose_way_a_failure_was_caught_is_degraded() {
        for (wanted, count) in [("degraded", 1), ("success", 0), ("failure", 0)] {
            let mut sieve = sieve(None, Some(wanted));
            let (name, ty) = ("execution.done", "success");
            let done = json!({ "execution": "1", "event": name, "type": ty, "caught": 2 });
            sieve.put(Arc::new(done));
            assert_eq!(heard(&mut sieve).len(), count, "{wanted}");
        }
    }

    /// The response broke off after the execution's end.
    #[test]
    fn a_truncated_response_is_a_failure_whatever_the_execution_was() {
        for (wanted, count) in [("failure", 1), ("success", 0), ("error", 1), ("timeout", 0)] {
            let mut sieve = sieve(None, Some(wanted));
            sieve.put(event("1", "pay", events::TRUNCATED, "error"));
            assert_eq!((heard(&mut sieve).len(), sieve.held.len()), (count, 0), "{wanted}");
        }
    }

    #[test]
    fn what_is_held_is_bounded_and_what_goes_is_told() {
        let mut sieve = sieve(None, Some("failure"));
        sieve.put(event("first", "pay", "execution.started", ""));
        sieve.put(event("first", "pay", "attempt.started", ""));
        for number in 0..HELD {
            sieve.put(event(&number.to_string(), "pay", "execution.started", ""));
        }
        assert_eq!(heard(&mut sieve), ["missed 2"]);
        assert!(sieve.count <= HELD);
        for number in 0..10 * HELD {
            let id = format!("x{number}");
            sieve.put(event(&id, "pay", "execution.started", ""));
            sieve.put(event(&id, "pay", "execution.done", "success"));
        }
        assert!(sieve.order.len() <= 2 * HELD + 1);
    }
}
