//! Reads the text of an expression: CEL's grammar, with optional fields and names between backticks.
//!
//! The CEL crate has a parser of its own, which is generated with ANTLR. It takes about 3 µs for each byte,
//! and its recursion is as deep as the text is long. So a definition of 64 KiB took 0.2 s to check, and
//! parsing needed a thread with a large stack. This parser makes the same tree, of the crate's own nodes, in
//! a small part of that time. It nests calls only as deep as [`grammar::NESTING`] says, and it refuses a tree
//! deeper than [`tree::DEPTH`] while it makes it.
//!
//! In the tests, the crate's parser is the oracle: for every text, both make the same tree or both refuse.
//!
//! - `token`: the lexical part of the grammar;
//! - `grammar`: the rest of it;
//! - `literal`: what numbers, strings and bytes stand for;
//! - `macros`: calls that stand for a longer expression;
//! - `tree`: makes the nodes.

use cel::IdedExpr;

use self::token::{Kind, Lexer, Token};
use self::tree::Tree;
use super::CompileError;

mod grammar;
mod literal;
mod macros;
mod token;
mod tree;

pub(super) use self::tree::{Places, each_child};

/// Reads `text`: its tree, and where each node is written.
pub(super) fn parse(text: &str) -> Result<(IdedExpr, Places), CompileError> {
    let mut lexer = Lexer::new(text);
    let token = lexer.next()?;
    let mut parser = Parser { lexer, token, nesting: 0, tree: Tree::default() };
    let expr = parser.expr()?;
    match parser.token.kind {
        Kind::End => Ok((expr, parser.tree.into_places())),
        _ => Err(parser.wanted("an operator or the end")),
    }
}

fn error(message: impl Into<String>, offset: usize) -> CompileError {
    CompileError { message: message.into(), offset }
}

/// What is left to read, and what was made so far.
struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token.
    token: Token<'a>,
    /// How many expressions stand around the next token.
    nesting: usize,
    tree: Tree,
}

impl<'a> Parser<'a> {
    /// Takes the next token.
    fn advance(&mut self) -> Result<Token<'a>, CompileError> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    /// Takes the next token if it is this symbol.
    fn skip(&mut self, symbol: &str) -> Result<bool, CompileError> {
        let found = self.token.is(symbol);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Takes the next token, which must be this symbol; or else `what` says what may stand here.
    fn expect(&mut self, symbol: &str, what: &str) -> Result<Token<'a>, CompileError> {
        if self.token.is(symbol) { self.advance() } else { Err(self.wanted(what)) }
    }

    /// That something else may stand where the next token is.
    fn wanted(&self, what: &str) -> CompileError {
        let message = match (self.token.kind, self.token.text) {
            (Kind::End, _) => format!("the expression ends here, where {what} is wanted"),
            (_, "and") => format!("{what} is wanted here, not `and`; that is written `&&`"),
            (_, "or") => format!("{what} is wanted here, not `or`; that is written `||`"),
            (_, "not") => format!("{what} is wanted here, not `not`; that is written `!`"),
            (_, text) => format!("{what} is wanted here, not `{}`", shortened(text)),
        };
        error(message, self.token.place)
    }
}

/// `text` as far as a message shows it.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 20;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
