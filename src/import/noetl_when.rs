//! Conditions of `NoETL`'s rules: the Jinja expressions over an outcome that can be said of a response.

/// How deep parentheses may nest.
const MAX_DEPTH: usize = 30;
/// The statuses that are errors.
const ERRORS: std::ops::RangeInclusive<u16> = 400..=599;

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Test {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// Whether the outcome is an error.
    Failed(bool),
    /// The status compared with numbers.
    Status(Comparison, Vec<f64>),
    /// A CEL expression over `response`.
    Response(String),
    /// What cannot be said.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// When a rule holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    /// The statuses of errors.
    pub(super) statuses: Vec<u16>,
    /// Whether also without a response.
    pub(super) transport: bool,
    /// Whether also for a success.
    pub(super) success: bool,
    /// What a response must be besides.
    pub(super) when: Option<String>,
}

/// An operand.
#[derive(Clone, Debug)]
enum Operand {
    Path(String, bool),
    Text(String),
    Number(f64),
    List(Vec<Self>),
    Nothing,
    Bool(bool),
}

/// Reads `{{ … }}`.
pub(super) fn parse(text: &str) -> Test {
    let inner = text.trim();
    let inner = inner.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).unwrap_or(inner);
    let Some(tokens) = tokens(inner) else { return Test::Unknown };
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0 };
    let read = parser.any().filter(|_| parser.at == tokens.len());
    read.unwrap_or(Test::Unknown)
}

impl Test {
    /// When it holds. `None` if that cannot be said.
    pub(super) fn holds(&self) -> Option<Holds> {
        let parts = match self {
            Self::All(parts) => parts.clone(),
            one => vec![one.clone()],
        };
        let mut pure = Vec::new();
        let mut said = Vec::new();
        for part in parts {
            match part {
                Self::Response(text) => said.push(text),
                Self::Any(inner) if inner.iter().all(|one| matches!(one, Self::Response(_))) => {
                    let inner = inner.iter().filter_map(|one| match one {
                        Self::Response(text) => Some(text.as_str()),
                        _ => None,
                    });
                    said.push(format!("({})", inner.collect::<Vec<_>>().join(" || ")));
                }
                part if part.is_pure() => pure.push(part),
                _ => return None,
            }
        }
        let all = |status: Option<u16>, failed| pure.iter().all(|part| part.is(status, failed));
        let when = (!said.is_empty()).then(|| said.join(" && "));
        Some(Holds {
            statuses: ERRORS.filter(|status| all(Some(*status), true)).collect(),
            transport: when.is_none() && all(None, true),
            success: when.is_none() && all(Some(200), false),
            when,
        })
    }

    fn is_pure(&self) -> bool {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().all(Self::is_pure),
            Self::Not(inner) => inner.is_pure(),
            Self::Failed(_) | Self::Status(..) => true,
            Self::Response(_) | Self::Unknown => false,
        }
    }

    fn is(&self, status: Option<u16>, failed: bool) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.is(status, failed)),
            Self::Any(parts) => parts.iter().any(|part| part.is(status, failed)),
            Self::Not(inner) => !inner.is(status, failed),
            Self::Failed(wanted) => failed == *wanted,
            Self::Status(comparison, numbers) => status.is_some_and(|status| {
                let status = f64::from(status);
                numbers.iter().any(|number| match comparison {
                    Comparison::Equal => (status - number).abs() < 0.5,
                    Comparison::Less => status < *number,
                    Comparison::AtMost => status <= *number,
                    Comparison::More => status > *number,
                    Comparison::AtLeast => status >= *number,
                })
            }),
            Self::Response(_) | Self::Unknown => false,
        }
    }
}

/// Words, numbers, strings in quotes and marks. `None` for what has no place in a condition.
fn tokens(text: &str) -> Option<Vec<String>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len())
        } else if first == '\'' || first == '"' {
            rest.char_indices().skip(1).find(|(_, c)| *c == first)?.0 + 1
        } else if ["==", "!=", "<=", ">="].iter().any(|mark| rest.starts_with(mark)) {
            2
        } else if "<>()[],|".contains(first) {
            1
        } else {
            return None;
        };
        let (token, after) = rest.split_at_checked(length)?;
        tokens.push(token.to_owned());
        rest = after.trim_start();
    }
    (tokens.len() <= 1000).then_some(tokens)
}

struct Parser<'t> {
    tokens: &'t [String],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let there = self.tokens.get(self.at).is_some_and(|token| token == word);
        self.at += usize::from(there);
        there
    }

    fn any(&mut self) -> Option<Test> {
        let mut parts = vec![self.all()?];
        while self.takes("or") {
            parts.push(self.all()?);
        }
        if parts.len() == 1 { parts.pop() } else { Some(Test::Any(parts)) }
    }

    fn all(&mut self) -> Option<Test> {
        let mut parts = vec![self.one()?];
        while self.takes("and") {
            match self.one()? {
                Test::All(inner) => parts.extend(inner),
                part => parts.push(part),
            }
        }
        if parts.len() == 1 { parts.pop() } else { Some(Test::All(parts)) }
    }

    fn one(&mut self) -> Option<Test> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let test = if self.takes("not") {
            Some(Test::Not(Box::new(self.one()?)))
        } else {
            let before = self.at;
            self.comparison().or_else(|| {
                self.at = before;
                let grouped = self.takes("(").then(|| self.any()).flatten()?;
                self.takes(")").then_some(grouped)
            })
        };
        self.depth -= 1;
        test
    }

    fn comparison(&mut self) -> Option<Test> {
        let left = self.operand()?;
        let operator = self.tokens.get(self.at).cloned();
        self.at += 1;
        let negated = match operator.as_deref() {
            Some("not") => self.takes("in").then_some("not in")?,
            Some("is") if self.takes("not") => "!=",
            Some("is") => "==",
            Some(operator @ ("==" | "!=" | "<" | "<=" | ">" | ">=" | "in")) => operator,
            _ => {
                self.at -= 1;
                return alone(&left);
            }
        };
        let right = self.operand()?;
        let (operator, not) = match negated {
            "not in" => ("in", true),
            "!=" => ("==", true),
            operator => (operator, false),
        };
        let test = compared(&left, operator, &right);
        Some(if not { Test::Not(Box::new(test)) } else { test })
    }

    fn operand(&mut self) -> Option<Operand> {
        let token = self.tokens.get(self.at)?.clone();
        self.at += 1;
        let first = token.chars().next()?;
        if token == "(" {
            let inner = self.operand()?;
            return self.takes(")").then_some(inner);
        }
        if token == "[" || token == "{" {
            let mut items = Vec::new();
            while !self.takes("]") {
                items.push(self.scalar()?);
                self.takes(",");
            }
            return Some(Operand::List(items));
        }
        if matches!(first, '\'' | '"') || first.is_ascii_digit() {
            self.at -= 1;
            return self.scalar();
        }
        match token.as_str() {
            "None" | "none" | "null" => return Some(Operand::Nothing),
            "True" | "true" => return Some(Operand::Bool(true)),
            "False" | "false" => return Some(Operand::Bool(false)),
            "in" | "and" | "or" | "is" | "not" => return None,
            _ => {}
        }
        if !(first.is_alphabetic() || first == '_') {
            return None;
        }
        let mut lower = false;
        while self.takes("|") {
            lower |= self.takes("lower");
            if !lower {
                return None;
            }
        }
        Some(Operand::Path(token, lower))
    }

    fn scalar(&mut self) -> Option<Operand> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        let quoted =
            token.strip_prefix(['\'', '"']).and_then(|rest| rest.strip_suffix(['\'', '"']));
        if let Some(text) = quoted {
            return Some(Operand::Text(text.to_owned()));
        }
        token.parse().ok().filter(|number: &f64| number.is_finite()).map(Operand::Number)
    }
}

/// A path that stands alone.
fn alone(operand: &Operand) -> Option<Test> {
    match operand {
        Operand::Path(path, _) if last(path) == "error" => Some(Test::Failed(true)),
        Operand::Path(path, _) if last(path) == "success" => Some(Test::Failed(false)),
        Operand::Bool(true) => Some(Test::All(Vec::new())),
        Operand::Bool(false) => Some(Test::Any(Vec::new())),
        _ => None,
    }
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn compared(left: &Operand, operator: &str, right: &Operand) -> Test {
    let test = match (left, operator, right) {
        (Operand::Path(path, _), operator, right) if is_status(path) => status(operator, right),
        (Operand::Path(path, _), "==", Operand::Text(text)) if last(path) == "status" => {
            Some(Test::Failed(text == "error"))
        }
        (Operand::Path(path, _), "==", Operand::Nothing) if last(path) == "error" => {
            Some(Test::Failed(false))
        }
        (Operand::Path(path, _), "==", Operand::Bool(value)) if last(path) == "success" => {
            Some(Test::Failed(!value))
        }
        (Operand::Path(path, lower), "==", Operand::Text(text)) => {
            said(path, *lower, |field| format!("{field} == {}", literal(text)))
        }
        (Operand::Path(path, lower), "in", Operand::List(items)) => {
            let texts = items.iter().map(|item| match item {
                Operand::Text(text) => Some(literal(text)),
                _ => None,
            });
            let texts = texts.collect::<Option<Vec<_>>>();
            texts.and_then(|texts| {
                said(path, *lower, |field| format!("{field} in [{}]", texts.join(", ")))
            })
        }
        (Operand::Text(text), "in", Operand::Path(path, lower)) => {
            said(path, *lower, |field| format!("{field}.contains({})", literal(text)))
        }
        _ => None,
    };
    test.unwrap_or(Test::Unknown)
}

/// Whether a path names the status of a response.
fn is_status(path: &str) -> bool {
    last(path) == "status_code" || path.ends_with("http.status")
}

fn status(operator: &str, right: &Operand) -> Option<Test> {
    let numbers = match right {
        Operand::Number(number) => vec![*number],
        Operand::List(items) => {
            let numbers = items.iter().map(|item| match item {
                Operand::Number(number) => Some(*number),
                _ => None,
            });
            numbers.collect::<Option<_>>()?
        }
        _ => return None,
    };
    let comparison = match operator {
        "==" | "in" => Comparison::Equal,
        "<" => Comparison::Less,
        "<=" => Comparison::AtMost,
        ">" => Comparison::More,
        ">=" => Comparison::AtLeast,
        _ => return None,
    };
    Some(Test::Status(comparison, numbers))
}

/// A condition on a member of the error that a service tells in its body: `code` or `message`.
fn said(path: &str, lower: bool, test: impl Fn(&str) -> String) -> Option<Test> {
    let member = last(path);
    if !matches!(member, "code" | "message") || !path.starts_with("outcome.") {
        return None;
    }
    let field = format!("response.body.{member}");
    let shown = if lower { format!("{field}.lowerAscii()") } else { field.clone() };
    Some(Test::Response(format!("has({field}) && {}", test(&shown))))
}

/// A CEL string.
fn literal(text: &str) -> String {
    let escaped: String = text
        .chars()
        .filter(|c| !c.is_control() && !"{}".contains(*c))
        .flat_map(|c| if c == '\'' || c == '\\' { vec!['\\', c] } else { vec![c] })
        .collect();
    format!("'{escaped}'")
}
