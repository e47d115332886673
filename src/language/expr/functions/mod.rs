//! Our own functions: MWL's, the sets extension, and replacements for functions of the CEL crate that are
//! wrong or unbounded.
//!
//! The crate's functions are plain `fn`s over CEL values, so `now()` and `wallTime()` read the clock from a
//! variable of the evaluation (see `rewrite`). A name with `@` cannot be written in an expression: the
//! rewriting puts it in place of a call.
//!
//! To add a function: write it beside similar ones, list it in that file's `OVERLOADS`, and list in
//! `signatures` how it is called. A test calls everything that is listed there.

use cel::common::functions::Function;
use cel::common::types::{CelBool, Type};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::values;

mod collections;
mod inserted;
mod mwl;
mod pattern;
mod text;

pub(super) use self::inserted::take_captured;
pub(super) use self::pattern::Pattern;

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type CelResult<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// One overload: the function's name, an id among its overloads, the types of its arguments.
type Overload = (&'static str, &'static str, &'static [Type], Function);

/// Declares the functions.
pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    let files = [mwl::OVERLOADS, collections::OVERLOADS, text::OVERLOADS, inserted::OVERLOADS];
    for (name, id, types, function) in files.into_iter().flatten() {
        let types = types.iter().map(ToOwned::to_owned).collect();
        env.add_overload(name, id, types, *function)?;
    }
    collections::declare_members(env)
}

/// The arguments. The overload fixes their number.
fn take<'b, 'v, const N: usize>(args: Args<'b, 'v>) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    args.try_into()
        .map_err(|args: Args<'_, '_>| ExecutionError::invalid_argument_count(N, args.len()))
}

/// The text of an argument. The overload says that it is a string.
fn text<'a>(val: &'a CowVal<'_, '_>) -> Result<&'a str, ExecutionError> {
    values::text_of(val.as_ref()).ok_or_else(|| unexpected(val.as_ref(), "string"))
}

fn unexpected(val: &dyn Val, want: &str) -> ExecutionError {
    ExecutionError::UnexpectedType { got: val.get_type().name().to_owned(), want: want.to_owned() }
}

/// A boolean, without an allocation.
pub(super) fn owned_bool<'b, 'v>(bool: bool) -> CowVal<'b, 'v> {
    CowVal::Borrowed(if bool { &CelBool::TRUE } else { &CelBool::FALSE })
}
