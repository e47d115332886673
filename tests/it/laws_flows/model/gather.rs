//! What a `Gather` does in the model.

use super::*;

/// A dispatch of a `Gather` that began: the Result of its target, and the arms to run.
type Slot = Option<(Settled, Arms)>;

impl Model {
    pub(super) fn gather(
        &mut self,
        form: &Form,
        concurrency: Option<usize>,
        completion: Option<(usize, bool)>,
        received: &Json,
    ) -> Rise {
        let dispatches = dispatches(form, received);
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
                    self.meets(at, owner);
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
                let mut alone = self.alone(index, self.now, None);
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
                self.meets(at, owner);
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
            let mut alone = self.alone(index, since, None);
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

    /// The dispatch at `index`, which began at `since`, on its own clock.
    fn alone(&self, index: usize, since: u64, cancel: Option<(u64, Chain)>) -> Self {
        let mut alone = Self::new(since, self.attempt, cancel);
        alone.at.clone_from(&self.at);
        alone.at.push(format!("dispatch {index}"));
        alone
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
            let mut alone = self.alone(*index, *since, Some(cancel.clone()));
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

/// The calls of a `Gather`, each with its input.
fn dispatches<'f>(form: &'f Form, received: &Json) -> Vec<(&'f Call, Json)> {
    match form {
        Form::Over(elements, call) => {
            elements.iter().map(|element| (call, json!(element))).collect()
        }
        Form::Calls(calls) => calls.iter().map(|call| (call, received.clone())).collect(),
    }
}
