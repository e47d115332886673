//! What the expressions of a plan may read, if having it ready costs the engine something.

use super::Plan;
use crate::language::expr::{Path, Program, Root};

/// What the expressions of a plan may read. If in doubt, the answer is yes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// An instant: `now()`, or one of a record. If not, the clock need not be read.
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

/// Whether `program` may read an instant. Instants are in records, which are the `metadata` of every root
/// except these three. One in a variable was read before, by the expression that assigned it.
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

/// Whether `path` may read its root's member `name`, or something in it.
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
