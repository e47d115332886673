//! The functions that an expression may call, and how. The CEL crate notices a missing function only when it
//! is called, but a typing slip should be found at load.

use crate::source::nearest;

/// One function: its name, whether it is called on a receiver, and how many arguments it takes.
pub(super) struct Signature {
    name: &'static str,
    receiver: bool,
    least: usize,
    most: usize,
}

const fn global(name: &'static str, arguments: usize) -> Signature {
    Signature { name, receiver: false, least: arguments, most: arguments }
}

const fn member(name: &'static str, least: usize, most: usize) -> Signature {
    Signature { name, receiver: true, least, most }
}

/// Everything that can be called: core CEL, the MWL functions, the extensions. Macros are listed too: the
/// parser expands them, so one that is still a call has the wrong number of arguments.
pub(super) const SIGNATURES: &[Signature] = &[
    // Core CEL.
    global("bool", 1),
    global("bytes", 1),
    global("double", 1),
    global("duration", 1),
    global("dyn", 1),
    global("has", 1),
    global("int", 1),
    global("matches", 2),
    global("size", 1),
    global("string", 1),
    global("timestamp", 1),
    global("type", 1),
    global("uint", 1),
    member("all", 2, 2),
    member("contains", 1, 1),
    member("endsWith", 1, 1),
    member("exists", 2, 2),
    member("exists_one", 2, 2),
    member("existsOne", 2, 2),
    member("filter", 2, 2),
    member("getDate", 0, 1),
    member("getDayOfMonth", 0, 1),
    member("getDayOfWeek", 0, 1),
    member("getDayOfYear", 0, 1),
    member("getFullYear", 0, 1),
    member("getHours", 0, 1),
    member("getMilliseconds", 0, 1),
    member("getMinutes", 0, 1),
    member("getMonth", 0, 1),
    member("getSeconds", 0, 1),
    member("map", 2, 3),
    member("matches", 1, 1),
    member("size", 0, 0),
    member("startsWith", 1, 1),
    // Optional values.
    global("optional.none", 0),
    global("optional.of", 1),
    global("optional.ofNonZeroValue", 1),
    member("hasValue", 0, 0),
    member("optFlatMap", 2, 2),
    member("optMap", 2, 2),
    member("or", 1, 1),
    member("orValue", 1, 1),
    member("value", 0, 0),
    // The MWL functions.
    global("durationFromIso8601", 1),
    global("durationToIso8601", 1),
    global("fromJson", 1),
    global("now", 0),
    global("toJson", 1),
    global("wallTime", 0),
    // encoders
    global("base64.decode", 1),
    global("base64.encode", 1),
    // lists
    global("lists.range", 1),
    member("distinct", 0, 0),
    member("first", 0, 0),
    member("flatten", 0, 1),
    member("last", 0, 0),
    member("slice", 2, 2),
    member("sort", 0, 0),
    member("sortBy", 2, 2),
    // math
    global("math.abs", 1),
    global("math.bitAnd", 2),
    global("math.bitNot", 1),
    global("math.bitOr", 2),
    global("math.bitShiftLeft", 2),
    global("math.bitShiftRight", 2),
    global("math.bitXor", 2),
    global("math.ceil", 1),
    global("math.floor", 1),
    Signature { name: "math.greatest", receiver: false, least: 1, most: usize::MAX },
    global("math.isFinite", 1),
    global("math.isInf", 1),
    global("math.isNaN", 1),
    Signature { name: "math.least", receiver: false, least: 1, most: usize::MAX },
    global("math.round", 1),
    global("math.sign", 1),
    global("math.sqrt", 1),
    global("math.trunc", 1),
    // sets
    global("sets.contains", 2),
    global("sets.equivalent", 2),
    global("sets.intersects", 2),
    // strings
    global("strings.quote", 1),
    member("charAt", 1, 1),
    member("format", 1, 1),
    member("indexOf", 1, 2),
    member("join", 0, 1),
    member("lastIndexOf", 1, 2),
    member("lowerAscii", 0, 0),
    member("replace", 2, 3),
    member("reverse", 0, 0),
    member("split", 1, 2),
    member("substring", 1, 2),
    member("trim", 0, 0),
    member("upperAscii", 0, 0),
];

/// Whether `space` is a namespace of functions, such as `math`.
pub(super) fn is_namespace(space: &str) -> bool {
    let under = |name: &str| name.split_once('.').is_some_and(|(head, _)| head == space);
    SIGNATURES.iter().any(|signature| under(signature.name))
}

/// Whether `name` is a function of a namespace, such as `math.abs`.
pub(super) fn is_namespaced(name: &str) -> bool {
    name.contains('.') && SIGNATURES.iter().any(|signature| signature.name == name)
}

/// What is wrong with a call of `name`, or `None`.
pub(super) fn problem(name: &str, receiver: bool, arguments: usize) -> Option<String> {
    // Nobody can write a name with `@`: macros expand to such names.
    if name.contains('@') {
        return None;
    }
    let called = |signature: &&Signature| signature.name == name && signature.receiver == receiver;
    if let Some(signature) = SIGNATURES.iter().find(called) {
        return wrong_count(signature, arguments);
    }
    if let Some(other) = SIGNATURES.iter().find(|signature| signature.name == name) {
        return Some(if other.receiver {
            format!("`{name}` is called on a value: `….{name}(…)`")
        } else {
            format!("`{name}` is not called on a value: `{name}(…)`")
        });
    }
    let names = SIGNATURES.iter().map(|signature| signature.name);
    Some(match nearest(name, names) {
        Some(near) => format!("there is no function `{name}`; did you mean `{near}`?"),
        None => format!("there is no function `{name}`"),
    })
}

fn wrong_count(signature: &Signature, arguments: usize) -> Option<String> {
    let &Signature { name, least, most, .. } = signature;
    if (least..=most).contains(&arguments) {
        return None;
    }
    let wanted = match (least, most) {
        (0, 0) => "no arguments".to_owned(),
        (1, 1) => "1 argument".to_owned(),
        (least, most) if least == most => format!("{least} arguments"),
        (least, most) => format!("{least} or {most} arguments"),
    };
    Some(format!("`{name}` takes {wanted}, not {arguments}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_a_call_is_explained() {
        let said = |name, receiver, count| problem(name, receiver, count).unwrap_or_default();
        insta::assert_snapshot!(said("toJSON", false, 1), @"there is no function `toJSON`; did you mean `toJson`?");
        insta::assert_snapshot!(said("size", false, 2), @"`size` takes 1 argument, not 2");
        insta::assert_snapshot!(said("now", false, 1), @"`now` takes no arguments, not 1");
        insta::assert_snapshot!(said("replace", true, 1), @"`replace` takes 2 or 3 arguments, not 1");
        insta::assert_snapshot!(said("startsWith", false, 2), @"`startsWith` is called on a value: `….startsWith(…)`");
        insta::assert_snapshot!(said("toJson", true, 0), @"`toJson` is not called on a value: `toJson(…)`");
        insta::assert_snapshot!(said("frobnicate", false, 0), @"there is no function `frobnicate`");
        assert_eq!(problem("size", true, 0), None);
        assert_eq!(problem("@charge", false, 7), None);
    }

    /// The parser expands these: there is no function behind them.
    const MACROS: [&str; 13] = [
        "all",
        "exists",
        "exists_one",
        "existsOne",
        "filter",
        "has",
        "map",
        "math.greatest",
        "math.least",
        "now",
        "optFlatMap",
        "optMap",
        "wallTime",
    ];

    #[test]
    fn every_listed_call_reaches_a_function() {
        let calls = SIGNATURES.iter().filter(|signature| !MACROS.contains(&signature.name));
        for signature in calls.filter(|signature| signature.name != "sortBy") {
            for count in signature.least..=signature.most {
                let arguments = vec!["dyn(null)"; count].join(", ");
                let receiver = if signature.receiver { "dyn(null)." } else { "" };
                let call = format!("{receiver}{}({arguments})", signature.name);
                let result = super::super::testing::evaluate(&call, &[], None);
                let undeclared = result.is_err_and(|error| error.contains("Undeclared"));
                assert!(!undeclared, "{call}");
            }
        }
    }

    #[test]
    fn no_function_is_listed_twice() {
        for (index, a) in SIGNATURES.iter().enumerate() {
            let twice = |b: &Signature| a.name == b.name && a.receiver == b.receiver;
            assert!(!SIGNATURES.iter().skip(index + 1).any(twice), "{}", a.name);
        }
    }
}
