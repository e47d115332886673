//! `balance`: how an upstream's requests are spread over its endpoints.

use crate::config::read::Object;
use crate::config::report::Report;
use crate::config::shape::{Section, Shape, required};
use crate::language::expr::{Path, PathEnd, Program, Root, Roots};
use crate::proxy::settings::{Balance, HashKey};
use crate::source::{Diagnostic, Kind, Node, did_you_mean};

const WORDS: &[&str] = &["leastRequest", "roundRobin", "random"];

pub(super) const BALANCE: Shape = Shape::Either(&[Shape::Word(WORDS), Shape::Section(&HASH)]);

const HASH: Section = Section {
    name: "`balance` by a key",
    doc: "Requests with the same key go to the same endpoint.",
    fields: &[required(
        "hash",
        Shape::Text,
        "The key: an expression over `step.input` (the call's input, such as the request; not its body) and `execution` (`id`, `platform`).",
    )],
};

/// The `balance` of an upstream.
pub(super) fn balance(report: &Report, upstream: &Object<'_>) -> Balance {
    let Some(node) = upstream.get("balance") else {
        return Balance::default();
    };
    if matches!(node.kind, Kind::Object(_)) {
        let object = Object::open(report, "balance", node, &HASH);
        let hash = object.and_then(|object| object.get("hash"));
        let key = hash.and_then(|node| key(report, node));
        return key.map_or_else(Balance::default, Balance::Hash);
    }
    let Some(word) = report.text("balance", node) else {
        return Balance::default();
    };
    match &**word {
        "leastRequest" => Balance::LeastRequest,
        "roundRobin" => Balance::RoundRobin,
        "random" => Balance::Random,
        _ => {
            let message =
                format!("`balance` is `{word}`; wanted: {}, or `{{ hash: … }}`", WORDS.join(", "));
            let diagnostic = Diagnostic::error("unknown-word", node.span, message);
            let help = did_you_mean(word, WORDS.iter().copied());
            report.add(match help {
                Some(help) => diagnostic.with_help(help),
                None => diagnostic,
            });
            Balance::default()
        }
    }
}

fn key(report: &Report, node: &Node) -> Option<HashKey> {
    let text = report.text("hash", node)?;
    let Some((shift, body)) = Program::placed_body(text) else {
        let message = format!("`hash` is the string `{text}`, which is the same for every request");
        let diagnostic = Diagnostic::error("not-an-expression", node.span, message);
        let help = "write an expression, such as `{{ step.input.headers['x-user'] }}`";
        report.add(diagnostic.with_help(help));
        return None;
    };
    let program = match Program::compile(body, Roots::of(&[Root::Step, Root::Execution])) {
        Ok(program) => program,
        Err(errors) => {
            for error in errors {
                let diagnostic = Diagnostic::error("bad-expression", node.span, error.message);
                report.add(diagnostic.with_offset(shift + error.offset));
            }
            return None;
        }
    };
    if let Some(path) = program.reads().iter().find(|path| !is_known(path)) {
        let message = "a key is read before the request is sent: of `step` it reads a member of `input` other than `body`, of `execution` `id` or a member of `platform`";
        let diagnostic = Diagnostic::error("bad-expression", node.span, message);
        report.add(diagnostic.with_offset(shift + path.offset));
        return None;
    }
    Some(HashKey(program))
}

/// Whether `path` can be read before a request is sent, and without its body.
fn is_known(path: &Path) -> bool {
    let mut members = path.members.iter().map(|member| &**member);
    let ends = path.end != PathEnd::Value;
    match (path.root, members.next(), members.next()) {
        (Root::Step, Some("input"), Some(member)) => member != "body",
        (Root::Execution, Some("id"), None) => !ends,
        (Root::Execution, Some("platform"), Some(_)) => true,
        _ => false,
    }
}
