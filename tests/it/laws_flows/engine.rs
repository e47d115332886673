//! The same Flow as a definition, and its run by the engine.

use super::*;

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
        Step::Back(jump, times) => {
            let count = format!("back{at}");
            let so_far = format!("(has(vars.{count}) ? vars.{count} : 0.0)");
            json!({
                "action": "Match",
                "cases": [{
                    "when": format!("{{{{ {so_far} < {times}.0 }}}}"),
                    "assign": { (count): format!("{{{{ {so_far} + 1.0 }}}}") },
                    "next": name(back(at, *jump)),
                }],
                "default": { "next": next },
            })
        }
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

pub(super) async fn observed(case: &Case) -> (Observed, Operations) {
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
        (seen.key, began, seen.tag.clone())
    });
    let operations = by_operation(dispatches.clone());
    let began = dispatches.map(|(_, began, tag)| (began, tag)).collect();
    (Observed { result, began: in_order(began, case), ended }, operations)
}
