//! An error says one level of what went wrong; what it came from is its source, and whoever reports it says that, too.

use std::fs;
use std::path::Path;

use crate::layering::sources;

/// The names of the fields that are an error's source, in what follows its `#[error(…)]`; a tuple's is `0`.
fn source_fields(item: &str) -> Vec<&str> {
    let marks = ["#[source]", "#[from]"].into_iter().flat_map(|mark| {
        item.match_indices(mark).map(move |(at, _)| item[at + mark.len()..].trim_start())
    });
    let name = |field: &str| field.find(|c: char| !c.is_alphanumeric() && c != '_');
    marks
        .map(|field| match name(field) {
            Some(end) if field[end..].starts_with(": ") => &field[..end],
            _ => "0",
        })
        .collect()
}

/// The errors of a file that say their source and have it, by their messages.
fn twice(text: &str) -> Vec<&str> {
    let errors = text.split("#[error(").skip(1).filter_map(|error| error.split_once(")]"));
    let wrong = errors.filter(|(message, rest)| {
        let item = rest.split("\n}").next().unwrap();
        let says = |field: &&str| {
            ['}', ':'].iter().any(|end| message.contains(&format!("{{{field}{end}")))
        };
        source_fields(item).iter().any(says)
    });
    wrong.map(|(message, _)| message).collect()
}

#[test]
fn no_error_says_its_source_and_has_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in sources(&src) {
        let text = fs::read_to_string(&file).unwrap();
        let wrong = twice(&text);
        assert!(wrong.is_empty(), "{}: a reporter would say it twice: {wrong:?}", file.display());
        let own = text.contains("fn source(&self) -> Option<&(dyn");
        assert!(!own, "{}: derive `source`, so that this test sees it", file.display());
    }
}

#[test]
fn the_rule_is_seen_to_fail() {
    let text = r#"
enum E {
    #[error("{0}")]
    A(#[from] io::Error),
    #[error("b")]
    B(#[source] io::Error),
    #[error("c: {why}")]
    C { #[source] why: io::Error },
    #[error("d: {what}")]
    D { what: String, #[source] why: io::Error },
    #[error(transparent)]
    E(#[from] io::Error),
}
"#;
    assert_eq!(twice(text), [r#""{0}""#, r#""c: {why}""#]);
}
