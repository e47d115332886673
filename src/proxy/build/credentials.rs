//! Warns of cleanups that send a client's credentials to whoever they tell.
//!
//! The input of a cleanup without an `input` is what its entry received. At a route's first stack that is the request itself,
//! and the http provider then sends it on, with all of its fields. For an audit that is seldom meant.

use http::header::{AUTHORIZATION, COOKIE, HeaderName};

use crate::language::plan::{
    Action, CallPlan, EntryPlan, FlowId, FlowPlan, Plan, Target, Template, With,
};
use crate::language::uri::ProviderUri;
use crate::language::value::Value;
use crate::source::{Diagnostic, Diagnostics};

/// The fields that carry what a client proves itself with.
static CREDENTIALS: [HeaderName; 2] = [AUTHORIZATION, COOKIE];

/// Warns of the cleanups of `plan` that send the client's request on through the provider `http`. `removed` are the fields that the
/// route takes out of requests.
pub(super) fn advise(
    plan: &Plan,
    http: &ProviderUri,
    removed: &[HeaderName],
    found: &mut Diagnostics,
) {
    if CREDENTIALS.iter().all(|field| removed.contains(field)) {
        return;
    }
    let root = plan.flow(FlowId::ROOT);
    let first = match &root.step(root.entrypoint).action {
        Action::Call(call) if call.input.is_none() => &call.stack[..],
        _ => &[],
    };
    for entry in root.stack.iter().chain(first) {
        if entry.cleanups().any(|cleanup| forwards(plan, &cleanup.call, http)) {
            found.push(warning(entry));
        }
    }
}

/// Whether `call`, which receives the request, sends it on as it is.
fn forwards(plan: &Plan, call: &CallPlan, http: &ProviderUri) -> bool {
    if call.input.is_some() {
        return false;
    }
    match &call.target {
        Target::Provider(provider) => provider.contract().uri == *http && !mentions(&call.with),
        Target::Flow(flow) => {
            first_call(plan.flow(*flow)).is_some_and(|call| forwards(plan, call, http))
        }
    }
}

/// The call of the first Step, if that receives what the Flow does.
fn first_call(flow: &FlowPlan) -> Option<&CallPlan> {
    match &flow.step(flow.entrypoint).action {
        Action::Call(step) if step.input.is_none() && flow.stack.is_empty() => Some(&step.call),
        _ => None,
    }
}

/// Whether a `with` says something about both fields, or cannot be known.
fn mentions(with: &With) -> bool {
    let all = |names: Vec<String>| {
        CREDENTIALS
            .iter()
            .all(|field| names.iter().any(|name| name.eq_ignore_ascii_case(field.as_str())))
    };
    let of = |value: &Value| {
        let members = value.as_object();
        all(members.iter().flat_map(|members| members.keys()).map(ToString::to_string).collect())
    };
    match with {
        With::Literal { value, .. } => value.get("headers").is_some_and(|headers| of(&headers)),
        With::Dynamic(Template::Object(members)) => {
            match members.iter().find(|(name, _)| &**name == "headers").map(|(_, value)| value) {
                None => false,
                Some(Template::Constant(value)) => of(value),
                Some(Template::Object(members)) => {
                    all(members.iter().map(|(name, _)| name.to_string()).collect())
                }
                Some(Template::Expression(_) | Template::Array(_)) => true,
            }
        }
        With::Dynamic(_) => true,
    }
}

fn warning(entry: &EntryPlan) -> Diagnostic {
    let message =
        "this cleanup sends the client's own request, with its `Authorization` and `Cookie`";
    let help = "give its call an `input`, such as `\"{{ middleware.result }}\"`, or remove the fields: `headers: { authorization: null, cookie: null }`";
    Diagnostic::warning("cleanup-sends-credentials", entry.span, message).with_help(help)
}
