//! Random Flows, compared with a small recursive model of the specification. Both must have the same Result
//! (its value, or the types and codes of its chain), the same dispatches at the same virtual instants, and
//! the same end.
//!
//! The graphs only go forwards, so each ends. What a call does depends only on its attempt. So the dispatches
//! of a `Gather` are independent, and the model runs each on its own clock: once undisturbed, to learn when
//! it would end, and again if something interrupts it before that.

use std::collections::BTreeSet;

use mwl_proxy::language::outcome::Outcome;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::support::law::{
    CANCELLED, CLEANUP_LIMIT, EXCEEDED, EXHAUSTED, SCRIPT, cases, duration, ended, in_virtual_time,
    middleware,
};
use crate::support::script::Scripted;

const DISPATCH_CANCELLED: &str = "System.GatherDispatchCancelled";
const UNMET: &str = "System.GatherCompletionUnmet";
const EMPTY_RAISE: &str = "System.EmptyRaise";
const RAISED: &str = "Script.Raised";
const FAULT: &str = "System.ExpressionEvaluationError";
const INVALID: &str = "System.ParameterValidationFailed";
/// An expression that always faults.
const FAULTY: &str = "{{ vars.absent }}";

#[derive(Clone, Debug)]
struct Flow {
    stack: Vec<Layer>,
    /// After the last come three terminal Steps: see [`Place`].
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Emits the number, if one is given.
    Pass(Option<u64>),
    /// If the value is this number, control jumps.
    Match(u64, Jump),
    Sleep(u64),
    Call {
        call: Call,
        stack: Vec<Layer>,
        catch: Vec<(&'static str, Jump)>,
    },
    Gather {
        form: Form,
        /// Whether a field of its own faults: `over`, or `successes` in the other form.
        faults: bool,
        concurrency: Option<usize>,
        /// How many must succeed, and whether it waits for the rest.
        completion: Option<(usize, bool)>,
        catch: Vec<(&'static str, Jump)>,
    },
}

/// The number of one of the places after the Step, modulo how many there are.
type Jump = usize;

#[derive(Clone, Debug)]
enum Form {
    Over(Vec<u64>, Call),
    Calls(Vec<Call>),
}

#[derive(Clone, Debug)]
struct Call {
    target: Target,
    arms: Arms,
}

/// What a call's arms do.
#[derive(Clone, Copy, Debug)]
enum Arms {
    Nothing,
    /// The success arm gives this number; the failure arm captures.
    Give(u64),
    /// The arm that runs faults.
    Fault,
}

#[derive(Clone, Debug)]
enum Target {
    /// For each attempt how many milliseconds it takes, and the code with which it fails, if any.
    Script(Vec<(u64, Option<&'static str>)>),
    Flow(Box<Flow>),
}

#[derive(Clone, Debug)]
enum Layer {
    Retry {
        code: &'static str,
        attempts: u32,
        delay: u64,
    },
    Timeout(u64),
    /// Runs this often, each time on the value of the last run.
    Loop(u32),
    /// A cleanup that takes this long, and whether it then fails.
    Finally {
        after: u64,
        fails: bool,
    },
}

#[derive(Clone, Debug)]
struct Case {
    flow: Flow,
    cancel: Option<u64>,
}

/// The outcome of a run.
#[derive(Debug, PartialEq)]
struct Observed {
    /// The value as JSON text, or `type code` for each failure of the chain.
    result: Result<String, Vec<String>>,
    /// When each dispatch began, and its tag. If some run concurrently, those of one instant are sorted by
    /// tag.
    began: Vec<(u64, String)>,
    ended: u64,
}

/// Where control may go: to a Step, or to one of the three terminal Steps of every Flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Step(usize),
    /// A `Return`.
    Done,
    /// A bare `Raise`.
    Again,
    /// A `Raise` of a failure of its own.
    Fail,
}

impl Flow {
    fn next(&self, at: usize) -> Place {
        if at + 1 < self.steps.len() { Place::Step(at + 1) } else { Place::Done }
    }

    fn jump(&self, at: usize, jump: Jump) -> Place {
        let after = self.steps.len() - at - 1;
        match jump % (after + 3) {
            step if step < after => Place::Step(at + 1 + step),
            rest if rest == after => Place::Done,
            rest if rest == after + 1 => Place::Again,
            _ => Place::Fail,
        }
    }

    /// The places that control can reach. The definition has no others.
    fn reachable(&self) -> BTreeSet<Place> {
        let mut reached = BTreeSet::from([Place::Step(0)]);
        for (at, step) in self.steps.iter().enumerate() {
            if !reached.contains(&Place::Step(at)) {
                continue;
            }
            reached.insert(self.next(at));
            match step {
                Step::Match(_, jump) => {
                    reached.insert(self.jump(at, *jump));
                }
                Step::Call { catch, .. } | Step::Gather { catch, .. } => {
                    reached.extend(catch.iter().map(|(_, jump)| self.jump(at, *jump)));
                }
                Step::Pass(_) | Step::Sleep(_) => {}
            }
        }
        reached
    }

    fn gathers(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Gather { .. } => true,
            Step::Call { call, .. } => call.target.flow().is_some_and(Self::gathers),
            _ => false,
        })
    }

    /// Whether something in it is run again without a wait.
    fn hurries(&self) -> bool {
        let hurries =
            |layer: &Layer| matches!(layer, Layer::Retry { delay: 0, .. } | Layer::Loop(_));
        self.stack.iter().any(hurries)
            || self.steps.iter().any(|step| match step {
                Step::Call { call, stack, .. } => {
                    stack.iter().any(hurries) || call.target.hurries()
                }
                Step::Gather { form: Form::Over(_, call), .. } => call.target.hurries(),
                Step::Gather { form: Form::Calls(calls), .. } => {
                    calls.iter().any(|call| call.target.hurries())
                }
                _ => false,
            })
    }
}

impl Target {
    fn flow(&self) -> Option<&Flow> {
        match self {
            Self::Flow(flow) => Some(flow),
            Self::Script(_) => None,
        }
    }

    fn hurries(&self) -> bool {
        self.flow().is_some_and(Flow::hurries)
    }
}

impl Arms {
    /// The call's Result, from that of its target.
    fn finish(self, settled: Settled) -> Settled {
        match (self, settled) {
            (Self::Give(number), Ok(_)) => Ok(json!(number)),
            (Self::Fault, settled) => {
                Err([vec![FAULT], settled.err().unwrap_or_default()].concat())
            }
            (_, settled) => settled,
        }
    }
}

fn selects(pattern: &str, code: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => code.starts_with(prefix),
        None => code == pattern,
    }
}

// --- the model -----------------------------------------------------------------------------------

type Chain = Vec<&'static str>;
type Settled = Result<Json, Chain>;

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
    began: Vec<(u64, String)>,
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
            return Err(self.unwind(owner, false, vec![]));
        }
        self.now = done;
        Ok(())
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

    fn call(&mut self, call: &Call, input: Json) -> Rise {
        match self.target(&call.target, &tag_of(call), input) {
            Rise::Settled(settled) => Rise::Settled(call.arms.finish(settled)),
            unwind @ Rise::Unwind { .. } => unwind,
        }
    }

    fn flow(&mut self, flow: &Flow, input: Json) -> Rise {
        let outer = self.failure.take();
        let rise = self.stack(&flow.stack, Inner::Graph(flow), input);
        self.failure = outer;
        rise
    }

    fn target(&mut self, target: &Target, tag: &str, input: Json) -> Rise {
        match target {
            Target::Flow(flow) => self.flow(flow, input),
            Target::Script(turns) => {
                let number = usize::try_from(self.attempt).unwrap() - 1;
                let (after, code) = turns[number.min(turns.len() - 1)];
                self.began.push((self.now, tag.to_owned()));
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
                    let rise = self.stack(rest, inner, fed);
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
                self.began.push((self.now, cleanup_tag(layer)));
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

    fn graph(&mut self, flow: &Flow, input: Json) -> Rise {
        let mut value = input;
        let mut place = Place::Step(0);
        loop {
            let at = match place {
                Place::Step(at) => at,
                Place::Done => return Rise::Settled(Ok(value)),
                Place::Again => {
                    let chain = self.failure.get_or_insert_with(|| vec![EMPTY_RAISE]);
                    return Rise::Settled(Err(chain.clone()));
                }
                Place::Fail => {
                    let chain = [vec![RAISED], self.failure.take().unwrap_or_default()].concat();
                    self.failure = Some(chain.clone());
                    return Rise::Settled(Err(chain));
                }
            };
            place = flow.next(at);
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
                Step::Sleep(millis) => {
                    if let Err(unwind) = self.wait(*millis) {
                        return unwind;
                    }
                    self.failure = None;
                    continue;
                }
                Step::Call { call, stack, catch } => {
                    (self.stack(stack, Inner::Call(call), value.clone()), catch)
                }
                Step::Gather { form, faults: true, catch, .. } => {
                    let code = if matches!(form, Form::Over(..)) { FAULT } else { INVALID };
                    (Rise::Settled(Err(vec![code])), catch)
                }
                Step::Gather { form, concurrency, completion, catch, .. } => {
                    (self.gather(form, *concurrency, *completion, &value), catch)
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

    fn gather(
        &mut self,
        form: &Form,
        concurrency: Option<usize>,
        completion: Option<(usize, bool)>,
        received: &Json,
    ) -> Rise {
        let dispatches: Vec<(&Call, Json)> = match form {
            Form::Over(elements, call) => {
                elements.iter().map(|element| (call, json!(element))).collect()
            }
            Form::Calls(calls) => calls.iter().map(|call| (call, received.clone())).collect(),
        };
        let hurries = dispatches.iter().any(|(call, _)| call.target.hurries());
        let count = dispatches.len();
        let (wanted, wait) = completion.unwrap_or((count, true));
        let mut slots: Vec<Slot> = vec![None; count];
        let mut pending = 0..count;
        // The dispatches in flight: when each ends if undisturbed, its index, and when it began.
        let mut active: Vec<(u64, usize, u64)> = Vec::new();
        let (mut successes, mut failures) = (0, 0);
        loop {
            let determined = successes >= wanted || count - failures < wanted;
            if determined && !wait {
                let cancelled = (self.now, vec![DISPATCH_CANCELLED]);
                let interrupted = self.interruption();
                let end = self.interrupt(&dispatches, &active, &cancelled, &mut slots);
                if let Some((at, owner)) = interrupted
                    && at < end
                {
                    self.now = end;
                    return self.unwind(owner, true, vec![]);
                }
                self.now = end;
                break;
            }
            while active.len() < concurrency.unwrap_or(usize::MAX)
                && let Some(index) = pending.next()
            {
                let (call, input) = &dispatches[index];
                let mut alone = Self::new(self.now, self.attempt, None);
                alone.target(&call.target, &tag_of(call), input.clone());
                self.ambiguous |= alone.ambiguous;
                active.push((alone.now, index, self.now));
            }
            active.sort_unstable();
            let Some(&(end, index, since)) = active.first() else {
                break;
            };
            let interruption = self.interruption();
            // A dispatch that yields at the instant of an interruption may or may not be seen as settled.
            self.ambiguous |= hurries && interruption.is_some_and(|(at, _)| at == end);
            if let Some((at, owner)) = interruption
                && at < end
            {
                self.now = self.now.max(at);
                let unwind = self.unwind(owner, true, vec![]);
                let Rise::Unwind { chain, .. } = &unwind else {
                    return unwind;
                };
                self.now =
                    self.interrupt(&dispatches, &active, &(self.now, chain.clone()), &mut slots);
                return unwind;
            }
            // If two end together, it depends on which is seen first whether a third begins.
            let together = active.get(1).is_some_and(|(other, ..)| *other == end);
            self.ambiguous |= together && !wait && (hurries || !pending.is_empty());
            active.remove(0);
            let (call, input) = &dispatches[index];
            let mut alone = Self::new(since, self.attempt, None);
            let Rise::Settled(settled) = alone.target(&call.target, &tag_of(call), input.clone())
            else {
                unreachable!("nothing interrupts it");
            };
            self.began.append(&mut alone.began);
            match &settled {
                Ok(_) => successes += 1,
                Err(_) => failures += 1,
            }
            slots[index] = Some((settled, call.arms));
            self.now = end;
        }
        // The arms run at the end, for the dispatches that settled by themselves.
        let slots = slots.into_iter().flatten().map(|(settled, arms)| arms.finish(settled));
        let values: Vec<Json> = slots.filter_map(Result::ok).collect();
        Rise::Settled(if values.len() < wanted {
            Err(vec![UNMET])
        } else {
            Ok(Json::Array(values))
        })
    }

    /// Interrupts what is in flight, and returns when the last of it has resolved.
    fn interrupt(
        &mut self,
        dispatches: &[(&Call, Json)],
        active: &[(u64, usize, u64)],
        cancel: &(u64, Chain),
        slots: &mut [Slot],
    ) -> u64 {
        let mut end = cancel.0;
        for (_, index, since) in active {
            let (call, input) = &dispatches[*index];
            let mut alone = Self::new(*since, self.attempt, Some(cancel.clone()));
            let rise = alone.target(&call.target, &tag_of(call), input.clone());
            slots[*index] = Some(match rise {
                Rise::Settled(settled) => (settled, call.arms),
                Rise::Unwind { chain, .. } => (Err(chain), Arms::Nothing),
            });
            end = end.max(alone.now);
            self.ambiguous |= alone.ambiguous || alone.checked.contains(&cancel.0);
            self.began.append(&mut alone.began);
        }
        end
    }
}

/// A dispatch of a `Gather` that began: the Result of its target, and the arms to run.
type Slot = Option<(Settled, Arms)>;

/// A call's tag: its address in memory, which is unique because a case holds each call once.
fn tag_of(call: &Call) -> String {
    format!("{call:p}")
}

fn cleanup_tag(layer: &Layer) -> String {
    format!("{layer:p}")
}

/// `None` if the outcome depends on the scheduler.
fn expected(case: &Case) -> Option<Observed> {
    let cancel = case.cancel.map(|at| (at, vec![CANCELLED]));
    let mut model = Model::new(0, 1, cancel);
    let result = match model.flow(&case.flow, json!(1)) {
        Rise::Settled(settled) => settled,
        Rise::Unwind { chain, .. } => Err(chain),
    };
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
    let observed = Observed { result, began: in_order(model.began, case), ended: model.now };
    (!model.ambiguous).then_some(observed)
}

fn in_order(mut began: Vec<(u64, String)>, case: &Case) -> Vec<(u64, String)> {
    if case.flow.gathers() {
        began.sort();
    }
    began
}

// --- the engine ----------------------------------------------------------------------------------

fn entry(layer: &Layer) -> Json {
    match layer {
        Layer::Retry { code, attempts, delay } => {
            let mut policy = json!({ "match": { "codes": [code] }, "attempts": attempts });
            if *delay > 0 {
                policy["backoff"] = json!({ "initial": duration(*delay) });
            }
            json!({
                "provider": middleware("retry"),
                "onEntry": { "with": { "policies": [policy] } },
            })
        }
        Layer::Loop(times) => json!({
            "provider": middleware("loop"),
            "onSuccess": { "when": format!("{{{{ middleware.metadata.iteration < {times} }}}}") },
        }),
        Layer::Timeout(bound) => json!({
            "provider": middleware("timeout"),
            "onEntry": { "with": { "duration": duration(*bound) } },
        }),
        Layer::Finally { after, fails } => {
            let mut with = json!({ "tag": cleanup_tag(layer), "after": after });
            if *fails {
                with["code"] = json!("Script.Cleanup");
            }
            let call = json!({ "provider": SCRIPT, "with": with });
            json!({ "provider": middleware("finally"), "onAlways": { "with": { "call": call } } })
        }
    }
}

fn stack(layers: &[Layer]) -> Json {
    layers.iter().map(entry).collect()
}

fn call(call: &Call) -> Json {
    let mut written = match &call.target {
        Target::Flow(inner) => json!({ "flow": flow(inner) }),
        Target::Script(turns) => {
            let turns: Vec<_> =
                turns.iter().map(|(after, code)| json!({ "after": after, "code": code })).collect();
            json!({ "provider": SCRIPT, "with": { "tag": tag_of(call), "turns": turns } })
        }
    };
    match call.arms {
        Arms::Nothing => {}
        Arms::Give(number) => {
            written["onSuccess"] = json!({ "value": number });
            written["onFailure"] = json!({ "assign": { "code": "{{ call.result.code }}" } });
        }
        Arms::Fault => {
            written["onSuccess"] = json!({ "value": FAULTY });
            written["onFailure"] = json!({ "assign": { "code": FAULTY } });
        }
    }
    written
}

fn name(place: Place) -> String {
    match place {
        Place::Step(at) => format!("step-{at}"),
        Place::Done => "done".to_owned(),
        Place::Again => "again".to_owned(),
        Place::Fail => "fail".to_owned(),
    }
}

fn step(flow: &Flow, at: usize) -> Json {
    let next = name(flow.next(at));
    let clauses = |catch: &[(&str, Jump)]| -> Json {
        catch
            .iter()
            .map(|(code, jump)| {
                json!({ "match": { "codes": [code] }, "next": name(flow.jump(at, *jump)) })
            })
            .collect()
    };
    match &flow.steps[at] {
        Step::Pass(None) => json!({ "action": "Pass", "next": next }),
        Step::Pass(Some(output)) => json!({ "action": "Pass", "output": output, "next": next }),
        Step::Match(number, jump) => json!({
            "action": "Match",
            "cases": [{
                "when": format!("{{{{ match.input == {number}.0 }}}}"),
                "next": name(flow.jump(at, *jump)),
            }],
            "default": { "next": next },
        }),
        Step::Sleep(millis) => {
            json!({ "action": "Sleep", "for": duration(*millis), "next": next })
        }
        Step::Call { call: target, stack: layers, catch } => json!({
            "action": "Call",
            "call": call(target),
            "middleware": stack(layers),
            "catch": clauses(catch),
            "next": next,
        }),
        Step::Gather { form, faults, concurrency, completion, catch } => {
            let mut step = json!({
                "action": "Gather",
                "concurrency": concurrency,
                "catch": clauses(catch),
                "next": next,
            });
            match form {
                Form::Over(elements, target) => {
                    step["over"] = json!(elements);
                    step["call"] = call(target);
                }
                Form::Calls(calls) => step["calls"] = calls.iter().map(call).collect(),
            }
            if let Some((successes, wait)) = completion {
                step["completion"] = json!({ "successes": successes, "wait": wait });
            }
            match form {
                Form::Over(..) if *faults => step["over"] = json!(FAULTY),
                Form::Calls(_) if *faults => {
                    step["completion"] = json!({ "successes": "{{ 'many' }}" });
                }
                _ => {}
            }
            step
        }
    }
}

fn flow(plan: &Flow) -> Json {
    let steps: serde_json::Map<_, _> = plan
        .reachable()
        .into_iter()
        .map(|place| {
            let step = match place {
                Place::Step(at) => step(plan, at),
                Place::Done => json!({ "action": "Return" }),
                Place::Again => json!({ "action": "Raise" }),
                Place::Fail => json!({ "action": "Raise", "result": { "code": RAISED } }),
            };
            (name(place), step)
        })
        .collect();
    json!({ "entrypoint": "step-0", "middleware": stack(&plan.stack), "steps": steps })
}

async fn observed(case: &Case) -> Observed {
    let scripted = Scripted::new(Vec::new());
    let (outcome, ended) = ended(&scripted, flow(&case.flow), case.cancel).await;
    let result = match &outcome {
        Outcome::Success(value) => Ok(value.to_string()),
        Outcome::Failure(failure) => {
            Err(failure.chain().map(|link| format!("{} {}", link.ty, link.code)).collect())
        }
    };
    let seen = scripted.seen.lock().unwrap();
    let dispatches = seen.iter().map(|seen| {
        let began = u64::try_from(seen.began.as_millis()).unwrap();
        (began, seen.tag.clone())
    });
    Observed { result, began: in_order(dispatches.collect(), case), ended }
}

// --- the cases -----------------------------------------------------------------------------------

fn code() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("Script.A"), Just("Script.B")]
}

fn pattern() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        3 => Just("*"),
        2 => Just("Script.A"),
        1 => Just("Script.*"),
        1 => Just("System.*"),
        1 => Just(EXCEEDED),
    ]
}

/// All waits are even and the instant of the cancellation is odd, as in `laws`.
fn even(least: u64, most: u64) -> impl Strategy<Value = u64> {
    (least..=most).prop_map(|half| 2 * half)
}

fn layers(most: usize) -> impl Strategy<Value = Vec<Layer>> {
    let layer = prop_oneof![
        3 => (pattern(), 1..4_u32, even(0, 15)).prop_map(|(code, attempts, delay)| Layer::Retry {
            code,
            attempts,
            delay
        }),
        3 => even(0, 80).prop_map(Layer::Timeout),
        1 => (1..4_u32).prop_map(Layer::Loop),
        3 => (even(0, 30), proptest::bool::weighted(0.3))
            .prop_map(|(after, fails)| Layer::Finally { after, fails }),
    ];
    proptest::collection::vec(layer, 0..=most)
}

fn script() -> impl Strategy<Value = Target> {
    let turn = (even(0, 30), proptest::option::weighted(0.5, code()));
    proptest::collection::vec(turn, 1..4).prop_map(Target::Script)
}

fn arms() -> impl Strategy<Value = Arms> {
    prop_oneof![
        6 => Just(Arms::Nothing),
        2 => (0..4_u64).prop_map(Arms::Give),
        1 => Just(Arms::Fault),
    ]
}

fn step_over(target: BoxedStrategy<Target>) -> impl Strategy<Value = Step> {
    let call = (target, arms()).prop_map(|(target, arms)| Call { target, arms }).boxed();
    let catch = proptest::collection::vec((pattern(), 0..8_usize), 0..3).boxed();
    let form = prop_oneof![
        (proptest::collection::vec(0..4_u64, 0..4), call.clone())
            .prop_map(|(elements, call)| Form::Over(elements, call)),
        proptest::collection::vec(call.clone(), 1..4).prop_map(Form::Calls),
    ];
    prop_oneof![
        1 => proptest::option::of(0..4_u64).prop_map(Step::Pass),
        1 => (0..4_u64, 0..8_usize).prop_map(|(number, jump)| Step::Match(number, jump)),
        1 => even(0, 20).prop_map(Step::Sleep),
        4 => (call, layers(3), catch.clone()).prop_map(|(call, stack, catch)| Step::Call {
            call,
            stack,
            catch,
        }),
        3 => (
            form,
            proptest::bool::weighted(0.1),
            proptest::option::of(1..4_usize),
            proptest::option::weighted(0.7, (0..5_usize, any::<bool>())),
            catch,
        )
            .prop_map(|(form, faults, concurrency, completion, catch)| Step::Gather {
                form,
                faults,
                concurrency,
                completion,
                catch,
            }),
    ]
}

fn flow_over(target: BoxedStrategy<Target>) -> impl Strategy<Value = Flow> {
    let steps = proptest::collection::vec(step_over(target), 1..5);
    (layers(2), steps).prop_map(|(stack, steps)| Flow { stack, steps })
}

fn case() -> impl Strategy<Value = Case> {
    let target = script().boxed().prop_recursive(3, 24, 3, |target| {
        prop_oneof![script(), flow_over(target).prop_map(|flow| Target::Flow(Box::new(flow))),]
    });
    let cancel = proptest::option::weighted(0.4, (0..100_u64).prop_map(|half| 2 * half + 1));
    (flow_over(target.boxed()), cancel).prop_map(|(flow, cancel)| Case { flow, cancel })
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn a_random_flow_agrees_with_the_model(case in case()) {
        let Some(expected) = expected(&case) else {
            return Err(TestCaseError::reject("two events at one instant"));
        };
        let observed = in_virtual_time(observed(&case));
        prop_assert_eq!(observed, expected);
    }
}
