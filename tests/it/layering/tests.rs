//! That wrong names are found, however they are written: on files of a few words.

use super::*;

const TABLE: &[Room] = &[("low", &[]), ("mid", &["low"]), ("high", &["low", "mid"])];

fn files(all: &[(&str, &str)]) -> Files {
    let beneath = [
        ("src/proxy/mod.rs", "mod low; mod mid; mod high; pub use self::high::Top;"),
        ("src/proxy/low.rs", ""),
        ("src/proxy/mid/mod.rs", "mod part; use super::low::Low;"),
        ("src/proxy/mid/part.rs", ""),
        ("src/proxy/high.rs", "use super::{low, mid::part::Part};"),
    ];
    let kept = beneath.iter().filter(|(path, _)| all.iter().all(|(other, _)| path != other));
    Files::of(kept.chain(all).map(|(path, text)| ((*path).to_owned(), (*text).to_owned())))
}

fn wrong(all: &[(&str, &str)]) -> Vec<String> {
    let files = files(all);
    [misnamed(&files, &["proxy"], TABLE), re_exports(&files), knots(&files)].concat()
}

#[test]
fn what_points_down_is_right() {
    assert_eq!(wrong(&[]), Vec::<String>::new());
}

#[test]
fn what_points_up_is_found_however_it_is_written() {
    for text in [
        "use crate::{language::x, proxy::{high::{self, Other}}};",
        "use super::super::high::Top;",
        "use crate::proxy as p; fn f() { p::high::top() }",
        "fn f() { let top = super::super::high::top(); }",
        "fn f() { assert_eq!(crate::proxy::high::TOP, 1) }",
        "#[cfg(test)] mod tests { use super::super::super::high::Top; }",
        "fn f<T: crate::proxy::high::Top>() {}",
    ] {
        let wrong = wrong(&[("src/proxy/mid/part.rs", text)]);
        assert!(
            wrong[0].contains("src/proxy/mid/part.rs:1: mid names high: proxy::high"),
            "{text} {wrong:?}"
        );
    }
}

#[test]
fn what_is_taken_from_the_house_instead_of_a_room_is_found() {
    let wrong = wrong(&[("src/proxy/mid/part.rs", "use crate::proxy::Top;")]);
    assert!(wrong[0].contains("mid names Top, which is of another room, by `proxy`"), "{wrong:?}");
}

#[test]
fn a_room_that_is_not_listed_and_a_permission_that_nobody_uses_are_found() {
    let found = wrong(&[("src/proxy/other.rs", "")]);
    assert_eq!(found, ["src/proxy/other.rs: other is no room"]);
    let found = wrong(&[("src/proxy/high.rs", "use super::low;")]);
    assert_eq!(found, ["high may name mid, and does not"]);
}

#[test]
fn a_re_export_across_rooms_is_found() {
    for vis in ["pub", "pub(crate)", "pub(super)"] {
        let text = format!("{vis} use super::low::Low; use super::mid::part;");
        let found = wrong(&[("src/proxy/high.rs", &text)]);
        assert_eq!(found, ["src/proxy/high.rs:1: re-exports proxy::low::Low"]);
    }
    // What is of the room may be.
    let own = "mod part; pub(crate) use self::part::Part; use super::low::Low;";
    assert_eq!(wrong(&[("src/proxy/mid/mod.rs", own)]), Vec::<String>::new());
}

#[test]
fn a_circle_across_rooms_is_found_and_so_is_a_large_one() {
    let found = wrong(&[("src/proxy/low.rs", "fn f() { crate::proxy::mid::g() }")]);
    assert!(
        found.iter().any(|it| it == "a circle crosses rooms: proxy::low proxy::mid"),
        "{found:?}"
    );
    let ring =
        |at: usize| (format!("src/config/r{at}.rs"), format!("use super::r{};", (at + 1) % 9));
    let nine = Files::of((0..9).map(ring));
    assert_eq!(knots(&nine).len(), 1);
    let eight = Files::of((0..8).map(|at| (ring(at).0, format!("use super::r{};", (at + 1) % 8))));
    assert_eq!(knots(&eight), Vec::<String>::new());
    assert_eq!(circles(&eight)[0].len(), 8);
}

#[test]
fn tests_close_no_circle() {
    let text = "#[cfg(test)] mod tests { use super::super::part; }";
    let part = "use super::Mid;";
    let files = files(&[("src/proxy/mid/mod.rs", text), ("src/proxy/mid/part.rs", part)]);
    assert_eq!(circles(&files), Vec::<Vec<Place>>::new());
}
