//! Functions on text that replace the CEL crate's, which compile a pattern at each call, search in quadratic
//! time or make text without a bound.

use std::any::Any;

use cel::ExecutionError;
use cel::common::types::{CelInt, CelString, INT_TYPE, STRING_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};

use super::super::work;
use super::pattern::Pattern;
use super::{Args, CelResult, Overload, owned_bool, take, text, unexpected};

pub(super) const OVERLOADS: &[Overload] = &[
    ("@matches", "text", &[STRING_TYPE, STRING_TYPE], matches_text),
    ("@matches", "compiled", &[STRING_TYPE, PATTERN], matches_compiled),
    ("@indexOf", "text", &[STRING_TYPE, STRING_TYPE], index_of),
    ("@indexOf", "from", &[STRING_TYPE, STRING_TYPE, INT_TYPE], index_of),
    ("@lastIndexOf", "text", &[STRING_TYPE, STRING_TYPE], last_index_of),
    ("@lastIndexOf", "to", &[STRING_TYPE, STRING_TYPE, INT_TYPE], last_index_of),
    ("@replace", "all", &[STRING_TYPE, STRING_TYPE, STRING_TYPE], replace),
    ("@replace", "some", &[STRING_TYPE, STRING_TYPE, STRING_TYPE, INT_TYPE], replace),
];

const PATTERN: Type = Type::new_unspecified_type("@pattern");
static PATTERN_TYPE: Type = PATTERN;

impl StaticVal for Pattern {}

impl Val for Pattern {
    fn get_type(&self) -> &Type {
        &PATTERN_TYPE
    }

    fn cel_type() -> &'static Type {
        &PATTERN_TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

fn matches_compiled<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [subject, pattern] = take(args)?;
    let pattern =
        pattern.downcast_ref::<Pattern>().ok_or_else(|| unexpected(pattern.as_ref(), "pattern"))?;
    let subject = text(&subject)?;
    work::spend_bytes(subject.len())?;
    is_match(pattern, subject)
}

/// A pattern that is not known before the evaluation: it is compiled at each call, and paid for.
fn matches_text<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [subject, written] = take(args)?;
    let written = text(&written)?;
    work::spend(500 + 20 * u64::try_from(written.len()).unwrap_or(u64::MAX / 20))?;
    let pattern = Pattern::new(written)
        .map_err(|problem| ExecutionError::function_error("matches", problem))?;
    work::spend(pattern.weight() / 4)?;
    let subject = text(&subject)?;
    work::spend_bytes(subject.len())?;
    is_match(&pattern, subject)
}

fn is_match<'b, 'v>(pattern: &Pattern, subject: &str) -> CelResult<'b, 'v> {
    let found = pattern.is_match(subject);
    let found =
        found.ok_or_else(|| ExecutionError::function_error("matches", "the pattern is too large"));
    Ok(owned_bool(found?))
}

fn offset(
    args: &[CowVal<'_, '_>],
    length: usize,
    function: &str,
) -> Result<Option<usize>, ExecutionError> {
    let Some(offset) = args.get(2).and_then(|offset| offset.downcast_ref::<CelInt>()) else {
        return Ok(None);
    };
    let offset = *offset.inner();
    usize::try_from(offset).ok().filter(|offset| *offset < length).map(Some).ok_or_else(|| {
        ExecutionError::function_error(function, format!("index out of range: {offset}"))
    })
}

/// The index, in code points, of the first occurrence at or after an offset, or -1.
#[expect(clippy::needless_pass_by_value, reason = "the crate's signature")]
fn index_of<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [subject, wanted] = needles(&args)?;
    let length = subject.chars().count();
    if wanted.is_empty() {
        return empty_needle(&args, length, 0, "indexOf");
    }
    let from = offset(&args, length, "indexOf")?.unwrap_or(0);
    let start = subject.char_indices().nth(from).map_or(subject.len(), |(byte, _)| byte);
    let found = subject.get(start..).and_then(|rest| rest.find(wanted));
    Ok(int(found.map(|byte| code_points(subject, start + byte))))
}

/// The index, in code points, of the last occurrence at or before an offset, or -1.
#[expect(clippy::needless_pass_by_value, reason = "the crate's signature")]
fn last_index_of<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [subject, wanted] = needles(&args)?;
    let length = subject.chars().count();
    if wanted.is_empty() {
        return empty_needle(&args, length, length, "lastIndexOf");
    }
    let end = match offset(&args, length, "lastIndexOf")? {
        // An occurrence that begins at the offset ends `wanted.len()` bytes after it.
        Some(at) => subject
            .char_indices()
            .nth(at)
            .map_or(subject.len(), |(byte, _)| (byte + wanted.len()).min(subject.len())),
        None => subject.len(),
    };
    // If the cut falls inside a code point, no occurrence ends there: move it back to a boundary.
    let end = (0..=end).rev().find(|byte| subject.is_char_boundary(*byte)).unwrap_or(0);
    let found = subject.get(..end).and_then(|head| head.rfind(wanted));
    Ok(int(found.map(|byte| code_points(subject, byte))))
}

fn needles<'a>(args: &'a [CowVal<'_, '_>]) -> Result<[&'a str; 2], ExecutionError> {
    match args {
        [subject, wanted, ..] => Ok([text(subject)?, text(wanted)?]),
        _ => Err(ExecutionError::invalid_argument_count(2, args.len())),
    }
}

/// As in cel-go: the empty text is found at the offset if there is one, else at `otherwise`.
fn empty_needle<'b, 'v>(
    args: &[CowVal<'b, 'v>],
    length: usize,
    otherwise: usize,
    function: &str,
) -> CelResult<'b, 'v> {
    let Some(offset) = args.get(2).and_then(|offset| offset.downcast_ref::<CelInt>()) else {
        return Ok(int(Some(otherwise)));
    };
    usize::try_from(*offset.inner()).map(|offset| int(Some(offset.min(length)))).map_err(|_| {
        let problem = format!("index out of range: {}", offset.inner());
        ExecutionError::function_error(function, problem)
    })
}

fn code_points(subject: &str, byte: usize) -> usize {
    subject.get(..byte).map_or(0, |head| head.chars().count())
}

fn int<'b, 'v>(index: Option<usize>) -> CowVal<'b, 'v> {
    let index = index.and_then(|index| i64::try_from(index).ok());
    CowVal::owned(CelInt::from(index.unwrap_or(-1)))
}

/// More matches than any evaluation can pay for: no more are counted.
const MOST_MATCHES: usize = 1_000_000;

/// Replaces the occurrences of the second text, or the first few of them, by the third. The result is paid
/// for before it is made.
#[expect(clippy::needless_pass_by_value, reason = "the crate's signature")]
fn replace<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [subject, from] = needles(&args)?;
    let to = args.get(2).map_or(Ok(""), text)?;
    let limit = args.get(3).and_then(|limit| limit.downcast_ref::<CelInt>());
    let limit =
        limit.map_or(usize::MAX, |limit| usize::try_from(*limit.inner()).unwrap_or(usize::MAX));
    // Each match is paid for too: many short ones cost more than their bytes say.
    work::spend_bytes(subject.len())?;
    let count = subject.matches(from).take(limit.min(MOST_MATCHES)).count();
    work::spend(u64::try_from(count).unwrap_or(u64::MAX))?;
    work::spend_bytes(subject.len().saturating_add(count.saturating_mul(to.len())))?;
    Ok(CowVal::owned(CelString::from(subject.replacen(from, to, limit))))
}
