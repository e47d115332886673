//! The responses of the upstreams in a rehearsal, in order.
//!
//! A response that names an upstream is kept for calls to it, whoever makes them. The others are for the calls
//! that the Flow's own Steps make to other upstreams, in the order of these calls. A cleanup (such as an audit)
//! gets a plain 200 there, so that it does not use up a response that was meant for an attempt. The last
//! response of a list is repeated.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// One scripted response.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedResponse {
    /// The upstream that it is kept for.
    pub(crate) upstream: Option<Arc<str>>,
    /// The delay before it.
    pub(crate) after: Duration,
    /// What happens then.
    pub(crate) act: ScriptedAction,
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
    pub(crate) planned: Arc<ScriptedResponse>,
}

/// The responses, and how many of each list were used.
#[derive(Debug)]
pub(crate) struct Script {
    planned: Vec<Arc<ScriptedResponse>>,
    /// How many of a list were used, by the upstream that the list is kept for.
    used: HashMap<Option<Arc<str>>, usize>,
}

impl Default for ScriptUse {
    fn default() -> Self {
        let act = ScriptedAction::Answer {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        let planned = Arc::new(ScriptedResponse { upstream: None, after: Duration::ZERO, act });
        Self { place: None, again: false, planned }
    }
}

impl Script {
    /// A script with these responses.
    pub(crate) fn new(planned: Vec<ScriptedResponse>) -> Self {
        let planned = planned.into_iter().map(Arc::new).collect();
        Self { planned, used: HashMap::new() }
    }

    /// The response for the next call to `upstream`, by a cleanup (`cleanup`) or by a Step.
    pub(crate) fn next(&mut self, upstream: &str, cleanup: bool) -> ScriptUse {
        let named = self.planned.iter().find_map(|planned| {
            planned.upstream.as_ref().filter(|name| name.as_ref() == upstream).cloned()
        });
        if named.is_none() && cleanup {
            return ScriptUse::default();
        }
        let kept = self.planned.iter().enumerate().filter(|(_, p)| p.upstream == named);
        let list: Vec<_> = kept.collect();
        let used = self.used.entry(named.clone()).or_default();
        let turn = list.get(*used).or_else(|| list.last()).map(|(place, planned)| ScriptUse {
            place: Some(*place),
            again: *used >= list.len(),
            planned: Arc::clone(planned),
        });
        *used += 1;
        turn.unwrap_or_default()
    }

    /// The indexes of the responses that were not used.
    pub(crate) fn unused(&self) -> Vec<usize> {
        let mut seen: HashMap<&Option<Arc<str>>, usize> = HashMap::new();
        let places = self.planned.iter().enumerate().filter(|(_, planned)| {
            let number = seen.entry(&planned.upstream).or_default();
            *number += 1;
            *number > self.used.get(&planned.upstream).copied().unwrap_or(0)
        });
        places.map(|(place, _)| place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(upstream: Option<&str>) -> ScriptedResponse {
        ScriptedResponse {
            upstream: upstream.map(Arc::from),
            after: Duration::ZERO,
            act: ScriptedAction::Reset,
        }
    }

    #[test]
    fn steps_share_one_list_and_a_named_upstream_has_its_own() {
        let list = [None, Some("audit"), None, Some("audit")].map(planned);
        let mut script = Script::new(list.to_vec());
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
        let mut script = Script::new(Vec::new());
        let turn = script.next("billing", false);
        assert_eq!((turn.place, turn.again), (None, false));
        assert!(matches!(turn.planned.act, ScriptedAction::Answer { status: StatusCode::OK, .. }));
        assert!(script.unused().is_empty());
    }
}
