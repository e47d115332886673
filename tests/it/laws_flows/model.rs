//! The model: a small recursive interpreter of the specification.

use super::*;

mod gather;

/// What rises: a Result, or an unwind towards its owner.
enum Rise {
    Settled(Settled),
    Unwind {
        /// The bound's position, or [`OUTSIDE`].
        owner: usize,
        chain: Chain,
        superseded: bool,
        /// Whether time may have passed since. Then the owner checks the outer interruptions again.
        cleaned: bool,
    },
}

const OUTSIDE: usize = usize::MAX;

/// What a stack wraps.
#[derive(Clone, Copy)]
enum Inner<'a> {
    Call(&'a Call),
    Graph(&'a Flow),
}

/// A sequential part of an execution: all of it, or a dispatch of a `Gather`.
struct Model {
    now: u64,
    /// When it is interrupted from outside, and the chain of that unwind.
    cancel: Option<(u64, Chain)>,
    /// The deadlines of the established bounds, outermost first.
    bounds: Vec<u64>,
    /// The run of the innermost retry.
    attempt: u32,
    /// The frame's failure context. A re-run of the graph keeps it, because it is the same frame.
    failure: Option<Chain>,
    /// The frame's variables: how often each [`Step::Back`] led back.
    vars: BTreeMap<usize, u64>,
    /// The operation: everything around the call that is not a retry.
    at: Vec<String>,
    /// Each dispatch with its operation, its instant and its tag.
    began: Vec<(String, u64, String)>,
    /// When it checked whether it is interrupted: before a re-run without a wait, and after a cleanup, which
    /// is shielded. A dispatch may check before its `Gather` has seen an interruption at the same instant.
    checked: Vec<u64>,
    /// Whether the outcome depends on the scheduler, because two events happen at one instant.
    ambiguous: bool,
}

impl Model {
    fn new(now: u64, attempt: u32, cancel: Option<(u64, Chain)>) -> Self {
        Self {
            now,
            cancel,
            bounds: Vec::new(),
            attempt,
            failure: None,
            vars: BTreeMap::new(),
            at: Vec::new(),
            began: Vec::new(),
            checked: Vec::new(),
            ambiguous: false,
        }
    }

    /// The first interruption: its instant and its owner.
    fn interruption(&self) -> Option<(u64, usize)> {
        let outside = self.cancel.as_ref().map(|(at, _)| (*at, OUTSIDE));
        let bounds = self.bounds.iter().enumerate();
        let bound = bounds.map(|(position, at)| (*at, position)).min_by_key(|(at, _)| *at);
        match (outside, bound) {
            (Some(outside), Some(bound)) if bound.0 < outside.0 => Some(bound),
            (Some(outside), _) => Some(outside),
            (None, bound) => bound,
        }
    }

    fn due(&self) -> Option<usize> {
        match &self.cancel {
            Some((at, _)) if *at <= self.now => Some(OUTSIDE),
            _ => self.interruption().filter(|(at, _)| *at <= self.now).map(|(_, owner)| owner),
        }
    }

    fn unwind(&self, owner: usize, cleaned: bool, failed: Chain) -> Rise {
        let own = match (&self.cancel, owner) {
            (Some((_, chain)), OUTSIDE) => chain.clone(),
            _ => vec![CANCELLED, EXCEEDED],
        };
        Rise::Unwind {
            owner,
            superseded: !failed.is_empty(),
            chain: [failed, own].concat(),
            cleaned,
        }
    }

    /// Work of `millis` milliseconds. It is accepted if it is done at the instant of the interruption.
    fn wait(&mut self, millis: u64) -> Result<(), Rise> {
        let done = self.now + millis;
        if millis > 0
            && let Some((at, owner)) = self.interruption()
            && at < done
        {
            self.now = self.now.max(at);
            self.meets(at, owner);
            return Err(self.unwind(owner, false, vec![]));
        }
        self.now = done;
        Ok(())
    }

    /// Notes if a dispatch's own bound fires at the instant at which its `Gather` is interrupted.
    fn meets(&mut self, at: u64, owner: usize) {
        if owner == OUTSIDE && self.bounds.contains(&at) {
            self.checked.push(at);
        }
    }

    /// The wait before a re-run. Even a wait of nothing lets an interruption in.
    fn gap(&mut self, millis: u64) -> Result<(), Rise> {
        if millis > 0 {
            return self.wait(millis);
        }
        self.checked.push(self.now);
        match self.due() {
            Some(owner) => Err(self.unwind(owner, false, vec![])),
            None => Ok(()),
        }
    }

    /// Runs `inner` at a place of its own.
    fn within<T>(&mut self, place: String, inner: impl FnOnce(&mut Self) -> T) -> T {
        self.at.push(place);
        let result = inner(self);
        self.at.pop();
        result
    }

    fn dispatched(&mut self, tag: String) {
        self.began.push((self.at.join("/"), self.now, tag));
    }

    fn call(&mut self, call: &Call, input: Json) -> Rise {
        match self.target(&call.target, &tag_of(call), input) {
            Rise::Settled(settled) => Rise::Settled(call.arms.finish(settled)),
            unwind @ Rise::Unwind { .. } => unwind,
        }
    }

    fn flow(&mut self, flow: &Flow, input: Json) -> Rise {
        let outer = (self.failure.take(), std::mem::take(&mut self.vars));
        let rise = self.stack(&flow.stack, Inner::Graph(flow), input);
        (self.failure, self.vars) = outer;
        rise
    }

    fn target(&mut self, target: &Target, tag: &str, input: Json) -> Rise {
        match target {
            Target::Flow(flow) => self.flow(flow, input),
            Target::Script(turns) => {
                let number = usize::try_from(self.attempt).unwrap() - 1;
                let (after, code) = turns[number.min(turns.len() - 1)];
                self.dispatched(tag.to_owned());
                match self.wait(after) {
                    Ok(()) => Rise::Settled(code.map_or(Ok(input), |code| Err(vec![code]))),
                    Err(unwind) => unwind,
                }
            }
        }
    }

    fn stack(&mut self, stack: &[Layer], inner: Inner<'_>, input: Json) -> Rise {
        let Some((layer, rest)) = stack.split_first() else {
            return match inner {
                Inner::Call(call) => self.call(call, input),
                Inner::Graph(flow) => self.graph(flow, input),
            };
        };
        match layer {
            Layer::Retry { code, attempts, delay } => {
                let outer = self.attempt;
                let vars = self.vars.clone();
                self.attempt = 0;
                let rise = loop {
                    let runs = self.attempt + 1;
                    self.attempt = runs;
                    let rise = self.stack(rest, inner, input.clone());
                    self.attempt = runs;
                    let Rise::Settled(Err(chain)) = &rise else {
                        break rise;
                    };
                    if !selects(code, chain[0]) {
                        break rise;
                    }
                    if runs >= *attempts {
                        break Rise::Settled(Err([vec![EXHAUSTED], chain.clone()].concat()));
                    }
                    self.vars.clone_from(&vars);
                    if let Err(unwind) = self.gap(*delay) {
                        break unwind;
                    }
                };
                self.attempt = outer;
                rise
            }
            Layer::Loop(times) => {
                let outer = self.attempt;
                self.attempt = 0;
                let mut fed = input;
                let rise = loop {
                    let runs = self.attempt + 1;
                    self.attempt = runs;
                    let place = format!("{layer:p} iteration {runs}");
                    let rise = self.within(place, |model| model.stack(rest, inner, fed));
                    self.attempt = runs;
                    fed = match &rise {
                        Rise::Settled(Ok(value)) if runs < *times => value.clone(),
                        _ => break rise,
                    };
                    if let Err(unwind) = self.gap(0) {
                        break unwind;
                    }
                };
                self.attempt = outer;
                rise
            }
            Layer::Timeout(bound) => {
                let position = self.bounds.len();
                self.bounds.push(self.now + bound);
                let rise = self.stack(rest, inner, input);
                self.bounds.truncate(position);
                self.seam(position, rise)
            }
            Layer::Finally { after, fails } => {
                let rise = self.stack(rest, inner, input);
                let tag = cleanup_tag(layer);
                self.within(format!("cleanup {tag}"), |model| model.dispatched(tag));
                self.clean_up(rise, *after, fails.then_some("Script.Cleanup"))
            }
        }
    }

    /// The conversion seam of the bound at `position`.
    fn seam(&self, position: usize, rise: Rise) -> Rise {
        match rise {
            Rise::Unwind { owner, chain, superseded, cleaned } if owner == position => {
                if cleaned && let Some(owner) = self.due() {
                    let failed = if superseded { chain } else { vec![] };
                    return self.unwind(owner, true, failed);
                }
                Rise::Settled(Err(if superseded { chain } else { chain[1..].to_vec() }))
            }
            rise => rise,
        }
    }

    fn clean_up(&mut self, rise: Rise, after: u64, code: Option<&'static str>) -> Rise {
        let edge = match &rise {
            Rise::Unwind { .. } => Some(self.now + CLEANUP_LIMIT),
            Rise::Settled(_) => self.interruption().map(|(at, _)| at.max(self.now) + CLEANUP_LIMIT),
        };
        let done = self.now + after;
        let cut = edge.filter(|edge| *edge < done);
        self.now = cut.unwrap_or(done);
        self.checked.push(self.now);
        let failed = if cut.is_some() { Some(EXCEEDED) } else { code };
        match rise {
            Rise::Unwind { owner, chain, superseded, .. } => Rise::Unwind {
                owner,
                superseded: superseded || failed.is_some(),
                chain: failed.into_iter().chain(chain).collect(),
                cleaned: true,
            },
            Rise::Settled(settled) => {
                let settled = match failed {
                    None => settled,
                    Some(code) => Err([vec![code], settled.err().unwrap_or_default()].concat()),
                };
                match self.due() {
                    None => Rise::Settled(settled),
                    Some(owner) => {
                        let failed = failed.and_then(|_| settled.err()).unwrap_or_default();
                        self.unwind(owner, true, failed)
                    }
                }
            }
        }
    }

    /// The Result of a graph that comes to this terminal Step.
    fn terminal(&mut self, place: Place, value: Json) -> Settled {
        match place {
            Place::Step(_) | Place::Done => {
                self.failure = None;
                Ok(value)
            }
            Place::Again => Err(self.failure.get_or_insert_with(|| vec![EMPTY_RAISE]).clone()),
            Place::Fail => {
                let chain = [vec![RAISED], self.failure.take().unwrap_or_default()].concat();
                self.failure = Some(chain.clone());
                Err(chain)
            }
        }
    }

    fn graph(&mut self, flow: &Flow, input: Json) -> Rise {
        let mut value = input;
        let mut place = Place::Step(0);
        let mut visits = BTreeMap::<usize, u64>::new();
        loop {
            let Place::Step(at) = place else {
                return Rise::Settled(self.terminal(place, value));
            };
            place = flow.next(at);
            let visit = visits.entry(at).or_default();
            *visit += 1;
            let here = format!("step {at} visit {visit}");
            let (rise, catch) = match &flow.steps[at] {
                Step::Pass(output) => {
                    value = output.map_or(value, Json::from);
                    self.failure = None;
                    continue;
                }
                Step::Match(number, jump) => {
                    if value == json!(number) {
                        place = flow.jump(at, *jump);
                    }
                    self.failure = None;
                    continue;
                }
                Step::Back(jump, times) => {
                    let count = self.vars.entry(at).or_default();
                    if *count < *times {
                        *count += 1;
                        place = back(at, *jump);
                    }
                    self.failure = None;
                    continue;
                }
                Step::Sleep(millis) => {
                    if let Err(unwind) = self.wait(*millis) {
                        return unwind;
                    }
                    self.failure = None;
                    continue;
                }
                Step::Call { call, stack, catch } => {
                    let inner = Inner::Call(call);
                    let run = |model: &mut Self| model.stack(stack, inner, value.clone());
                    (self.within(here, run), catch)
                }
                Step::Gather { form, faults: true, catch, .. } => {
                    let code = if matches!(form, Form::Over(..)) { FAULT } else { INVALID };
                    (Rise::Settled(Err(vec![code])), catch)
                }
                Step::Gather { form, concurrency, completion, catch, .. } => {
                    let run =
                        |model: &mut Self| model.gather(form, *concurrency, *completion, &value);
                    (self.within(here, run), catch)
                }
            };
            match rise {
                Rise::Unwind { .. } => return rise,
                Rise::Settled(Ok(emitted)) => {
                    value = emitted;
                    self.failure = None;
                }
                Rise::Settled(Err(chain)) => {
                    let chain = [chain, self.failure.take().unwrap_or_default()].concat();
                    let clause = catch.iter().find(|(code, _)| selects(code, chain[0]));
                    self.failure = Some(chain.clone());
                    let Some((_, jump)) = clause else {
                        return Rise::Settled(Err(chain));
                    };
                    place = flow.jump(at, *jump);
                }
            }
        }
    }
}

/// `None` if the outcome depends on the scheduler.
pub(super) fn expected(case: &Case) -> Option<(Observed, Operations)> {
    let cancel = case.cancel.map(|at| (at, vec![CANCELLED]));
    let mut model = Model::new(0, 1, cancel);
    let result = match model.flow(&case.flow, json!(1)) {
        Rise::Settled(settled) => settled,
        Rise::Unwind { chain, .. } => Err(chain),
    };
    // The engine cuts longer chains.
    model.ambiguous |= result.as_ref().is_err_and(|chain| chain.len() > MAX_CHAIN);
    let typed = |code: &&str| {
        let ty = match *code {
            CANCELLED | DISPATCH_CANCELLED => "cancellation",
            EXCEEDED => "timeout",
            _ => "error",
        };
        format!("{ty} {code}")
    };
    let result =
        result.map(|value| value.to_string()).map_err(|chain| chain.iter().map(typed).collect());
    let operations = by_operation(model.began.iter().cloned());
    let began = model.began.into_iter().map(|(_, began, tag)| (began, tag)).collect();
    let observed = Observed { result, began: in_order(began, case), ended: model.now };
    (!model.ambiguous).then_some((observed, operations))
}
