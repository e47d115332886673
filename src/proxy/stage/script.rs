//! The responses of the upstreams in a rehearsal.
//!
//! A response that names an upstream is kept for calls to it, whoever makes them. The others are for the calls
//! that the Flow's own Steps make to other upstreams, in the order of these calls. A cleanup (such as an audit)
//! gets a plain 200 there, so that it does not use up a response that was meant for an attempt. Those of one list are
//! given in order, and the last one is repeated; or each call draws one, by its weight.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::language::provider::Draws;

/// One scripted response.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedResponse {
    /// The upstream that it is kept for.
    pub(crate) upstream: Option<Arc<str>>,
    /// The delay before it.
    pub(crate) after: Latency,
    /// What happens then.
    pub(crate) act: ScriptedAction,
}

/// How long a response takes: a draw between the two, each as likely as the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latency {
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

/// What an upstream does with a request.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedAction {
    /// It responds.
    Answer { status: StatusCode, headers: HeaderMap, body: Bytes },
    /// The connection is lost after the request was read.
    Reset,
    /// It refuses the connection.
    Refused,
    /// It reads the request and never responds.
    Hang,
}

/// One use of a response.
#[derive(Clone, Debug)]
pub(crate) struct ScriptUse {
    /// The index of the response in the script; `None` for the plain 200.
    pub(crate) place: Option<usize>,
    /// Whether it was used before, because the script ran out.
    pub(crate) again: bool,
    /// The delay before it.
    pub(crate) after: Duration,
    pub(crate) act: Arc<ScriptedAction>,
}

/// The responses, and how many of each list were used.
#[derive(Debug)]
pub(crate) struct Script {
    lines: Vec<ScriptLine>,
    /// Whether each call draws its response.
    mixed: bool,
    /// How many of a list were used, by the upstream that the list is kept for.
    used: HashMap<Option<Arc<str>>, usize>,
    draws: Draws,
}

/// A response in its list.
#[derive(Debug)]
struct ScriptLine {
    upstream: Option<Arc<str>>,
    after: Latency,
    act: Arc<ScriptedAction>,
    /// How many calls get it, one after the other.
    times: usize,
    /// How likely it is to be drawn, relative to the others of its list.
    weight: f64,
}

impl Latency {
    fn draw(self, draws: &Draws) -> Duration {
        let spread = self.most.saturating_sub(self.least);
        if spread.is_zero() { self.least } else { self.least + spread.mul_f64(draws.uniform()) }
    }
}

impl Default for ScriptUse {
    fn default() -> Self {
        let act = ScriptedAction::Answer {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        Self { place: None, again: false, after: Duration::ZERO, act: Arc::new(act) }
    }
}

impl Script {
    /// These responses in order, each as many times as it says. With `seed`, their latencies are the same each time.
    pub(crate) fn in_order(planned: Vec<(ScriptedResponse, usize)>, seed: u64) -> Self {
        let lines = planned.into_iter().map(|(planned, times)| ScriptLine::of(planned, times, 0.0));
        Self::of(lines.collect(), false, seed)
    }

    /// Each call draws one of these responses, by their weights. The same `seed` draws the same.
    pub(crate) fn mixed(planned: Vec<(ScriptedResponse, f64)>, seed: u64) -> Self {
        let lines = planned.into_iter().map(|(planned, weight)| ScriptLine::of(planned, 1, weight));
        Self::of(lines.collect(), true, seed)
    }

    fn of(lines: Vec<ScriptLine>, mixed: bool, seed: u64) -> Self {
        Self { lines, mixed, used: HashMap::new(), draws: Draws::of(Some(seed)) }
    }

    /// Begins each list anew. What is drawn goes on.
    pub(super) fn rewind(&mut self) {
        self.used.clear();
    }

    /// The response for the next call to `upstream`, by a cleanup (`cleanup`) or by a Step.
    pub(crate) fn next(&mut self, upstream: &str, cleanup: bool) -> ScriptUse {
        let named = self.lines.iter().find_map(|line| {
            line.upstream.as_ref().filter(|name| name.as_ref() == upstream).cloned()
        });
        if named.is_none() && cleanup {
            return ScriptUse::default();
        }
        let used = self.used.entry(named.clone()).or_default();
        let number = *used;
        *used += 1;
        let list = self.lines.iter().enumerate().filter(|(_, line)| line.upstream == named);
        let (found, again) =
            if self.mixed { (drawn(list, &self.draws), false) } else { turn(list, number) };
        let Some((place, line)) = found else {
            return ScriptUse::default();
        };
        let after = line.after.draw(&self.draws);
        ScriptUse { place: Some(place), again, after, act: Arc::clone(&line.act) }
    }

    /// The indexes of the responses that were not used. Nothing is missing from a mix.
    pub(crate) fn unused(&self) -> Vec<usize> {
        let mut seen: HashMap<&Option<Arc<str>>, usize> = HashMap::new();
        let places = self.lines.iter().enumerate().filter(|(_, line)| {
            let before = seen.entry(&line.upstream).or_default();
            let first = *before;
            *before += line.times;
            !self.mixed && first >= self.used.get(&line.upstream).copied().unwrap_or(0)
        });
        places.map(|(place, _)| place).collect()
    }
}

/// The line for the call `number` (from 0), and whether the list has run out.
fn turn<'l>(
    list: impl Iterator<Item = (usize, &'l ScriptLine)>,
    number: usize,
) -> (Option<(usize, &'l ScriptLine)>, bool) {
    let (mut found, mut end) = (None, 0_usize);
    for (place, line) in list {
        found = Some((place, line));
        end = end.saturating_add(line.times);
        if number < end {
            return (found, false);
        }
    }
    (found, found.is_some())
}

/// One line, drawn by weight.
fn drawn<'l>(
    list: impl Iterator<Item = (usize, &'l ScriptLine)> + Clone,
    draws: &Draws,
) -> Option<(usize, &'l ScriptLine)> {
    let all: f64 = list.clone().map(|(_, line)| line.weight).sum();
    let mut left = draws.uniform() * all;
    let mut found = None;
    for (place, line) in list {
        found = Some((place, line));
        left -= line.weight;
        if left < 0.0 {
            break;
        }
    }
    found
}

impl ScriptLine {
    fn of(planned: ScriptedResponse, times: usize, weight: f64) -> Self {
        let ScriptedResponse { upstream, after, act } = planned;
        Self { upstream, after, act: Arc::new(act), times, weight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(upstream: Option<&str>) -> ScriptedResponse {
        ScriptedResponse {
            upstream: upstream.map(Arc::from),
            after: Latency::default(),
            act: ScriptedAction::Reset,
        }
    }

    #[test]
    fn steps_share_one_list_and_a_named_upstream_has_its_own() {
        let list = [None, Some("audit"), None, Some("audit")].map(|named| (planned(named), 1));
        let mut script = Script::in_order(list.to_vec(), 0);
        let mut next = |upstream, cleanup| {
            let turn = script.next(upstream, cleanup);
            (turn.place, turn.again)
        };
        assert_eq!(next("billing", false), (Some(0), false));
        assert_eq!(next("billing", true), (None, false));
        assert_eq!(next("audit", true), (Some(1), false));
        assert_eq!(next("other", false), (Some(2), false));
        assert_eq!(next("billing", false), (Some(2), true));
        assert_eq!(script.unused(), [3]);
    }

    #[test]
    fn an_empty_script_answers_200() {
        let mut script = Script::in_order(Vec::new(), 0);
        let turn = script.next("billing", false);
        assert_eq!((turn.place, turn.again), (None, false));
        assert!(matches!(*turn.act, ScriptedAction::Answer { status: StatusCode::OK, .. }));
        assert!(script.unused().is_empty());
    }

    #[test]
    fn a_response_is_given_as_many_times_as_it_says() {
        let mut script = Script::in_order(vec![(planned(None), 3), (planned(None), 2)], 0);
        let places: Vec<_> = (0..6).map(|_| script.next("app", false)).collect();
        let places: Vec<_> = places.iter().map(|turn| (turn.place.unwrap(), turn.again)).collect();
        let (first, second) = ((0, false), (1, false));
        assert_eq!(places, [first, first, first, second, second, (1, true)]);
        script.rewind();
        (0..3).for_each(|_| drop(script.next("app", false)));
        assert_eq!(script.unused(), [1]);
    }

    #[test]
    fn a_mix_is_drawn_by_weight_and_the_same_each_time() {
        let drawn = |seed| {
            let mix = vec![(planned(None), 90.0), (planned(None), 10.0), (planned(Some("b")), 1.0)];
            let mut script = Script::mixed(mix, seed);
            let places: Vec<_> = (0..10_000).map(|_| script.next("a", false).place).collect();
            assert!(script.unused().is_empty());
            places
        };
        let places = drawn(7);
        let rare = places.iter().filter(|place| **place == Some(1)).count();
        assert!((900..1100).contains(&rare), "{rare}");
        assert!(!places.contains(&Some(2)), "the list of another upstream");
        assert_eq!(places, drawn(7));
        assert_ne!(places, drawn(8));
    }

    #[test]
    fn a_latency_is_drawn_from_its_range() {
        let draws = Draws::of(Some(1));
        let range = Latency { least: Duration::from_millis(20), most: Duration::from_millis(80) };
        let all: Vec<_> = (0..1000).map(|_| range.draw(&draws).as_millis()).collect();
        assert!(all.iter().all(|millis| (20..80).contains(millis)));
        assert!(*all.iter().min().unwrap() < 22 && *all.iter().max().unwrap() > 77);
    }
}
