//! What the expressions of a plan may read that costs the engine something to have at hand.

use super::Plan;
use crate::language::expr::{Path, Program, Root};

/// What any expression of a plan may read. Each answer errs towards yes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// An instant: `now()`, or a record's. Without it the clock is left alone.
    pub instants: bool,
    /// `execution.platform`.
    pub platform: bool,
}

impl Needs {
    /// What the expressions of `plan` may read.
    pub(super) fn of(plan: &Plan) -> Self {
        let mut needs = Self::default();
        for (_, program) in plan.programs() {
            needs.instants |= shows_instant(program);
            needs.platform |= program.reads().iter().any(shows_platform);
        }
        needs
    }
}

/// Whether `program` may come upon an instant. They are in the records, which every root but these three
/// holds as its `metadata`; what is in a variable was read by an expression that put it there.
fn shows_instant(program: &Program) -> bool {
    program.is_pinned()
        || program.reads().iter().any(|path| {
            let without = matches!(path.root, Root::Vars | Root::Failure | Root::Response);
            !without && may_be(path, "metadata")
        })
}

fn shows_platform(path: &Path) -> bool {
    path.root == Root::Execution && may_be(path, "platform")
}

/// Whether `path` may lead to or through its root's member `name`.
fn may_be(path: &Path, name: &str) -> bool {
    path.members.first().is_none_or(|first| first.as_ref() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::expr::Roots;

    fn needs(body: &str) -> (bool, bool) {
        let program = Program::compile(body, Roots::of(&Root::ALL)).unwrap();
        (shows_instant(&program), program.reads().iter().any(shows_platform))
    }

    #[test]
    fn an_expression_needs_what_it_may_read() {
        for (body, wanted) in [
            ("execution.id", (false, false)),
            ("execution.platform.route", (false, true)),
            ("has(execution.platform)", (false, true)),
            ("execution", (true, true)),
            ("execution[vars.key]", (true, true)),
            ("execution.metadata.enteredAt", (true, false)),
            ("middleware.result.details.retryAfter", (false, false)),
            ("{'r': middleware.result, 'id': execution.id}", (false, false)),
            ("middleware.metadata.attempt < 3", (true, false)),
            ("middleware", (true, false)),
            ("[step].map(s, s.metadata.enteredAt)", (true, false)),
            ("step.result.value.metadata", (false, false)),
            ("string(now())", (true, false)),
            ("string(wallTime())", (false, false)),
            ("vars.metadata", (false, false)),
            ("failure.code", (false, false)),
            ("1 + 1 == 2", (false, false)),
        ] {
            assert_eq!(needs(body), wanted, "{body}");
        }
    }
}
