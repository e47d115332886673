//! The messages for what goes wrong in an evaluation.
//!
//! The CEL crate's errors print the operands, which may be a whole body or a secret. These messages name only
//! types and places. Where a fault has a usual cause, they say what to write instead.

use cel::objects::ValueType;
use cel::{ExecutionError, OverloadError, Value as CelValue};

use super::evaluation::Evaluation;
use super::references::Path;
use crate::language::value::{Missing, MissingFrom};

/// The longest message, in characters: part of it may come from data.
const SHOWN: usize = 300;

/// The message for an evaluation that spent its budget.
pub(super) const TOO_MUCH_WORK: &str = "the expression asks for more work than one evaluation may do: shorten the lists \
     that it goes through, or nest fewer `map`, `all` and the like";

/// The message for an evaluation to which the ones right before it have left too little.
pub(super) const TOO_MUCH_AT_ONCE: &str = "this expression and those right before it, without a wait between them, ask for \
     more work than may be done at once: spread them over several Steps";

/// The message for `error`.
pub(super) fn describe(error: &ExecutionError, evaluation: &Evaluation<'_>) -> String {
    let text = match error {
        ExecutionError::UndeclaredReference(name) => match number(name).map(|n| evaluation.read(n))
        {
            Some(Some((path, Err(gap)))) => missing(path, gap),
            Some(_) => "a binding is missing".to_owned(),
            None => format!("there is no function for `{name}` here"),
        },
        ExecutionError::NoSuchKey(key) => {
            format!("there is no member `{key}`; test it with `has(…)` first")
        }
        ExecutionError::NoSuchOverload(error) => overload(error),
        ExecutionError::UnsupportedBinaryOperator(name, left, right) => {
            operands(&symbol(name), &[type_of(left), type_of(right)])
        }
        ExecutionError::ValuesNotComparable(left, right) => {
            operands("<", &[type_of(left), type_of(right)])
        }
        ExecutionError::UnexpectedType { got, want } => format!("found {got}, wanted {want}"),
        ExecutionError::DivisionByZero(_) => "an integer was divided by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => {
            "the remainder of a division by zero was asked for".to_owned()
        }
        ExecutionError::Overflow(name, ..) => {
            format!("`{}` went beyond the range of its type", symbol(name))
        }
        ExecutionError::IndexOutOfBounds(index) => match index {
            CelValue::Int(index) => format!("the list has no element {index}"),
            CelValue::UInt(index) => format!("the list has no element {index}"),
            CelValue::Float(index) => format!("the list has no element {index}"),
            _ => "the list has no such element".to_owned(),
        },
        ExecutionError::UnsupportedIndex(index, _) => {
            format!("a list is not indexed by this {}", type_of(index))
        }
        ExecutionError::UnsupportedKeyType(key) => format!("a {} is no key of a map", type_of(key)),
        ExecutionError::DuplicateKey(_) => "a map was written with a key twice".to_owned(),
        ExecutionError::FunctionError { function, message } => format!("`{function}`: {message}"),
        other => other.to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// The number of the path that a variable such as `@p3` stands for.
fn number(variable: &str) -> Option<usize> {
    let name = variable.strip_prefix('@')?;
    let number = ["p", "has", "in"].into_iter().find_map(|kind| name.strip_prefix(kind))?;
    number.parse().ok()
}

/// The message for a static path that leads nowhere: how far it leads, and what is missing there.
pub(super) fn missing(path: &Path, missing: Missing) -> String {
    let mut place = path.root.name().to_owned();
    for member in path.members.iter().take(missing.found) {
        place.push('.');
        place.push_str(member);
    }
    let next = path.members.get(missing.found).map_or("", AsRef::as_ref);
    match missing.from {
        MissingFrom::Unset => format!("`{place}` holds nothing here"),
        MissingFrom::Object => {
            format!("`{place}` has no member `{next}`; test it with `has({place}.{next})` first")
        }
        MissingFrom::Other(name) => format!("`{place}` is {name}, which has no member `{next}`"),
    }
}

fn overload(error: &OverloadError) -> String {
    operands(&symbol(error.function()), error.argument_types())
}

/// The message that `name` takes no such operands, with the usual way out.
fn operands<S: AsRef<str>>(name: &str, types: &[S]) -> String {
    let types: Vec<&str> = types.iter().map(AsRef::as_ref).collect();
    let mixed =
        types.contains(&"double") && types.iter().any(|name| matches!(*name, "int" | "uint"));
    let advice = if mixed && matches!(name, "+" | "-" | "*" | "/" | "%") {
        "; numbers from data are `double`: write the literal with a fraction (`1.0`), or convert with \
         `double(…)` or `int(…)`"
    } else {
        ""
    };
    format!("`{name}` takes no ({}){advice}", types.join(", "))
}

/// The operator or function of this name, as an expression writes it.
fn symbol(name: &str) -> String {
    match name {
        "add" | "@add" => "+",
        "sub" => "-",
        "mul" => "*",
        "div" => "/",
        "rem" => "%",
        "@in" | "@contains" => "in",
        "_[_]" => "[]",
        "_._" => ".",
        "_?_:_" => "?:",
        _ => {
            let bare = name.trim_start_matches('@').trim_matches('_');
            return bare.to_owned();
        }
    }
    .to_owned()
}

fn type_of(value: &CelValue) -> String {
    match value.type_of() {
        ValueType::Float => "double".to_owned(),
        other => other.to_string(),
    }
}
