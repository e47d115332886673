//! Our own functions: MWL's, the sets extension, and those of the crate's that are wrong or unbounded.
//!
//! The crate's functions are plain `fn`s over CEL values; what `now()` and `wallTime()` read comes from the
//! scope as a variable, see `rewrite`. A name with `@` cannot be written in an expression: it is what the
//! rewriting puts in place of a call.
//!
//! To add a function: write it beside its like, list it in that file's `OVERLOADS`, and list how it is
//! called in `signatures`. A test calls everything that is listed there.

use cel::common::functions::Function;
use cel::common::types::{CelBool, Type};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::values;

mod collections;
mod inserted;
mod mwl;
mod text;

pub(super) use self::inserted::given;
pub(super) use self::text::{Pattern, pattern};

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Outcome<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

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

/// The arguments, whose number the overload has fixed.
fn take<'b, 'v, const N: usize>(args: Args<'b, 'v>) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    args.try_into()
        .map_err(|args: Args<'_, '_>| ExecutionError::invalid_argument_count(N, args.len()))
}

/// The text of an argument that the overload has fixed to be a string.
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
