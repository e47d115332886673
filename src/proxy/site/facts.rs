//! What the shape of a plan decides about a route's requests: whether bodies are kept or read into memory, and
//! whether a request must be unwound. Computed once, when a configuration is loaded.
//!
//! In doubt, each answer keeps a policy's meaning: a body that might be read is buffered, a request that might
//! be sent again is kept.

use crate::language::expr::{Path, PathEnd, Program, Root};
use crate::language::plan::Plan;

/// The properties of a plan.
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
    /// The request may be sent several times side by side.
    pub(crate) fans_out: bool,
    /// A middleware looks at the whole request.
    pub(crate) looks_at_request: bool,
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
            fans_out: plan.fans_out(),
            several_calls: plan.calls_several(),
            unwinds: plan.needs_unwind(),
            ..Self::default()
        };
        plan.each_entry(&mut |_, entry| {
            facts.looks_at_request |= entry.middleware.reads_input();
        });
        for (_, program) in plan.programs() {
            facts.read_by(program);
        }
        facts
    }

    /// An expression reads the bodies that `program` may read.
    pub(crate) fn read_by(&mut self, program: &Program) {
        let blind = program.may_select("body");
        for path in program.reads() {
            self.path(path, blind);
        }
    }

    /// Handles a path that may reach a member `body`: it names one, it continues with an unknown name, or (`blind`)
    /// the expression reads one somewhere below the path. If the path goes through a result or a failure, that is the
    /// response's body; if it starts at the frame's input, the request's; if it may be both, either.
    fn path(&mut self, path: &Path, blind: bool) {
        let named = path.members.iter().position(|name| &**name == "body");
        let reaches = match path.end {
            PathEnd::Unknown => true,
            PathEnd::Value => blind,
            PathEnd::Presence => false,
        };
        if named.is_none() && (!reaches || is_bodiless(path)) {
            return;
        }
        let way = path.members.get(..named.unwrap_or(path.members.len())).unwrap_or_default();
        let through = |names: &[&str]| way.iter().any(|name| names.contains(&&**name));
        let response = matches!(path.root, Root::Response | Root::Failure)
            || through(&["result", "results", "details", "failure"]);
        self.reads_response |= response || !(path.root == Root::Frame && through(&["input"]));
        self.reads_request |= !response;
    }
}

/// Whether a path ends where no message can be: inside a message's own fields, or in a record.
fn is_bodiless(path: &Path) -> bool {
    let members: Vec<&str> = path.members.iter().map(AsRef::as_ref).collect();
    match (path.root, members.as_slice()) {
        (Root::Vars, _) => false,
        (Root::Execution, _)
        | (_, ["metadata", ..] | ["result", "type" | "code" | "message" | "retryable", ..]) => true,
        (Root::Response, [field, ..])
        | (Root::Failure, ["details", field, ..])
        | (_, ["input", field, ..] | ["result", "value" | "details", field, ..]) => is_field(field),
        _ => false,
    }
}

/// Whether the member `name` of a message cannot contain another message.
fn is_field(name: &str) -> bool {
    matches!(name, "method" | "scheme" | "host" | "path" | "query" | "headers" | "status")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::expr::Roots;

    fn reads(body: &str) -> (bool, bool) {
        let mut facts = Facts::default();
        facts.read_by(&Program::compile(body, Roots::of(&Root::ALL)).unwrap());
        (facts.reads_request, facts.reads_response)
    }

    #[test]
    fn a_path_says_which_body_it_reads() {
        for (body, wanted) in [
            ("frame.input.body.id", (true, false)),
            ("has(frame.input.body)", (true, false)),
            ("'body' in frame.input", (true, false)),
            ("step.input.body", (true, true)),
            ("vars.kept['body']", (true, true)),
            ("middleware.result.details.body", (false, true)),
            ("response.body", (false, true)),
            ("step.input.headers", (false, false)),
            ("step.input", (false, false)),
        ] {
            assert_eq!(reads(body), wanted, "{body}");
        }
    }

    #[test]
    fn a_member_that_is_not_known_may_be_the_body() {
        for (body, wanted) in [
            ("frame.input[vars.key]", (true, false)),
            ("frame.input['bo' + 'dy']", (true, false)),
            ("step.input[string(step.name)]", (true, true)),
            ("middleware.result.value[execution.id]", (false, true)),
            ("step.results[0].value.body", (false, true)),
            ("step.results.map(r, r.value.body)", (false, true)),
            ("[frame.input].map(x, x.body)", (true, false)),
            ("[frame.input].map(x, x[execution.id])", (true, false)),
            ("frame.input.map(k, frame.input[k])", (true, false)),
            ("(1 > 2 ? failure : middleware.result).details.body", (false, true)),
            ("step.input.headers[execution.id]", (false, false)),
            ("step.input.headers['x' + 'y'] == 'a'", (false, false)),
            ("[frame.input][0].path", (false, false)),
            ("vars.list[0]", (false, false)),
            ("step.metadata[step.name]", (false, false)),
        ] {
            assert_eq!(reads(body), wanted, "{body}");
        }
    }
}
