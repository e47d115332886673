//! The grammar: a method for each of its rules.

use cel::IdedExpr;
use cel::common::ast::{
    EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, MapEntryExpr, MapExpr, SelectExpr,
    StructExpr, StructFieldExpr, operators,
};

use super::super::CompileError;
use super::token::{Kind, Token};
use super::tree::Made;
use super::{Parser, error, literal, macros};

/// How many expressions may stand in one another: in brackets, in calls, behind the `:` of a condition.
pub(super) const NESTING: usize = 96;

/// Names that CEL keeps for later. A member may have one.
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "void",
    "while",
];

/// Operations of a level up to this are gathered, however many there are, before a tree is made of them.
const CHAINED: u8 = 2;

/// Operations whose last operand is still to be read. There is one, or a chain of `&&` or of `||`.
struct Open {
    level: u8,
    name: &'static str,
    terms: Vec<IdedExpr>,
    /// Where the operators are. The last is after the last term.
    places: Vec<usize>,
}

/// The name of the operation that an operator of two operands stands for, and how tightly it binds.
fn operation(token: &Token<'_>) -> Option<(u8, &'static str)> {
    if token.kind != Kind::Symbol {
        return None;
    }
    match token.text {
        "||" => Some((1, operators::LOGICAL_OR)),
        "&&" => Some((2, operators::LOGICAL_AND)),
        "<" => Some((3, operators::LESS)),
        "<=" => Some((3, operators::LESS_EQUALS)),
        ">" => Some((3, operators::GREATER)),
        ">=" => Some((3, operators::GREATER_EQUALS)),
        "==" => Some((3, operators::EQUALS)),
        "!=" => Some((3, operators::NOT_EQUALS)),
        "in" => Some((3, operators::IN)),
        "+" => Some((4, operators::ADD)),
        "-" => Some((4, operators::SUBSTRACT)),
        "*" => Some((5, operators::MULTIPLY)),
        "/" => Some((5, operators::DIVIDE)),
        "%" => Some((5, operators::MODULO)),
        _ => None,
    }
}

impl<'a> Parser<'a> {
    /// A whole expression: also one in brackets, an argument, an element.
    pub(super) fn expr(&mut self) -> Made {
        if self.nesting == NESTING {
            let message = format!(
                "the expression nests too many brackets, calls or conditions ({} at most): split it, \
                 with `assign`, into several",
                NESTING - 1
            );
            return Err(error(message, self.token.place));
        }
        self.nesting += 1;
        let mut expr = self.operations()?;
        if self.token.is("?") {
            expr = self.conditional(expr)?;
        }
        self.nesting -= 1;
        Ok(expr)
    }

    /// `condition ? then : otherwise`, from the `?` on.
    fn conditional(&mut self, condition: IdedExpr) -> Made {
        let place = self.advance()?.place;
        let then = self.operations()?;
        self.expect(":", "an operator or the `:` of this condition")?;
        let otherwise = self.expr()?;
        let args = vec![condition, then, otherwise];
        self.tree.call(place, operators::CONDITIONAL, None, args)
    }

    /// Operands and the operators between them. This keeps a list of what is open instead of recursing, so
    /// that brackets in brackets need little stack.
    fn operations(&mut self) -> Made {
        let mut opened: Vec<Open> = Vec::new();
        loop {
            let mut value = self.unary()?;
            let next = operation(&self.token);
            let level = next.map_or(0, |(level, _)| level);
            let complete =
                |open: &mut Open| open.level > level || (open.level == level && level > CHAINED);
            while let Some(mut open) = opened.pop_if(complete) {
                open.terms.push(value);
                value = self.balanced(open.name, &mut open.terms, &open.places)?;
            }
            let Some((level, name)) = next else { return Ok(value) };
            let place = self.advance()?.place;
            match opened.last_mut() {
                Some(open) if open.level == level => {
                    open.terms.push(value);
                    open.places.push(place);
                }
                _ => opened.push(Open { level, name, terms: vec![value], places: vec![place] }),
            }
        }
    }

    /// The tree of `terms`, with an operator at `places` between each two. It is balanced: a chain of `&&` is
    /// flat, however many terms it has.
    fn balanced(&mut self, name: &str, terms: &mut [IdedExpr], places: &[usize]) -> Made {
        let half = places.len() / 2;
        let (before, after) = places.split_at_checked(half).unwrap_or_default();
        let (Some((place, after)), Some((left, right))) =
            (after.split_first(), terms.split_at_mut_checked(half + 1))
        else {
            return Ok(terms.first_mut().map(std::mem::take).unwrap_or_default());
        };
        let left = self.balanced(name, left, before)?;
        let right = self.balanced(name, right, after)?;
        self.tree.call(*place, name, None, vec![left, right])
    }

    /// `!` and `-`, each any number of times: two of them cancel each other out.
    fn unary(&mut self) -> Made {
        let sign = self.token;
        let name = match sign.text {
            "!" if sign.is("!") => operators::LOGICAL_NOT,
            "-" if sign.is("-") && !self.number_follows() => operators::NEGATE,
            _ => return self.member(),
        };
        let mut odd = false;
        while self.skip(sign.text)? {
            odd = !odd;
        }
        let operand = self.member()?;
        if odd { self.tree.call(sign.place, name, None, vec![operand]) } else { Ok(operand) }
    }

    /// Whether the token after the next is a number that a minus sign may belong to.
    fn number_follows(&self) -> bool {
        let after = self.lexer.clone().next();
        after.is_ok_and(|after| matches!(after.kind, Kind::Int | Kind::Double))
    }

    /// A value, and the members, calls and indices after it.
    fn member(&mut self) -> Made {
        let mut expr = self.primary()?;
        loop {
            expr = match self.token.text {
                "." if self.token.is(".") => self.select(expr)?,
                "[" if self.token.is("[") => self.index(expr)?,
                _ => return Ok(expr),
            };
        }
    }

    /// `operand.name`, `operand.?name` or `operand.name(…)`, from the dot on.
    fn select(&mut self, operand: IdedExpr) -> Made {
        let dot = self.advance()?.place;
        let optional = self.skip("?")?;
        let name = self.member_name()?;
        let field = unquoted(&name);
        if optional {
            let field = LiteralValue::String(field.to_owned().into());
            let field = self.tree.node(dot, Expr::Literal(field))?;
            return self.tree.call(dot, operators::OPT_SELECT, None, vec![operand, field]);
        }
        if name.kind == Kind::Name && self.token.is("(") {
            let args = self.arguments()?;
            return macros::call(&mut self.tree, name.place, field, Some(operand), args);
        }
        let (operand, field) = (Box::new(operand), field.to_owned());
        self.tree.node(dot, Expr::Select(SelectExpr { operand, field, test: false }))
    }

    fn member_name(&mut self) -> Result<Token<'a>, CompileError> {
        match self.token.kind {
            Kind::Name | Kind::QuotedName => self.advance(),
            _ => Err(self.wanted("the name of a member")),
        }
    }

    /// `operand[index]` or `operand[?index]`, from the bracket on.
    fn index(&mut self, operand: IdedExpr) -> Made {
        let place = self.advance()?.place;
        let name = if self.skip("?")? { operators::OPT_INDEX } else { operators::INDEX };
        let index = self.expr()?;
        self.expect("]", "an operator or `]`")?;
        self.tree.call(place, name, None, vec![operand, index])
    }

    fn primary(&mut self) -> Made {
        let token = self.token;
        match (token.kind, token.text) {
            (Kind::Name, _) => self.named(false),
            (Kind::Symbol, ".") => {
                self.advance()?;
                if self.token.kind == Kind::Name {
                    self.named(true)
                } else {
                    Err(self.wanted("a name"))
                }
            }
            (Kind::Symbol, "(") => {
                self.advance()?;
                let expr = self.expr()?;
                self.expect(")", "an operator or `)`")?;
                Ok(expr)
            }
            (Kind::Symbol, "[") => self.list(),
            (Kind::Symbol, "{") => self.map(),
            (Kind::Symbol, "-") if self.number_follows() => {
                self.advance()?;
                self.literal(true)
            }
            (Kind::Symbol, "true" | "false" | "null")
            | (Kind::Int | Kind::Uint | Kind::Double | Kind::String | Kind::Bytes, _) => {
                self.literal(false)
            }
            _ => Err(self.wanted("a value")),
        }
    }

    fn literal(&mut self, negative: bool) -> Made {
        let token = self.advance()?;
        let value = literal::value(&token, negative)?;
        self.tree.node(token.place, Expr::Literal(value))
    }

    /// A name, a call or a message; perhaps after a dot, as `absolute` says.
    fn named(&mut self, absolute: bool) -> Made {
        let dot = if absolute { "." } else { "" };
        if self.message_follows() {
            return self.message(dot);
        }
        let token = self.advance()?;
        if RESERVED.contains(&token.text) {
            let message = format!("CEL reserves the name `{}`: use another", token.text);
            return Err(error(message, token.place));
        }
        let name = format!("{dot}{}", token.text);
        if !self.token.is("(") {
            return self.tree.node(token.place, Expr::Ident(name));
        }
        let args = self.arguments()?;
        macros::call(&mut self.tree, token.place, &name, None, args)
    }

    /// `(a, b)`
    fn arguments(&mut self) -> Result<Vec<IdedExpr>, CompileError> {
        self.advance()?;
        let mut args = Vec::new();
        if self.skip(")")? {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if !self.skip(",")? {
                self.expect(")", "an operator, `,` or `)`")?;
                return Ok(args);
            }
        }
    }

    /// What stands between two brackets, from the first one on. A comma may stand before the second.
    fn items<T>(
        &mut self,
        close: &str,
        item: impl Fn(&mut Self) -> Result<T, CompileError>,
    ) -> Result<Vec<T>, CompileError> {
        self.advance()?;
        let mut items = Vec::new();
        // CEL's grammar also has `[,]`, which is empty.
        if !self.skip(",")? {
            while !self.token.is(close) {
                items.push(item(self)?);
                if !self.skip(",")? {
                    break;
                }
            }
        }
        self.expect(close, &format!("an operator, `,` or `{close}`"))?;
        Ok(items)
    }

    /// `[a, ?b]`
    fn list(&mut self) -> Made {
        let place = self.token.place;
        let items = self.items("]", |parser| Ok((parser.skip("?")?, parser.expr()?)))?;
        let optional = items.iter().enumerate().filter(|(_, (optional, _))| *optional);
        let optional = optional.map(|(index, _)| index).collect();
        let elements = items.into_iter().map(|(_, element)| element).collect();
        self.tree.node(place, Expr::List(ListExpr::new_with_optionals(elements, optional)))
    }

    /// `{a: b, ?c: d}`
    fn map(&mut self) -> Made {
        let place = self.token.place;
        let entries = self.items("}", |parser| {
            let optional = parser.skip("?")?;
            let key = parser.expr()?;
            let colon = parser.expect(":", "an operator or the `:` between a key and its value")?;
            let id = parser.tree.entry(colon.place);
            let value = parser.expr()?;
            let entry = MapEntryExpr { key, value, optional };
            Ok(IdedEntryExpr { id, expr: EntryExpr::MapEntry(entry) })
        })?;
        self.tree.node(place, Expr::Map(MapExpr { entries }))
    }

    /// Whether the next tokens are the name of a message and its first bracket.
    fn message_follows(&self) -> bool {
        let mut lexer = self.lexer;
        let mut next = || lexer.next().ok();
        loop {
            match next() {
                Some(token) if token.is("{") => return true,
                Some(token) if token.is(".") => {}
                _ => return false,
            }
            if !next().is_some_and(|token| token.kind == Kind::Name) {
                return false;
            }
        }
    }

    /// `a.b{c: d, ?e: f}`, whose name `dot` begins.
    fn message(&mut self, dot: &str) -> Made {
        let place = self.token.place;
        let mut type_name = dot.to_owned();
        while !self.token.is("{") {
            type_name.push_str(self.advance()?.text);
        }
        let entries = self.items("}", |parser| {
            let optional = parser.skip("?")?;
            let name = parser.member_name()?;
            let colon = parser.expect(":", "the `:` between a field and its value")?;
            let id = parser.tree.entry(colon.place);
            let value = parser.expr()?;
            let field = StructFieldExpr { field: unquoted(&name).to_owned(), value, optional };
            Ok(IdedEntryExpr { id, expr: EntryExpr::StructField(field) })
        })?;
        self.tree.node(place, Expr::Struct(StructExpr { type_name, entries }))
    }
}

/// The name that `token` writes, with backticks or without.
fn unquoted<'a>(token: &Token<'a>) -> &'a str {
    token.text.trim_matches('`')
}
