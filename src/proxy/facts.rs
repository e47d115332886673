//! What a plan's shape decides about a route's requests: whether bodies are kept or read into memory,
//! and whether a request must be unwound. Found once, when a configuration is loaded.
//!
//! Each answer errs on the side that keeps a policy's meaning: a body that might be read is buffered, a
//! request that might be sent again is kept.

use crate::language::expr::{Path, Program, Root};
use crate::language::plan::Plan;

/// What is true of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent answers, each asked by its own name"
)]
pub(crate) struct Facts {
    /// An expression may read the body of the request.
    pub(crate) reads_request: bool,
    /// An expression may read the body of a response.
    pub(crate) reads_response: bool,
    /// The request may be sent more than once.
    pub(crate) resends: bool,
    /// Several calls make up an execution, whatever fails: a Flow of several Steps, a cleanup.
    pub(crate) several_calls: bool,
    /// Something must run when the request is cut off: a cleanup.
    pub(crate) unwinds: bool,
}

impl Facts {
    /// Reads `plan`.
    pub(crate) fn of(plan: &Plan) -> Self {
        let mut facts = Self {
            resends: plan.redispatches(),
            several_calls: plan.calls_several(),
            unwinds: plan.needs_unwind(),
            ..Self::default()
        };
        for (_, program) in plan.programs() {
            facts.read_by(program);
        }
        facts
    }

    /// An expression of a `classify` rule.
    pub(crate) fn read_by(&mut self, program: &Program) {
        for path in program.reads() {
            self.path(path);
        }
    }

    /// A path that reaches a member `body`: of the response where it goes through a result or a
    /// failure; of the request where it starts at the frame's input; of either where it may be both.
    fn path(&mut self, path: &Path) {
        let Some(end) = path.members.iter().position(|name| &**name == "body") else {
            return;
        };
        let way = path.members.get(..end).unwrap_or_default();
        let through = |names: &[&str]| way.iter().any(|name| names.contains(&&**name));
        let response = matches!(path.root, Root::Response | Root::Failure)
            || through(&["result", "details", "failure"]);
        self.reads_response |= response || !(path.root == Root::Frame && through(&["input"]));
        self.reads_request |= !response;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::expr::PathEnd;

    fn facts(root: Root, members: &[&str]) -> (bool, bool) {
        let mut facts = Facts::default();
        facts.path(&Path {
            root,
            members: members.iter().map(|name| (*name).into()).collect(),
            end: PathEnd::Value,
        });
        (facts.reads_request, facts.reads_response)
    }

    #[test]
    fn a_path_says_which_body_it_reads() {
        assert_eq!(facts(Root::Frame, &["input", "body", "id"]), (true, false));
        assert_eq!(facts(Root::Step, &["input", "body"]), (true, true));
        assert_eq!(facts(Root::Vars, &["kept", "body"]), (true, true));
        let details = ["result", "details", "body"];
        assert_eq!(facts(Root::Middleware, &details), (false, true));
        assert_eq!(facts(Root::Response, &["body"]), (false, true));
        assert_eq!(facts(Root::Step, &["input", "headers"]), (false, false));
    }
}
