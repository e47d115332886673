//! Turns the text of an expression into a checked tree that is safe to evaluate.
//!
//! The parser, the evaluator and even the destructor of a tree recurse, and a stack overflow aborts the
//! process. So the length of the text is bounded, and the parser runs on a thread whose stack holds the
//! deepest tree that such a text can make. The thread stays for a moment, because a configuration has many expressions. The depth of the tree is then measured without recursion, and a
//! tree that is too deep for a worker's stack never leaves that thread.

use std::panic::catch_unwind;
use std::sync::mpsc::{self, Receiver, SendError, Sender, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use cel::common::ast::{EntryExpr, Expr, SourceInfo};
use cel::{IdedExpr, ParseError};

use super::CompileError;
use super::environment;
use super::rewrite::{Names, Rewriter, Uses};

/// The longest expression, in bytes.
pub(super) const LENGTH: usize = 16 * 1024;

/// The deepest tree that is evaluated.
pub(super) const DEPTH: usize = 120;

/// The stack of the thread that parses: four times what the worst text of [`LENGTH`] bytes needed when it was
/// measured, in a debug build too. The memory is only reserved; it is not used until it is needed.
pub const COMPILER_STACK: usize = 64 * 1024 * 1024;

/// How long the thread stays when there is nothing to compile.
const STAY: Duration = Duration::from_millis(200);

/// The result of compiling.
pub(super) struct Compiled {
    /// The rewritten tree.
    pub(super) expr: IdedExpr,
    /// What it refers to.
    pub(super) uses: Uses,
}

/// An expression for the thread that compiles.
struct Job {
    body: String,
    names: Names,
    answer: SyncSender<Result<Compiled, Vec<CompileError>>>,
}

/// The way to the thread that compiles, while there is one.
static COMPILER: Mutex<Option<Sender<Job>>> = Mutex::new(None);

/// Compiles `body` for a site where `names` may be used.
pub(super) fn compile(body: &str, names: Names) -> Result<Compiled, Vec<CompileError>> {
    let (answer, answered) = mpsc::sync_channel(1);
    let job = Job { body: body.to_owned(), names, answer };
    hand_over(job)
        .map_err(|cause| error(format!("cannot start a thread to compile on: {cause}"), 0))?;
    let failed = |_| Err(error("the parser failed on this expression".to_owned(), 0));
    answered.recv().unwrap_or_else(failed)
}

/// Gives `job` to the thread that compiles, which is started if there is none.
fn hand_over(job: Job) -> std::io::Result<()> {
    let mut compiler = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
    let sent = match compiler.as_ref() {
        Some(jobs) => jobs.send(job),
        None => Err(SendError(job)),
    };
    let Err(SendError(job)) = sent else {
        return Ok(());
    };
    let (jobs, waiting) = mpsc::channel();
    large_stack().spawn(move || compile_all(&waiting))?;
    *compiler = jobs.send(job).is_ok().then_some(jobs);
    Ok(())
}

/// Compiles what comes, until nothing has come for [`STAY`].
fn compile_all(waiting: &Receiver<Job>) {
    loop {
        let job = waiting.recv_timeout(STAY).or_else(|_| {
            let mut compiler = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
            // Another may have come before the lock was taken.
            waiting.try_recv().inspect_err(|_| *compiler = None)
        });
        let Ok(Job { body, names, answer }) = job else {
            return;
        };
        // After a panic, who asked is left without an answer.
        if let Ok(compiled) = catch_unwind(|| compile_here(&body, names)) {
            _ = answer.send(compiled);
        }
    }
}

/// A thread whose stack holds the deepest tree that a text of [`LENGTH`] can make.
pub(super) fn large_stack() -> Builder {
    Builder::new().name("mwl-compile".to_owned()).stack_size(COMPILER_STACK)
}

fn error(message: String, offset: usize) -> Vec<CompileError> {
    vec![CompileError { message, offset }]
}

/// Compiles on the caller's own stack.
pub(super) fn compile_here(body: &str, names: Names) -> Result<Compiled, Vec<CompileError>> {
    check_length(body)?;
    let env = environment::shared();
    let (expr, source) = env
        .parser()
        .enable_ident_escape_syntax(true)
        .parse_with_source_info(body)
        .map_err(|errors| syntax(body, errors.errors))?;
    check_depth(&expr, &source)?;
    let mut rewriter = Rewriter::new(env, names, &source);
    let expr = rewriter.expr(expr);
    if !rewriter.errors.is_empty() {
        rewriter.errors.sort_by_key(|error| error.offset);
        return Err(rewriter.errors);
    }
    Ok(Compiled { expr, uses: rewriter.uses })
}

fn check_length(body: &str) -> Result<(), Vec<CompileError>> {
    if body.trim().is_empty() {
        return Err(error("the expression is empty".to_owned(), 0));
    }
    if body.len() > LENGTH {
        return Err(error(
            format!(
                "the expression has {} bytes; the most is {LENGTH}: split it, with `assign`, into several",
                body.len()
            ),
            0,
        ));
    }
    Ok(())
}

/// The parser's errors, with offsets as places. After one slip, its recovery may report many errors.
fn syntax(body: &str, errors: Vec<ParseError>) -> Vec<CompileError> {
    let mut found: Vec<CompileError> = Vec::new();
    // "I gave up" adds nothing to the errors that were found before it.
    let gave_up = |error: &ParseError| error.msg.contains("error recovery attempt limit");
    for syntax in errors.into_iter().filter(|error| !gave_up(error)) {
        let (line, column) = syntax.pos;
        let before = usize::try_from(line - 1).unwrap_or(0);
        let lines: usize =
            body.split_inclusive('\n').take(before).map(|line| line.chars().count()).sum();
        let offset = lines + usize::try_from(column - 1).unwrap_or(0);
        let offset = offset.min(body.chars().count());
        let message = readable(&syntax.msg);
        let is_new = |known: &CompileError| known.offset != offset && known.message != message;
        if found.iter().all(is_new) {
            found.push(CompileError { message, offset });
        }
    }
    if found.is_empty() {
        return error("this is not an expression".to_owned(), 0);
    }
    found
}

/// The parser's message, or a clearer one in its place.
fn readable(message: &str) -> String {
    if message.contains("Recursion limit") {
        return "the expression nests too many brackets, calls or conditions (95 at most): split it, with \
                `assign`, into several"
            .to_owned();
    }
    if message.starts_with("Incomplete") {
        return "the expression is not complete here".to_owned();
    }
    message.to_owned()
}

/// The offset of the node `id`, in characters from the start. The parser counts bytes.
pub(super) fn offset(source: &SourceInfo, id: u64) -> usize {
    let start = source.offset_for(id).map_or(0, |(start, _)| start);
    let before = usize::try_from(start).ok().and_then(|start| source.source.get(..start));
    before.map_or(0, |before| before.chars().count())
}

/// Refuses a tree deeper than [`DEPTH`], without recursion.
fn check_depth(expr: &IdedExpr, source: &SourceInfo) -> Result<(), Vec<CompileError>> {
    let mut open = vec![(expr, 1)];
    let mut below = Vec::new();
    while let Some((expr, depth)) = open.pop() {
        if depth > DEPTH {
            return Err(error(
                format!(
                    "the expression nests deeper than {DEPTH} levels (each term of a chain such as \
                     `a + b + c` is one): split it, with `assign`, into several, or use `join`"
                ),
                offset(source, expr.id),
            ));
        }
        children(&expr.expr, &mut below);
        open.extend(below.drain(..).map(|child| (child, depth + 1)));
    }
    Ok(())
}

/// Appends the direct children of `expr`.
pub(super) fn children<'a>(expr: &'a Expr, out: &mut Vec<&'a IdedExpr>) {
    match expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Call(call) => {
            out.extend(call.target.as_deref());
            out.extend(&call.args);
        }
        Expr::Comprehension(fold) => out.extend([
            &fold.iter_range,
            &fold.accu_init,
            &fold.loop_cond,
            &fold.loop_step,
            &fold.result,
        ]),
        Expr::List(list) => out.extend(&list.elements),
        Expr::Select(select) => out.push(&select.operand),
        Expr::Map(map) => map.entries.iter().for_each(|entry| entry_children(&entry.expr, out)),
        Expr::Struct(message) => {
            message.entries.iter().for_each(|entry| entry_children(&entry.expr, out));
        }
    }
}

fn entry_children<'a>(entry: &'a EntryExpr, out: &mut Vec<&'a IdedExpr>) {
    match entry {
        EntryExpr::StructField(field) => out.push(&field.value),
        EntryExpr::MapEntry(member) => out.extend([&member.key, &member.value]),
    }
}
