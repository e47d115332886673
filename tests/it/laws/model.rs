//! The small recursive model of the specification.

use super::{Case, Form, Layer, Observed};
use crate::support::law::{CANCELLED, CLEANUP_LIMIT, EXCEEDED, EXHAUSTED};

type Chain = Vec<&'static str>;

/// What rises: a Result (with an empty chain if it is a success), or an unwind towards its owner.
enum Rise {
    Settled(Chain),
    Unwind { owner: usize, chain: Chain, superseded: bool },
}

impl Rise {
    /// The same unwind, with failed cleanups at the head of its chain.
    fn after(self, failed: &[&'static str]) -> Self {
        match self {
            Self::Unwind { owner, chain, superseded } => Self::Unwind {
                owner,
                superseded: superseded || !failed.is_empty(),
                chain: [failed, &chain].concat(),
            },
            Self::Settled(_) => self,
        }
    }
}

const OUTSIDE: usize = usize::MAX;

struct Model<'a> {
    case: &'a Case,
    now: u64,
    /// The established bounds, with layer and deadline, outermost first.
    bounds: Vec<(usize, u64)>,
    runs: usize,
    /// In how many gates it is now, and was at each run of the target.
    in_gates: usize,
    inside: Vec<usize>,
    successes: usize,
    cleanups: Vec<usize>,
}

impl Model<'_> {
    /// The first interruption: its instant and its owner.
    fn interruption(&self) -> Option<(u64, usize)> {
        let outside = self.case.cancel.map(|at| (at, OUTSIDE));
        let bound = self.bounds.iter().map(|(layer, at)| (*at, *layer)).min_by_key(|(at, _)| *at);
        match (outside, bound) {
            (Some(outside), Some(bound)) if bound.0 < outside.0 => Some(bound),
            (Some(outside), _) => Some(outside),
            (None, bound) => bound,
        }
    }

    /// The owner of the interruption that is due after shielded work. A cancellation from outside takes
    /// precedence.
    fn due(&self) -> Option<usize> {
        if self.case.cancel.is_some_and(|at| at <= self.now) {
            return Some(OUTSIDE);
        }
        self.interruption().filter(|(at, _)| *at <= self.now).map(|(_, owner)| owner)
    }

    fn unwind(owner: usize) -> Rise {
        let chain = if owner == OUTSIDE { vec![CANCELLED] } else { vec![CANCELLED, EXCEEDED] };
        Rise::Unwind { owner, chain, superseded: false }
    }

    /// Work that waits. It is accepted if it is done at the instant of the interruption.
    fn wait(&mut self, millis: u64, always_pending: bool) -> Result<(), Rise> {
        let done = self.now + millis;
        match self.interruption() {
            Some((at, owner)) if at < done || (always_pending && at <= self.now) => {
                if millis == 0 && !always_pending {
                    return Ok(());
                }
                self.now = self.now.max(at);
                Err(Self::unwind(owner))
            }
            _ => {
                self.now = done;
                Ok(())
            }
        }
    }

    fn target(&mut self) -> Rise {
        let (after, code) = self.case.turns[self.runs.min(self.case.turns.len() - 1)];
        self.runs += 1;
        self.inside.push(self.in_gates);
        match self.wait(after, false) {
            Ok(()) => Rise::Settled(code.into_iter().collect()),
            Err(unwind) => unwind,
        }
    }

    fn layer(&mut self, at: usize) -> Rise {
        let Some(layer) = self.case.layers.get(at) else {
            return self.target();
        };
        match layer {
            Layer::Retry { code, attempts, delay } => {
                let mut runs = 0;
                loop {
                    let rise = self.layer(at + 1);
                    runs += 1;
                    let Rise::Settled(chain) = &rise else {
                        return rise;
                    };
                    let matches =
                        chain.first().is_some_and(|head| code.is_none_or(|code| code == *head));
                    if !matches {
                        return rise;
                    }
                    if runs >= *attempts {
                        return Rise::Settled([vec![EXHAUSTED], chain.clone()].concat());
                    }
                    if let Err(unwind) = self.wait(*delay, *delay == 0) {
                        return unwind;
                    }
                }
            }
            Layer::Loop { times } => {
                let mut runs = 0;
                loop {
                    let rise = self.layer(at + 1);
                    runs += 1;
                    let again = matches!(&rise, Rise::Settled(chain) if chain.is_empty());
                    if !again || runs >= *times {
                        return rise;
                    }
                    if let Err(unwind) = self.wait(0, true) {
                        return unwind;
                    }
                }
            }
            Layer::Timeout { bound } => {
                self.bounds.push((at, self.now + bound));
                let cleanups = self.cleanups.len();
                let rise = self.layer(at + 1);
                self.bounds.pop();
                match rise {
                    Rise::Unwind { owner, chain, superseded } if owner == at => {
                        // Cleanups took time, so an outer interruption may be due.
                        if self.cleanups.len() > cleanups
                            && let Some(owner) = self.due()
                        {
                            return Self::unwind(owner).after(&if superseded {
                                chain
                            } else {
                                vec![]
                            });
                        }
                        let chain = if superseded { chain } else { chain[1..].to_vec() };
                        Rise::Settled(chain)
                    }
                    rise => rise,
                }
            }
            Layer::Gate { wait, emit, .. } => self.gate(at, *wait, emit.as_ref()),
            Layer::Finally { after, code } => {
                let rise = self.layer(at + 1);
                self.cleanups.push(at);
                self.finally(rise, *after, *code)
            }
        }
    }

    fn gate(&mut self, at: usize, wait: Option<u64>, emit: Option<&Vec<&'static str>>) -> Rise {
        if let Some(Err(unwind)) = wait.map(|wait| self.wait(wait, wait == 0)) {
            return unwind;
        }
        if let Some(chain) = emit {
            return Rise::Settled(chain.clone());
        }
        self.in_gates += 1;
        let rise = self.layer(at + 1);
        self.in_gates -= 1;
        let succeeds = matches!(&rise, Rise::Settled(chain) if chain.is_empty());
        self.successes += usize::from(succeeds);
        rise
    }

    fn finally(&mut self, rise: Rise, after: u64, code: Option<&'static str>) -> Rise {
        let edge = match (&rise, self.interruption()) {
            (Rise::Unwind { .. }, _) => Some(self.now + CLEANUP_LIMIT),
            (Rise::Settled(_), first) => first.map(|(at, _)| at.max(self.now) + CLEANUP_LIMIT),
        };
        let done = self.now + after;
        let cut = edge.filter(|edge| *edge < done);
        self.now = cut.unwrap_or(done);
        let failed = if cut.is_some() { Some(EXCEEDED) } else { code };
        match rise {
            Rise::Unwind { owner, mut chain, mut superseded } => {
                if let Some(code) = failed {
                    chain.insert(0, code);
                    superseded = true;
                }
                Rise::Unwind { owner, chain, superseded }
            }
            Rise::Settled(mut chain) => {
                if let Some(code) = failed {
                    chain.insert(0, code);
                }
                match self.due() {
                    None => Rise::Settled(chain),
                    Some(owner) => {
                        Self::unwind(owner).after(&if failed.is_some() { chain } else { vec![] })
                    }
                }
            }
        }
    }
}

/// What must come of a case.
pub(super) fn expected(case: &Case, form: Form) -> Observed {
    let mut model = Model {
        case,
        now: 0,
        bounds: Vec::new(),
        runs: 0,
        in_gates: 0,
        inside: Vec::new(),
        successes: 0,
        cleanups: Vec::new(),
    };
    let chain = match model.layer(0) {
        Rise::Settled(chain) | Rise::Unwind { chain, .. } => chain,
    };
    let chain: Vec<_> = chain.into_iter().map(str::to_owned).collect();
    let Model { runs, mut inside, in_gates, mut successes, cleanups, now, .. } = model;
    if matches!(form, Form::Wrapped) {
        // All of it is in one more gate.
        for inside in &mut inside {
            *inside += 1;
        }
        successes += usize::from(chain.is_empty());
    }
    Observed { chain, runs, inside, left_inside: in_gates, successes, cleanups, ended: now }
}
