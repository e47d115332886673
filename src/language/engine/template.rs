//! Evaluates what a definition wrote: templates, predicates, `assign` blocks, envelopes.

use std::sync::Arc;

use crate::language::code::{Code, system};
use crate::language::expr::{Bindings, Program};
use crate::language::outcome::{Failure, FailureType};
use crate::language::plan::{Assign, Envelope, Template, When};
use crate::language::value::Value;

/// A fault is an ordinary failure. It rises from the construct that has the field.
pub(super) type Evaluated<T> = Result<T, Failure>;

/// An evaluated `assign` block: names, with the values to bind to them.
pub(super) type Captured = Vec<(Arc<str>, Value)>;

/// The value of `template`.
pub(super) fn evaluate(template: &Template, bindings: &dyn Bindings) -> Evaluated<Value> {
    match template {
        Template::Constant(value) => Ok(value.clone()),
        Template::Expression(program) => run(program, bindings),
        Template::Array(items) => {
            let items = items.iter().map(|item| evaluate(item, bindings));
            Ok(Value::array(items.collect::<Evaluated<_>>()?))
        }
        Template::Object(members) => {
            let members = members
                .iter()
                .map(|(key, template)| Ok((Arc::clone(key), evaluate(template, bindings)?)));
            Ok(Value::Object(Arc::new(members.collect::<Evaluated<_>>()?)))
        }
    }
}

/// The value of an optional field, or its default.
pub(super) fn evaluate_or(
    template: Option<&Template>,
    bindings: &dyn Bindings,
    default: impl FnOnce() -> Value,
) -> Evaluated<Value> {
    template.map_or_else(|| Ok(default()), |template| evaluate(template, bindings))
}

/// Whether a predicate holds. One that is not written does. A result that is not a boolean is an evaluation
/// error ("Truthiness").
pub(super) fn holds(when: Option<&When>, bindings: &dyn Bindings) -> Evaluated<bool> {
    match when {
        None => Ok(true),
        Some(When::Literal(literal)) => Ok(*literal),
        Some(When::Expression(program)) => match run(program, bindings)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(Failure::error(
                system::EXPRESSION_EVALUATION_ERROR,
                format!(
                    "`{}` is a predicate and must give a boolean; it gave {} {other}",
                    program.source(),
                    other.type_name()
                ),
            )),
        },
    }
}

/// All of an `assign` block's values, against the state before the block ("Variables: `assign`").
pub(super) fn bindings_of(assign: &Assign, bindings: &dyn Bindings) -> Evaluated<Captured> {
    if assign.is_empty() {
        return Ok(Captured::new());
    }
    let values =
        assign.iter().map(|(name, template)| Ok((Arc::clone(name), evaluate(template, bindings)?)));
    values.collect()
}

/// The failure that `envelope` constructs.
///
/// Fields that are not written come from `superseded` (`onFailure`); without it they are absent (`Raise`).
/// `linked` becomes `previous`, unless the envelope writes that itself.
pub(super) fn construct(
    envelope: &Envelope,
    superseded: Option<&Failure>,
    linked: Option<&Arc<Failure>>,
    bindings: &dyn Bindings,
) -> Evaluated<Failure> {
    let Envelope { ty, code, message, details, retryable, previous } = envelope;
    let field = |template: &Option<Template>| {
        template.as_ref().map(|template| evaluate(template, bindings)).transpose()
    };
    let ty = match field(ty)? {
        None => superseded.map_or(FailureType::Error, |failure| failure.ty.clone()),
        Some(value) => value
            .as_str()
            .and_then(FailureType::parse)
            .ok_or_else(|| wrong("type", "a non-success type", value))?,
    };
    let code = match field(code)? {
        None => superseded.map(|failure| failure.code.clone()),
        Some(Value::String(code)) => Some(Code::from(code)),
        Some(value) => return Err(wrong("code", "a string", value)),
    };
    let code = code.ok_or_else(|| wrong("code", "a string", Value::Null))?;
    let message = match field(message)? {
        None => superseded.and_then(|failure| failure.message.clone()),
        Some(Value::String(message)) => Some(message),
        Some(value) => return Err(wrong("message", "a string", value)),
    };
    let details = match field(details)? {
        None => superseded.and_then(|failure| failure.details.clone()),
        written => written,
    };
    let retryable = match field(retryable)? {
        None => superseded.and_then(|failure| failure.retryable),
        Some(Value::Null) => None,
        Some(Value::Bool(retryable)) => Some(retryable),
        Some(value) => return Err(wrong("retryable", "a boolean or null", value)),
    };
    let previous = match field(previous)? {
        None => linked.map(Arc::clone),
        Some(Value::Null) => None,
        Some(value) => Some(Arc::new(
            Failure::from_value(&value)
                .ok_or_else(|| wrong("previous", "a non-success Result or null", value))?,
        )),
    };
    Ok(Failure { ty, code, message, details, retryable, previous, awaited: None })
}

/// A value of the wrong type for a field whose type the specification fixes.
pub(super) fn wrong(field: &str, wanted: &str, observed: Value) -> Failure {
    let message = format!("`{field}` must be {wanted}; it is {} {observed}", observed.type_name());
    Failure::validation(message, format!("{field}/type"), observed)
}

fn run(program: &Program, bindings: &dyn Bindings) -> Evaluated<Value> {
    program
        .evaluate(bindings)
        .map_err(|error| Failure::error(error.code(), format!("{error} in `{}`", program.source())))
}
