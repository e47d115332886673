//! The functions that an expression may call, and how. The CEL crate notices a missing function only when it
//! is called, but a typing slip should be found at load.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use crate::source::nearest;

/// Functions that are called alike: on a receiver or not, with so many arguments.
type Group = (bool, RangeInclusive<usize>, &'static str);

const GLOBAL: bool = false;
const MEMBER: bool = true;

/// Everything that can be called: core CEL, the MWL functions, the extensions. Macros are listed too: the
/// parser expands them, so one that is still a call has the wrong number of arguments.
const GROUPS: &[Group] = &[
    // Core CEL.
    (GLOBAL, 1..=1, "bool bytes double duration dyn has int size string timestamp type uint"),
    (GLOBAL, 2..=2, "matches"),
    (MEMBER, 0..=0, "size"),
    (MEMBER, 1..=1, "contains endsWith matches startsWith"),
    (MEMBER, 2..=2, "all exists exists_one existsOne filter"),
    (MEMBER, 2..=3, "map"),
    (MEMBER, 0..=1, "getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours"),
    (MEMBER, 0..=1, "getMilliseconds getMinutes getMonth getSeconds"),
    // Optional values.
    (GLOBAL, 0..=0, "optional.none"),
    (GLOBAL, 1..=1, "optional.of optional.ofNonZeroValue"),
    (MEMBER, 0..=0, "hasValue value"),
    (MEMBER, 1..=1, "or orValue"),
    (MEMBER, 2..=2, "optFlatMap optMap"),
    // The MWL functions.
    (GLOBAL, 0..=0, "now wallTime"),
    (GLOBAL, 1..=1, "durationFromIso8601 durationToIso8601 fromJson toJson"),
    // encoders
    (GLOBAL, 1..=1, "base64.decode base64.encode"),
    // lists
    (GLOBAL, 1..=1, "lists.range"),
    (MEMBER, 0..=0, "distinct first last sort"),
    (MEMBER, 0..=1, "flatten"),
    (MEMBER, 2..=2, "slice sortBy"),
    // math
    (
        GLOBAL,
        1..=1,
        "math.abs math.bitNot math.ceil math.floor math.isFinite math.isInf math.isNaN",
    ),
    (GLOBAL, 1..=1, "math.round math.sign math.sqrt math.trunc"),
    (GLOBAL, 2..=2, "math.bitAnd math.bitOr math.bitShiftLeft math.bitShiftRight math.bitXor"),
    (GLOBAL, 1..=usize::MAX, "math.greatest math.least"),
    // sets
    (GLOBAL, 2..=2, "sets.contains sets.equivalent sets.intersects"),
    // strings
    (GLOBAL, 1..=1, "strings.quote"),
    (MEMBER, 0..=0, "lowerAscii reverse trim upperAscii"),
    (MEMBER, 0..=1, "join"),
    (MEMBER, 1..=1, "charAt format"),
    (MEMBER, 1..=2, "indexOf lastIndexOf split substring"),
    (MEMBER, 2..=3, "replace"),
];

/// One function: its name, whether it is called on a receiver, and how many arguments it takes.
struct Signature {
    name: &'static str,
    receiver: bool,
    arguments: &'static RangeInclusive<usize>,
}

/// The functions by their names: a name may stand for two, one of them called on a receiver.
static BY_NAME: LazyLock<HashMap<&str, Vec<Signature>>> = LazyLock::new(|| {
    let mut by_name: HashMap<_, Vec<_>> = HashMap::new();
    for signature in signatures() {
        by_name.entry(signature.name).or_default().push(signature);
    }
    by_name
});

/// The namespaces of functions, such as `math`.
static NAMESPACES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    signatures().filter_map(|signature| Some(signature.name.split_once('.')?.0)).collect()
});

fn signatures() -> impl Iterator<Item = Signature> {
    GROUPS.iter().flat_map(|(receiver, arguments, names)| {
        names.split(' ').map(|name| Signature { name, receiver: *receiver, arguments })
    })
}

/// Whether `space` is a namespace of functions, such as `math`.
pub(super) fn is_namespace(space: &str) -> bool {
    NAMESPACES.contains(space)
}

/// Whether `name` is a function of a namespace, such as `math.abs`.
pub(super) fn is_namespaced(name: &str) -> bool {
    name.contains('.') && BY_NAME.contains_key(name)
}

/// What is wrong with a call of `name`, or `None`.
pub(super) fn problem(name: &str, receiver: bool, arguments: usize) -> Option<String> {
    // Nobody can write a name with `@`: macros expand to such names.
    if name.contains('@') {
        return None;
    }
    let named = BY_NAME.get(name).map(Vec::as_slice).unwrap_or_default();
    if let Some(signature) = named.iter().find(|signature| signature.receiver == receiver) {
        return wrong_count(signature, arguments);
    }
    if let Some(other) = named.first() {
        return Some(if other.receiver {
            format!("`{name}` is called on a value: `….{name}(…)`")
        } else {
            format!("`{name}` is not called on a value: `{name}(…)`")
        });
    }
    Some(match nearest(name, signatures().map(|signature| signature.name)) {
        Some(near) => format!("there is no function `{name}`; did you mean `{near}`?"),
        None => format!("there is no function `{name}`; docs/language.md names them all"),
    })
}

fn wrong_count(signature: &Signature, arguments: usize) -> Option<String> {
    let Signature { name, arguments: range, .. } = signature;
    if range.contains(&arguments) {
        return None;
    }
    let wanted = match (*range.start(), *range.end()) {
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
        insta::assert_snapshot!(said("frobnicate", false, 0), @"there is no function `frobnicate`; docs/language.md names them all");
        assert_eq!(problem("size", true, 0), None);
        assert_eq!(problem("@charge", false, 7), None);
    }

    /// The parser expands these: there is no function behind them.
    const MACROS: &str = "all exists exists_one existsOne filter has map math.greatest math.least now \
                          optFlatMap optMap wallTime";

    #[test]
    fn every_listed_call_reaches_a_function() {
        let expanded = |name: &str| MACROS.split(' ').any(|expanded| expanded == name);
        let calls = signatures().filter(|signature| !expanded(signature.name));
        for signature in calls.filter(|signature| signature.name != "sortBy") {
            for count in signature.arguments.clone() {
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
        let mut seen = std::collections::BTreeSet::new();
        for Signature { name, receiver, .. } in signatures() {
            assert!(seen.insert((name, receiver)), "{name}");
        }
    }

    #[test]
    fn the_page_of_the_language_names_every_function() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/language.md");
        let page = std::fs::read_to_string(page).unwrap();
        let names = signatures().map(|signature| signature.name);
        let missing: Vec<&str> = names.filter(|name| !page.contains(name)).collect();
        assert_eq!(missing, Vec::<&str>::new());
    }
}
