//! Our own functions: MWL's, the sets extension, and those of the crate's that are wrong or unbounded.
//!
//! The crate's functions are plain `fn`s over CEL values; what `now()` and `wallTime()` read comes from the
//! scope as a variable, see `rewrite`. A name with `@` cannot be written in an expression: it is what the
//! rewriting puts in place of a call.

use std::any::Any;
use std::sync::Arc;

use cel::common::functions::Function;
use cel::common::types::{
    CelBool, CelDuration, CelInt, CelList, CelOptional, CelString, CelTimestamp, DURATION_TYPE,
    DYN_TYPE, INT_TYPE, LIST_TYPE, STRING_TYPE, TIMESTAMP_TYPE, Type,
};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::objects::Opaque;
use cel::{DeclarationError, Env, ExecutionError};
use regex::{Regex, RegexBuilder};

use super::convert::NoValue;
use super::{convert, duration, equality, json, values, work};
use crate::language::temporal::Span;
use crate::language::value::Value;

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Outcome<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// The memory that a compiled pattern may take. It bounds the time to compile one at run time, too.
const PATTERN_SIZE: usize = 1 << 20;

/// Declares the functions.
pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    let globals: &[(&str, &str, &[Type], Function)] = &[
        ("toJson", "to_json", &[DYN_TYPE], to_json),
        ("fromJson", "from_json", &[STRING_TYPE], from_json),
        (
            "durationToIso8601",
            "duration_to_iso8601",
            &[DURATION_TYPE],
            to_iso8601,
        ),
        (
            "durationFromIso8601",
            "duration_from_iso8601",
            &[STRING_TYPE],
            from_iso8601,
        ),
        (
            "sets.contains",
            "sets_contains",
            &[LIST_TYPE, LIST_TYPE],
            sets_contains,
        ),
        (
            "sets.equivalent",
            "sets_equivalent",
            &[LIST_TYPE, LIST_TYPE],
            sets_equivalent,
        ),
        (
            "sets.intersects",
            "sets_intersects",
            &[LIST_TYPE, LIST_TYPE],
            sets_intersects,
        ),
        (
            "@duration",
            "duration_string",
            &[STRING_TYPE],
            duration_of_text,
        ),
        ("@duration", "duration_duration", &[DURATION_TYPE], first),
        (
            "@getMilliseconds",
            "of_duration",
            &[DURATION_TYPE],
            milliseconds,
        ),
        (
            "@getMilliseconds",
            "of_timestamp",
            &[TIMESTAMP_TYPE],
            milliseconds,
        ),
        (
            "@matches",
            "text",
            &[STRING_TYPE, STRING_TYPE],
            matches_text,
        ),
        (
            "@matches",
            "compiled",
            &[STRING_TYPE, PATTERN],
            matches_compiled,
        ),
        ("@indexOf", "text", &[STRING_TYPE, STRING_TYPE], index_of),
        (
            "@indexOf",
            "from",
            &[STRING_TYPE, STRING_TYPE, INT_TYPE],
            index_of,
        ),
        (
            "@lastIndexOf",
            "text",
            &[STRING_TYPE, STRING_TYPE],
            last_index_of,
        ),
        (
            "@lastIndexOf",
            "to",
            &[STRING_TYPE, STRING_TYPE, INT_TYPE],
            last_index_of,
        ),
        (
            "@replace",
            "all",
            &[STRING_TYPE, STRING_TYPE, STRING_TYPE],
            replace,
        ),
        (
            "@replace",
            "some",
            &[STRING_TYPE, STRING_TYPE, STRING_TYPE, INT_TYPE],
            replace,
        ),
        ("@distinct", "list", &[LIST_TYPE], distinct),
        ("@equals", "any", &[DYN_TYPE, DYN_TYPE], equals),
        ("@contains", "any", &[DYN_TYPE, DYN_TYPE], contains),
        ("@add", "any", &[DYN_TYPE, DYN_TYPE], add),
        ("@charge", "any", &[DYN_TYPE], charge),
        ("@tick", "any", &[INT_TYPE, DYN_TYPE], tick),
        ("@prepay", "int", &[INT_TYPE], prepay),
        ("@give", "any", &[DYN_TYPE], give),
    ];
    for (name, id, types, function) in globals {
        env.add_overload(
            name,
            id,
            types.iter().map(ToOwned::to_owned).collect(),
            *function,
        )?;
    }
    env.add_member_overload("first", "list_first", LIST_TYPE, vec![], list_first)?;
    env.add_member_overload("last", "list_last", LIST_TYPE, vec![], list_last)
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
    ExecutionError::UnexpectedType {
        got: val.get_type().name().to_owned(),
        want: want.to_owned(),
    }
}

fn owned_bool<'b, 'v>(bool: bool) -> CowVal<'b, 'v> {
    CowVal::Borrowed(if bool {
        &CelBool::TRUE
    } else {
        &CelBool::FALSE
    })
}

fn first<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [value] = take(args)?;
    Ok(value)
}

// === MWL functions ===

fn to_json<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [value] = take(args)?;
    let value = convert::to_value(value.as_ref())
        .map_err(|problem| ExecutionError::function_error("toJson", problem))?;
    Ok(CowVal::owned(CelString::from(json::canonical(&value)?)))
}

fn from_json<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [argument] = take(args)?;
    let source = text(&argument)?;
    // A text of ten thousand brackets makes ten thousand values: pay for the bytes one by one.
    work::spend(1 + u64::try_from(source.len() / 4).unwrap_or(u64::MAX))?;
    let value = json::parse(source)
        .map_err(|problem| ExecutionError::function_error("fromJson", problem))?;
    Ok(CowVal::Owned(values::wrap(value)))
}

fn to_iso8601<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [argument] = take(args)?;
    let duration = argument
        .downcast_ref::<CelDuration>()
        .ok_or_else(|| unexpected(argument.as_ref(), "duration"))?;
    let span = Span::from_nanos(duration::nanos(*duration.inner()));
    Ok(CowVal::owned(CelString::from(span.to_string())))
}

fn from_iso8601<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [argument] = take(args)?;
    let written = text(&argument)?;
    let refuse = |problem: &str| {
        let shown: String = written.chars().take(60).collect();
        ExecutionError::function_error("durationFromIso8601", format!("\"{shown}\" {problem}"))
    };
    let span = Span::parse(written)
        .ok_or_else(|| refuse("is not an ISO 8601 duration; one is \"PT1M30S\""))?;
    duration::of_nanos(span.as_nanos())
        .map(CowVal::owned)
        .ok_or_else(|| refuse("is beyond the range of a CEL duration, about 292 years"))
}

// === sets ===

/// Whether every element of the second list is in the first.
fn sets_contains<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [set, subset] = take(args)?;
    every(subset.as_ref(), &mut |element| {
        equality::contains(set.as_ref(), element)
    })
    .map(owned_bool)
}

/// Whether each list contains the other.
fn sets_equivalent<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [a, b] = take(args)?;
    let within = |a: &CowVal<'_, '_>, b: &CowVal<'_, '_>| {
        every(a.as_ref(), &mut |element| {
            equality::contains(b.as_ref(), element)
        })
    };
    Ok(owned_bool(within(&a, &b)? && within(&b, &a)?))
}

/// Whether the lists share an element.
fn sets_intersects<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [a, b] = take(args)?;
    let disjoint = every(a.as_ref(), &mut |element| {
        Ok(!equality::contains(b.as_ref(), element)?)
    })?;
    Ok(owned_bool(!disjoint))
}

/// Whether `test` holds for every element of `list`.
fn every(
    list: &dyn Val,
    test: &mut dyn FnMut(&dyn Val) -> Result<bool, ExecutionError>,
) -> Result<bool, ExecutionError> {
    let iterable = list.as_iterable().ok_or_else(|| unexpected(list, "list"))?;
    let mut items = iterable.iter();
    while let Some(item) = items.next() {
        if !test(item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

// === lists ===

/// The elements without repetitions, by CEL's equality, in their order.
fn distinct<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [list] = take(args)?;
    let iterable = list
        .as_iterable()
        .ok_or_else(|| unexpected(list.as_ref(), "list"))?;
    let mut items = iterable.iter();
    let mut seen: Vec<&dyn Val> = Vec::new();
    let mut kept: Vec<Box<dyn Val + 'v>> = Vec::new();
    while let Some(item) = items.next() {
        let mut repeated = false;
        for earlier in &seen {
            if equality::equal(*earlier, item)? {
                repeated = true;
                break;
            }
        }
        if !repeated {
            seen.push(item);
            kept.push(item.clone_as_boxed());
        }
    }
    Ok(CowVal::owned(CelList::from(kept)))
}

/// The first element as an optional value, `optional.none()` for an empty list.
fn list_first<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [list] = take(args)?;
    let iterable = list
        .as_iterable()
        .ok_or_else(|| unexpected(list.as_ref(), "list"))?;
    Ok(CowVal::owned(match iterable.iter().next() {
        Some(item) => CelOptional::of(item.clone_as_boxed()),
        None => CelOptional::none(),
    }))
}

/// The last element as an optional value, `optional.none()` for an empty list.
fn list_last<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [list] = take(args)?;
    let iterable = list
        .as_iterable()
        .ok_or_else(|| unexpected(list.as_ref(), "list"))?;
    let mut items = iterable.iter();
    let mut last = None;
    while let Some(item) = items.next() {
        last = Some(item);
    }
    Ok(CowVal::owned(match last {
        Some(item) => CelOptional::of(item.clone_as_boxed()),
        None => CelOptional::none(),
    }))
}

// === strings ===

/// A compiled pattern, as a value that `@matches` takes.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Regex);

const PATTERN: Type = Type::new_unspecified_type("@pattern");
static PATTERN_TYPE: Type = PATTERN;

impl Pattern {
    pub(super) const fn new(regex: Regex) -> Self {
        Self(regex)
    }
}

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

/// The regular expression that `pattern` writes, in RE2's syntax, or why it is none.
pub(super) fn pattern(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .size_limit(PATTERN_SIZE)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
            error => {
                let cause = error.to_string();
                let cause = cause.lines().last().unwrap_or_default();
                format!(
                    "the pattern is no regular expression: {}",
                    cause.trim_start_matches("error: ")
                )
            }
        })
}

fn matches_compiled<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [subject, pattern] = take(args)?;
    let pattern = pattern
        .downcast_ref::<Pattern>()
        .ok_or_else(|| unexpected(pattern.as_ref(), "pattern"))?;
    let subject = text(&subject)?;
    work::spend_bytes(subject.len())?;
    Ok(owned_bool(pattern.0.is_match(subject)))
}

/// A pattern that is not known before: it is compiled at each call, and paid for.
fn matches_text<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [subject, written] = take(args)?;
    let written = text(&written)?;
    work::spend(500 + 20 * u64::try_from(written.len()).unwrap_or(u64::MAX / 20))?;
    let regex =
        pattern(written).map_err(|problem| ExecutionError::function_error("matches", problem))?;
    let subject = text(&subject)?;
    work::spend_bytes(subject.len())?;
    Ok(owned_bool(regex.is_match(subject)))
}

fn offset(
    args: &[CowVal<'_, '_>],
    length: usize,
    function: &str,
) -> Result<Option<usize>, ExecutionError> {
    let Some(offset) = args
        .get(2)
        .and_then(|offset| offset.downcast_ref::<CelInt>())
    else {
        return Ok(None);
    };
    let offset = *offset.inner();
    usize::try_from(offset)
        .ok()
        .filter(|offset| *offset < length)
        .map(Some)
        .ok_or_else(|| {
            ExecutionError::function_error(function, format!("index out of range: {offset}"))
        })
}

/// The code point at which the first occurrence of the second text begins, at or after an offset, or -1.
fn index_of<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [subject, wanted] = needles(&args)?;
    let length = subject.chars().count();
    if wanted.is_empty() {
        return empty_needle(&args, length, 0, "indexOf");
    }
    let from = offset(&args, length, "indexOf")?.unwrap_or(0);
    let start = subject
        .char_indices()
        .nth(from)
        .map_or(subject.len(), |(byte, _)| byte);
    let found = subject.get(start..).and_then(|rest| rest.find(wanted));
    Ok(int(found.map(|byte| code_points(subject, start + byte))))
}

/// The code point at which the last occurrence begins, at or before an offset, or -1.
fn last_index_of<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [subject, wanted] = needles(&args)?;
    let length = subject.chars().count();
    if wanted.is_empty() {
        return empty_needle(&args, length, length, "lastIndexOf");
    }
    let end = match offset(&args, length, "lastIndexOf")? {
        // An occurrence that begins at the offset ends so many bytes after it.
        Some(at) => subject
            .char_indices()
            .nth(at)
            .map_or(subject.len(), |(byte, _)| {
                (byte + wanted.len()).min(subject.len())
            }),
        None => subject.len(),
    };
    // The cut may fall into a code point of a text that no occurrence can end in.
    let end = (0..=end)
        .rev()
        .find(|byte| subject.is_char_boundary(*byte))
        .unwrap_or(0);
    let found = subject.get(..end).and_then(|head| head.rfind(wanted));
    Ok(int(found.map(|byte| code_points(subject, byte))))
}

fn needles<'a>(args: &'a [CowVal<'_, '_>]) -> Result<[&'a str; 2], ExecutionError> {
    match args {
        [subject, wanted, ..] => Ok([text(subject)?, text(wanted)?]),
        _ => Err(ExecutionError::invalid_argument_count(2, args.len())),
    }
}

/// cel-go: the empty text is found at the offset, or at `otherwise`, within the text.
fn empty_needle<'b, 'v>(
    args: &[CowVal<'b, 'v>],
    length: usize,
    otherwise: usize,
    function: &str,
) -> Outcome<'b, 'v> {
    let Some(offset) = args
        .get(2)
        .and_then(|offset| offset.downcast_ref::<CelInt>())
    else {
        return Ok(int(Some(otherwise)));
    };
    usize::try_from(*offset.inner())
        .map(|offset| int(Some(offset.min(length))))
        .map_err(|_| {
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

/// Replaces the occurrences of the second text, or the first so many, by the third; what that makes is paid
/// for before it is made.
fn replace<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [subject, from] = needles(&args)?;
    let to = args.get(2).map_or(Ok(""), text)?;
    let limit = args.get(3).and_then(|limit| limit.downcast_ref::<CelInt>());
    let limit = limit.map_or(usize::MAX, |limit| {
        usize::try_from(*limit.inner()).unwrap_or(usize::MAX)
    });
    let count = subject.matches(from).take(limit).count();
    work::spend_bytes(subject.len().saturating_add(count.saturating_mul(to.len())))?;
    Ok(CowVal::owned(CelString::from(
        subject.replacen(from, to, limit),
    )))
}

// === durations ===

fn duration_of_text<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [argument] = take(args)?;
    duration::parse(text(&argument)?)
        .map(CowVal::owned)
        .map_err(|problem| ExecutionError::function_error("duration", problem))
}

/// The milliseconds within the second, of a duration or a timestamp in UTC.
fn milliseconds<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [argument] = take(args)?;
    if let Some(duration) = argument.downcast_ref::<CelDuration>() {
        let nanos = duration::nanos(*duration.inner()) % 1_000_000_000;
        let millis = i64::try_from(nanos / 1_000_000).unwrap_or(0);
        return Ok(CowVal::owned(CelInt::from(millis)));
    }
    let timestamp = argument
        .downcast_ref::<CelTimestamp>()
        .ok_or_else(|| unexpected(argument.as_ref(), "timestamp"))?;
    let millis = i64::from(timestamp.inner().timestamp_subsec_millis());
    Ok(CowVal::owned(CelInt::from(millis)))
}

// === what the rewriting inserts ===

fn equals<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [a, b] = take(args)?;
    equality::equal(a.as_ref(), b.as_ref()).map(owned_bool)
}

/// `value in container`.
fn contains<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [value, container] = take(args)?;
    equality::contains(container.as_ref(), value.as_ref()).map(owned_bool)
}

/// `a + b`, where the sum may be long.
fn add<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [a, b] = take(args)?;
    work::spend_copy(a.as_ref())?;
    work::spend_copy(b.as_ref())?;
    let adder = a.as_adder().ok_or_else(|| {
        let types = [&a, &b].map(|val| val.get_type().name().to_owned());
        ExecutionError::no_such_overload("_+_", types.into())
    })?;
    Ok(CowVal::Owned(adder.add(b.as_ref())?.into_owned()))
}

/// The argument, which is about to be copied.
fn charge<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [value] = take(args)?;
    work::spend_copy(value.as_ref())?;
    Ok(value)
}

/// The second argument, for as many units as the first says.
fn tick<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [units, value] = take(args)?;
    let units = units
        .downcast_ref::<CelInt>()
        .map_or(1, |units| *units.inner());
    work::spend(u64::try_from(units).unwrap_or(1))?;
    Ok(value)
}

/// The argument, a number of elements that are about to be made.
fn prepay<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [count] = take(args)?;
    let elements = count
        .downcast_ref::<CelInt>()
        .map_or(0, |count| *count.inner());
    work::spend(1 + u64::try_from(elements).unwrap_or(0))?;
    Ok(count)
}

/// What an evaluation hands out: its result, converted already.
#[derive(Debug)]
pub(super) struct Given(pub(super) Result<Value, NoValue>);

/// Asked for by the crate's type for host values. One is only equal to itself.
impl PartialEq for Given {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Given {}

impl Opaque for Given {
    fn runtime_type_name(&self) -> &str {
        "@given"
    }
}

/// The result of the whole expression, as a value that leaves the crate's evaluator as it is.
///
/// The crate gives its own copy of a result, or else asks for its evaluator to be inlined into ours: then
/// a debug build of this crate would evaluate with frames of 50 KiB, and overflow.
fn give<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [value] = take(args)?;
    let given: Arc<dyn Opaque> = Arc::new(Given(convert::to_value(value.as_ref())));
    let given: Box<dyn Val> = cel::Value::Opaque(given).try_into()?;
    Ok(CowVal::Owned(given))
}
