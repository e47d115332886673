//! What an expression may read, depending on its place (MWL, "Execution context").
//!
//! A site knows which roots are in scope, and which of their members can exist at that time.

use crate::language::expr::{Path, Root, Roots};

/// The place of an expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site<'a> {
    pub(super) roots: Roots,
    /// Whether the Step's action is done, and what it left.
    action: ActionState,
    /// Whether a `Gather` dispatches the call.
    gathered: bool,
    /// Whether it is in an arm of the call, whose target has settled by then.
    in_arm: bool,
    /// Whether it is in an ascent phase, past which a Result rises.
    ascending: bool,
    /// What the entry's middleware contributes to `middleware.metadata`; `None` if that is not known.
    contributed: Option<&'a [String]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActionState {
    /// It is not done yet.
    Pending,
    /// It has left a call's Result.
    CallDone,
    /// It has left the Results of a `Gather`.
    GatherDone,
    /// It is done and leaves no Result.
    Done,
}

/// `vars`, `execution`, `frame` and the failure context: in scope everywhere in a frame.
const AMBIENT: Roots = Roots::of(&[Root::Vars, Root::Execution, Root::Frame, Root::Failure]);

impl<'a> Site<'a> {
    /// In a Flow's stack, where no Step runs.
    pub(super) const fn flow() -> Self {
        Self {
            roots: AMBIENT,
            action: ActionState::Pending,
            gathered: false,
            in_arm: false,
            ascending: false,
            contributed: None,
        }
    }

    /// In a Step, before its action is done.
    pub(super) const fn step() -> Self {
        Self::flow().with(Roots::of(&[Root::Step]))
    }

    /// In the tail of a `Call` Step: `output`, `assign`, `catch`.
    pub(super) const fn after_call() -> Self {
        Self { action: ActionState::CallDone, ..Self::step() }
    }

    /// In the tail of a `Gather` Step.
    pub(super) const fn after_gather() -> Self {
        Self { action: ActionState::GatherDone, ..Self::step() }
    }

    /// In the tail of a Step whose action leaves no Result.
    pub(super) const fn tail() -> Self {
        Self { action: ActionState::Done, ..Self::step() }
    }

    /// In a clause of a `Match`.
    pub(super) const fn clause() -> Self {
        Self::tail().with(Roots::of(&[Root::Match]))
    }

    /// In a phase block of an entry on a stack at this site.
    pub(super) const fn phase(self, ascending: bool, contributed: Option<&'a [String]>) -> Self {
        Self { ascending, contributed, ..self.with(Roots::of(&[Root::Middleware])) }
    }

    /// In the `input` and `with` of a call at this site.
    pub(super) const fn call(self, gathered: bool) -> Self {
        Self { gathered, ..self.with(Roots::of(&[Root::Call])) }
    }

    /// In the arms of the call at this site, which see the target by the root `window`.
    pub(super) const fn arm(self, window: Root) -> Self {
        Self { in_arm: true, ..self.with(Roots::of(&[window])) }
    }

    const fn with(self, more: Roots) -> Self {
        Self { roots: self.roots.union(more), ..self }
    }

    /// Why `path` can never hold anything here, if that is so.
    pub(super) fn absence(&self, path: &Path) -> Option<String> {
        let mut members = path.members.iter().map(AsRef::as_ref);
        let first = members.next()?;
        let second = members.next();
        let reason = match (path.root, first, second) {
            (Root::Step, "result", _) if self.action != ActionState::CallDone => {
                "it is there in a `Call` Step's `output`, `assign` and `catch`"
            }
            (Root::Step, "results", _) if self.action != ActionState::GatherDone => {
                "it is there in a `Gather` Step's `output`, `assign` and `catch`"
            }
            (Root::Step, "metadata", Some("exitedAt")) if self.action == ActionState::Pending => {
                "a Step's exit is there in its `output`, `assign` and `catch`"
            }
            (Root::Call, "index", _) if !self.gathered => {
                "only a call that a `Gather` dispatches has an index"
            }
            (Root::Call, "result", _)
            | (Root::Call, "metadata", Some("exitedAt" | "dispatchedAt" | "acceptedAt"))
                if !self.in_arm =>
            {
                "it is there in the call's arms, `onSuccess` and `onFailure`"
            }
            (Root::Middleware, "result", _) if !self.ascending => {
                "nothing has run yet in `onEntry`; the ascent phases have a result"
            }
            (Root::Middleware | Root::Execution | Root::Frame, "metadata", Some("exitedAt")) => {
                "it is set after the last expression that could read it"
            }
            (Root::Frame, "vars", _) => "a frame reads its own variables as `vars`",
            (Root::Frame, "result", _) => "a frame has no result while it runs",
            (Root::Middleware, "metadata", Some(name)) => return self.uncontributed(name),
            (root, "metadata", Some(name)) => return unknown_record_member(root, name),
            (root, name, _) => return unknown_member(root, name),
        };
        Some(reason.to_owned())
    }

    fn uncontributed(&self, name: &str) -> Option<String> {
        let contributed = self.contributed?;
        if name == "enteredAt" || contributed.iter().any(|member| member == name) {
            return None;
        }
        let known = contributed.iter().map(String::as_str).chain(["enteredAt"]);
        Some(super::suggestion(name, known))
    }
}

fn unknown_member(root: Root, name: &str) -> Option<String> {
    let known: &[&str] = match root {
        Root::Execution => &["id", "metadata", "platform"],
        Root::Frame | Root::Match => &["input", "metadata"],
        Root::Step => &["name", "id", "action", "input", "result", "results", "metadata"],
        Root::Call => &["input", "index", "result", "metadata"],
        Root::Flow => &["input", "metadata", "vars", "result"],
        Root::Provider | Root::Middleware => &["input", "result", "metadata"],
        Root::Failure => &["type", "code", "message", "details", "retryable", "previous"],
        Root::Vars | Root::Response => return None,
    };
    if known.contains(&name) {
        return None;
    }
    Some(super::suggestion(name, known.iter().copied()))
}

/// "Metadata records": the two members that every record has, and what a Step's or a Call's action adds.
fn unknown_record_member(root: Root, name: &str) -> Option<String> {
    let known: &[&str] = match root {
        Root::Execution | Root::Frame | Root::Flow | Root::Match => &["enteredAt", "exitedAt"],
        Root::Step => &["enteredAt", "exitedAt", "dispatchCount"],
        Root::Call => &["enteredAt", "exitedAt", "dispatchedAt", "acceptedAt"],
        _ => return None,
    };
    (!known.contains(&name)).then(|| super::suggestion(name, known.iter().copied()))
}

/// The part of `path` that decides whether it can be read, as an author writes it.
pub(super) fn name(path: &Path) -> String {
    let metadata = path.members.first().is_some_and(|first| first.as_ref() == "metadata");
    let members = path.members.iter().take(if metadata { 2 } else { 1 });
    let mut name = path.root.name().to_owned();
    for member in members {
        name.push('.');
        name.push_str(member);
    }
    name
}
