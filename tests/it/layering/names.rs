//! What the files of a crate name: the paths of their `use` trees and of their code, made absolute.
//!
//! Files are read as tokens. So a comment and a string name nothing, and what a macro is given is code like any other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::sources;

/// A module, or what is in one, from the crate's root on. The root itself is empty.
pub(crate) type Place = Vec<String>;

/// One name that a file uses.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) line: usize,
    pub(crate) what: What,
    /// Whether only tests compile it.
    pub(crate) test: bool,
    /// Whether a `pub use` re-exports it.
    pub(crate) re_export: bool,
}

/// What is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A place in this crate.
    Here(Place),
    /// Something of another crate, which is named first.
    Elsewhere(String),
}

/// One file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) names: Vec<Named>,
    /// Whether only tests compile it.
    pub(crate) test: bool,
}

/// All files of a crate, by the modules that they are.
#[derive(Debug)]
pub(crate) struct Files(pub(crate) BTreeMap<Place, File>);

impl Files {
    /// Those below `root`'s `src`.
    pub(crate) fn read(root: &Path) -> Self {
        let all = sources(&root.join("src"));
        let all = all.iter().map(|path| {
            let text = fs::read_to_string(path).unwrap();
            (path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), text)
        });
        Self::of(all)
    }

    /// These, each by its path below the crate's root and its text.
    pub(crate) fn of(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut files = BTreeMap::new();
        let mut tests = BTreeSet::new();
        for (path, text) in all {
            let Some(place) = module(&path) else { continue };
            let tokens: TokenStream = text.parse().unwrap_or_else(|_| panic!("{path} is no Rust"));
            let mut names = Vec::new();
            let mut reader = Reader { names: &mut names, tests: &mut tests };
            reader.module(&place, tokens, false);
            files.insert(place, File { path, names, test: false });
        }
        for (place, file) in &mut files {
            file.test = (0..=place.len()).any(|upto| tests.contains(&place[..upto]));
        }
        Self(files)
    }

    /// The module whose file has what is at `place`.
    pub(crate) fn holder(&self, place: &[String]) -> Option<&Place> {
        let mut prefixes = (0..=place.len()).rev().map(|upto| &place[..upto]);
        prefixes.find_map(|prefix| Some(self.0.get_key_value(prefix)?.0))
    }
}

/// The module that the file at `path` is. None is that of the program itself.
fn module(path: &str) -> Option<Place> {
    let path = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let mut place: Place = path.split('/').map(str::to_owned).collect();
    match place.last().map(String::as_str) {
        Some("mod" | "lib") => drop(place.pop()),
        Some("main") => return None,
        _ => {}
    }
    Some(place)
}

/// What is in sight of one module, beside its own items.
#[derive(Default)]
struct Sight {
    /// The modules in it.
    children: BTreeSet<String>,
    /// What it imports, by the name that it has here.
    imports: BTreeMap<String, What>,
}

struct Reader<'a> {
    names: &'a mut Vec<Named>,
    /// The modules that only tests compile.
    tests: &'a mut BTreeSet<Place>,
}

impl Reader<'_> {
    /// Reads all of a module.
    fn module(&mut self, place: &Place, tokens: TokenStream, test: bool) {
        let mut sight = Sight::default();
        children(&tokens, &mut sight.children);
        self.imports(place, &tokens, &mut sight, test);
        self.code(place, tokens, &sight, test);
    }

    /// Notes the `use` trees of a module, those in its functions too.
    fn imports(&mut self, place: &Place, tokens: &TokenStream, sight: &mut Sight, test: bool) {
        let tokens: Vec<_> = tokens.clone().into_iter().collect();
        let mut items = Items::default();
        for (at, token) in tokens.iter().enumerate() {
            let test = items.pass(&tokens, at) || test;
            match token {
                _ if is_inline_module(&tokens, at) => {}
                TokenTree::Group(group) => self.imports(place, &group.stream(), sight, test),
                TokenTree::Ident(word) if word == "use" && !is_punct(tokens.get(at + 1), '<') => {
                    let end = tokens[at..].iter().position(|token| is_punct(Some(token), ';'));
                    let tree = &tokens[at + 1..at + end.unwrap_or_default()];
                    let re_export = at > 0 && is_visibility(&tokens, at - 1);
                    for (line, path, name) in leaves(tree, &Vec::new()) {
                        let Some(what) = resolve(place, &path, &sight.children, None) else {
                            continue;
                        };
                        sight.imports.insert(name, what.clone());
                        self.names.push(Named { line, what, test, re_export });
                    }
                }
                _ => {}
            }
        }
    }

    /// Notes the paths in code, and reads the modules that are written out in it.
    fn code(&mut self, place: &Place, tokens: TokenStream, sight: &Sight, test: bool) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut items = Items::default();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let test = items.pass(&tokens, at) || test;
            match token {
                TokenTree::Ident(word) if word == "mod" => {
                    if let Some(TokenTree::Ident(name)) = tokens.get(at + 1) {
                        let inner = [&place[..], &[name.to_string()]].concat();
                        if let Some(TokenTree::Group(group)) = tokens.get(at + 2) {
                            self.module(&inner, group.stream(), test);
                            at += 2;
                        } else if test {
                            self.tests.insert(inner);
                        }
                    }
                }
                TokenTree::Ident(word) if word == "use" && !is_punct(tokens.get(at + 1), '<') => {
                    let end = tokens[at..].iter().position(|token| is_punct(Some(token), ';'));
                    at += end.unwrap_or_default();
                }
                TokenTree::Group(group) => self.code(place, group.stream(), sight, test),
                TokenTree::Ident(word) if !follows_path(&tokens, at) => {
                    let line = word.span().start().line;
                    let (path, length) = path(&tokens[at..]);
                    if path.len() > 1
                        && let Some(what) = resolve(place, &path, &sight.children, Some(sight))
                    {
                        self.names.push(Named { line, what, test, re_export: false });
                    }
                    at += length - 1;
                }
                _ => {}
            }
            at += 1;
        }
    }
}

/// Which tokens belong to an item that only tests compile.
#[derive(Default)]
struct Items {
    /// Whether the item that comes, or goes on, is one.
    test: bool,
}

impl Items {
    /// Whether the token at `at` belongs to such an item. All tokens are to be passed in their order.
    fn pass(&mut self, tokens: &[TokenTree], at: usize) -> bool {
        let test = self.test;
        match &tokens[at] {
            TokenTree::Group(group) if at > 0 && is_punct(tokens.get(at - 1), '#') => {
                self.test |= is_cfg_test(group);
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => self.test = false,
            token if is_punct(Some(token), ';') => self.test = false,
            _ => {}
        }
        test
    }
}

fn is_cfg_test(attribute: &Group) -> bool {
    let mut tokens = attribute.stream().into_iter();
    let cfg = matches!(tokens.next(), Some(TokenTree::Ident(word)) if word == "cfg");
    let Some(TokenTree::Group(condition)) = tokens.next() else { return false };
    let mut words = condition.stream().into_iter();
    cfg && words.any(|token| matches!(token, TokenTree::Ident(word) if word == "test"))
}

/// The modules that are declared in `tokens`, not within others.
fn children(tokens: &TokenStream, found: &mut BTreeSet<String>) {
    let tokens: Vec<_> = tokens.clone().into_iter().collect();
    for pair in tokens.windows(2) {
        if let [TokenTree::Ident(word), TokenTree::Ident(name)] = pair
            && word == "mod"
        {
            found.insert(name.to_string());
        }
    }
}

/// Whether the group at `at` is what is in a module.
fn is_inline_module(tokens: &[TokenTree], at: usize) -> bool {
    let before = at.checked_sub(2).and_then(|before| tokens.get(before));
    matches!(tokens[at], TokenTree::Group(_))
        && matches!(before, Some(TokenTree::Ident(word)) if word == "mod")
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Whether the token at `at` is `pub`, or what stands behind it in parentheses.
fn is_visibility(tokens: &[TokenTree], at: usize) -> bool {
    match &tokens[at] {
        TokenTree::Ident(word) => word == "pub",
        TokenTree::Group(group) => {
            let parentheses = group.delimiter() == Delimiter::Parenthesis;
            parentheses && at > 0 && is_visibility(tokens, at - 1)
        }
        _ => false,
    }
}

/// Whether what is at `at` goes on with a path, or is a field or a lifetime.
fn follows_path(tokens: &[TokenTree], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| tokens.get(before));
    let twice = at.checked_sub(2).and_then(|before| tokens.get(before));
    let ranges = is_punct(before, '.') && is_punct(twice, '.');
    let global = is_punct(before, ':') && is_punct(twice, ':');
    global || is_punct(before, '\'') || (is_punct(before, '.') && !ranges)
}

/// The path at the start of `tokens`, and how many of them it takes.
fn path(tokens: &[TokenTree]) -> (Place, usize) {
    let mut path = Vec::new();
    let mut at = 0;
    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
        path.push(word.to_string());
        at += 1;
        if !is_punct(tokens.get(at), ':') || !is_punct(tokens.get(at + 1), ':') {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// The leaves of a `use` tree that stands behind `before`: where each is, its path, and the name that it gets.
fn leaves(tree: &[TokenTree], before: &Place) -> Vec<(usize, Place, String)> {
    let mut all = Vec::new();
    for branch in tree.split(|token| is_punct(Some(token), ',')) {
        let (path, mut at) = path(branch);
        let whole = [&before[..], &path[..]].concat();
        let Some(first) = branch.first() else { continue };
        let line = first.span().start().line;
        // A path from the root of all crates begins with what is behind the two colons.
        if path.is_empty() && is_punct(branch.first(), ':') {
            all.extend(leaves(&branch[2..], before));
            continue;
        }
        match branch.get(at) {
            Some(TokenTree::Group(group)) => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                all.extend(leaves(&inner, &whole));
            }
            Some(token) if is_punct(Some(token), '*') => all.push((line, whole, "*".to_owned())),
            _ => {
                let itself = path.last().is_some_and(|last| last == "self") && !before.is_empty();
                let whole = if itself { whole[..whole.len() - 1].to_vec() } else { whole };
                let mut name = whole.last().cloned().unwrap_or_default();
                // A path takes `as` and the name behind it for its own end, for no colons part them.
                if let Some(TokenTree::Ident(word)) = branch.get(at)
                    && word == "as"
                {
                    at += 1;
                    name = branch.get(at).map(ToString::to_string).unwrap_or_default();
                }
                all.push((line, whole, name));
            }
        }
    }
    all
}

/// What `path` is, named in the module at `place`. None is a name that nothing is known of: a type of the module's own,
/// say.
fn resolve(
    place: &Place,
    path: &[String],
    children: &BTreeSet<String>,
    sight: Option<&Sight>,
) -> Option<What> {
    let (first, rest) = path.split_first()?;
    let up = path.iter().take_while(|word| *word == "super").count();
    let here = |place: &[String], rest: &[String]| Some(What::Here([place, rest].concat()));
    match first.as_str() {
        "crate" => here(&[], rest),
        "self" if path.get(1).is_some_and(|word| word == "super") => {
            resolve(place, rest, children, sight)
        }
        "self" => here(place, rest),
        "super" => here(&place[..place.len().checked_sub(up)?], &path[up..]),
        _ => match sight.map(|sight| sight.imports.get(first)) {
            Some(Some(What::Here(place))) => here(place, rest),
            Some(Some(elsewhere)) => Some(elsewhere.clone()),
            _ if children.contains(first) => here(place, path),
            _ => Some(What::Elsewhere(first.clone())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `src/a/b.rs` names of this crate, written as this.
    fn named(text: &str) -> Vec<String> {
        let files = Files::of([("src/a/b.rs".to_owned(), text.to_owned())]);
        let file = files.0.into_values().next().unwrap();
        let here = file.names.into_iter().filter_map(|named| match named.what {
            What::Here(place) => Some(place.join("::")),
            What::Elsewhere(_) => None,
        });
        here.collect()
    }

    #[test]
    fn a_use_tree_is_taken_apart() {
        assert_eq!(
            named("use crate::x::{self, y::{Z, self}, w as v};"),
            ["x", "x::y::Z", "x::y", "x::w"]
        );
        assert_eq!(named("use super::super::c::D;"), ["c::D"]);
        assert_eq!(named("use self::e; use super::{f, super::g};"), ["a::b::e", "a::f", "g"]);
        assert_eq!(named("use super::*; pub(crate) use crate::h as _;"), ["a", "h"]);
        assert_eq!(named("use std::io; use ::http::Uri;"), Vec::<String>::new());
    }

    #[test]
    fn a_path_in_code_is_a_name() {
        assert_eq!(named("fn f() -> crate::x::Y { super::z::<u8>() }"), ["x::Y", "a::z"]);
        assert_eq!(named("fn f() { g(!super::super::x::IS, ..crate::y::Z) }"), ["x::IS", "y::Z"]);
        // A macro's arguments and an attribute's.
        assert_eq!(named("fn f() { assert!(crate::x::y()) }"), ["x::y"]);
        assert_eq!(named("#[error(\"{}\", crate::x::y(0))] struct S;"), ["x::y"]);
        // What an import, or a module beside, is the beginning of.
        assert_eq!(named("use crate::x as y; fn f() { y::z() }"), ["x", "x::z"]);
        assert_eq!(named("mod c; fn f() { c::d() }"), ["a::b::c::d"]);
        // From within a module that is written out.
        assert_eq!(named("mod c { fn f() { super::super::d() } }"), ["a::d"]);
    }

    #[test]
    fn what_is_no_code_names_nothing() {
        let text = "/// [`x`](crate::x)\nconst A: &str = \"crate::y\"; // crate::z\n/* crate::w */";
        assert_eq!(named(text), Vec::<String>::new());
        assert_eq!(named("fn f(self) { self.crate_.x; 'a: loop {} }"), Vec::<String>::new());
    }

    #[test]
    fn what_only_tests_compile_is_told_apart() {
        let text = "use crate::x;\n#[cfg(test)]\nuse crate::y;\n#[cfg(test)] mod t { use crate::z; }\nuse crate::w;";
        let files = Files::of([
            ("src/a/mod.rs".to_owned(), format!("{text} #[cfg(test)] mod tests;")),
            ("src/a/tests.rs".to_owned(), String::new()),
            ("src/a/tests/more.rs".to_owned(), String::new()),
        ]);
        let of = |place: &[&str]| {
            let place: Place = place.iter().map(|&name| name.to_owned()).collect();
            &files.0[&place]
        };
        let mut seen: Vec<_> =
            of(&["a"]).names.iter().map(|named| (named.line, named.test)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [(1, false), (3, true), (4, true), (5, false)]);
        assert!(!of(&["a"]).test && of(&["a", "tests"]).test && of(&["a", "tests", "more"]).test);
    }

    #[test]
    fn a_re_export_is_told_apart() {
        let text = "pub use crate::x; pub(crate) use crate::y; pub(in crate::a) use crate::z; use crate::w;";
        let files = Files::of([("src/a.rs".to_owned(), text.to_owned())]);
        let names = &files.0.values().next().unwrap().names;
        let found: Vec<_> = names.iter().filter(|named| named.re_export).collect();
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
