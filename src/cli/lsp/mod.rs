//! `lsp`: the Language Server Protocol (3.17) on standard input and output, for editors: what `check` says while a file is
//! written, and what the catalog says of a provider and its parameters. The answers are small and come at once, so one
//! message is served after the other.

mod hover;
mod wire;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value as Json, json};

use self::wire::{Incoming, receive, send};
use super::arguments::VERSION;
use super::check::of_text;
use super::list::documents;
use super::output::{fail, refuse};
use crate::proxy::message::query::decoded;

/// How many documents an editor may have open.
const MOST: usize = 256;
/// The protocol's codes for a method that is not known, and for what is no message.
const UNKNOWN_METHOD: i64 = -32601;
const NO_MESSAGE: i64 = -32700;

/// What the editor has told.
struct Server {
    /// The documents of the providers.
    catalog: Vec<Json>,
    /// The open texts, by their URIs.
    open: BTreeMap<String, String>,
    /// Whether the editor has asked for the end.
    ends: bool,
}

/// What to do after a message.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Message,
    End,
}

pub(super) fn lsp() -> ExitCode {
    let catalog = match documents() {
        Ok(catalog) => catalog,
        Err(error) => return fail(&error),
    };
    let mut server = Server { catalog, open: BTreeMap::new(), ends: false };
    match server.serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) if server.ends => ExitCode::SUCCESS,
        Ok(()) => fail("the editor left without asking for the end"),
        Err(error) => refuse(&format!("this is no editor: {error}")),
    }
}

impl Server {
    /// Serves until the editor says `exit`, or leaves.
    fn serve(&mut self, input: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
        while let Some(incoming) = receive(input)? {
            let next = match incoming {
                Incoming::Message(message) => self.message(&message, out)?,
                Incoming::Nonsense(why) => {
                    send(out, &failed(&Json::Null, NO_MESSAGE, &why))?;
                    Next::Message
                }
            };
            if next == Next::End {
                break;
            }
        }
        Ok(())
    }

    fn message(&mut self, message: &Json, out: &mut impl Write) -> io::Result<Next> {
        let method = message.get("method").and_then(Json::as_str).unwrap_or_default();
        let parameters = message.get("params").unwrap_or(&Json::Null);
        let text = |pointer: &str| parameters.pointer(pointer).and_then(Json::as_str);
        let uri = text("/textDocument/uri").unwrap_or_default().to_owned();
        let Some(id) = message.get("id") else {
            match method {
                "textDocument/didOpen" => {
                    let opened = text("/textDocument/text").unwrap_or_default().to_owned();
                    self.changed(uri, opened, out)?;
                }
                "textDocument/didChange" => {
                    let changes = parameters.get("contentChanges").and_then(Json::as_array);
                    let last = changes.and_then(|changes| changes.last()?.get("text")?.as_str());
                    self.changed(uri, last.unwrap_or_default().to_owned(), out)?;
                }
                "textDocument/didClose" => {
                    self.open.remove(&uri);
                    send(out, &published(&uri, &[]))?;
                }
                "exit" => return Ok(Next::End),
                _ => {}
            }
            return Ok(Next::Message);
        };
        let result = match method {
            "initialize" => initialized(),
            "shutdown" => {
                self.ends = true;
                Json::Null
            }
            "textDocument/hover" => self.hover(&uri, parameters).unwrap_or_default(),
            // An answer of the editor's: this server asks for nothing.
            "" => return Ok(Next::Message),
            method => {
                let why = format!("`{method}` is not done here");
                send(out, &failed(id, UNKNOWN_METHOD, &why))?;
                return Ok(Next::Message);
            }
        };
        send(out, &json!({ "jsonrpc": "2.0", "id": id, "result": result }))?;
        Ok(Next::Message)
    }

    /// Keeps a document's text, and says what is wrong with it.
    fn changed(&mut self, uri: String, text: String, out: &mut impl Write) -> io::Result<()> {
        let found = if is_ours(&text) { diagnostics(&uri, &text) } else { Vec::new() };
        send(out, &published(&uri, &found))?;
        if self.open.len() < MOST || self.open.contains_key(&uri) {
            self.open.insert(uri, text);
        }
        Ok(())
    }

    fn hover(&self, uri: &str, parameters: &Json) -> Option<Json> {
        let number = |name: &str| {
            let number = parameters.pointer(&format!("/position/{name}"))?.as_u64()?;
            usize::try_from(number).ok()
        };
        let said =
            hover::at(self.open.get(uri)?, number("line")?, number("character")?, &self.catalog)?;
        Some(json!({ "contents": { "kind": "markdown", "value": said } }))
    }
}

/// What this server can do.
fn initialized() -> Json {
    json!({
        "capabilities": {
            "positionEncoding": "utf-16",
            // The whole text comes with each change.
            "textDocumentSync": { "openClose": true, "change": 1 },
            "hoverProvider": true,
        },
        "serverInfo": { "name": "mwl-proxy", "version": VERSION },
    })
}

fn failed(id: &Json, code: i64, why: &str) -> Json {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } })
}

fn published(uri: &str, diagnostics: &[Json]) -> Json {
    json!({
        "jsonrpc": "2.0",
        "method": "textDocument/publishDiagnostics",
        "params": { "uri": uri, "diagnostics": diagnostics },
    })
}

/// Whether a text is a configuration or a definition, as far as can be seen while it is written. An editor may send any
/// YAML.
fn is_ours(text: &str) -> bool {
    let keys = ["listeners", "routes", "upstreams", "entrypoint"];
    text.lines().any(|line| {
        let key = line.trim_start_matches([' ', '\t', '{', '"']);
        let top = line.starts_with(|first: char| !first.is_whitespace()) || line.contains('"');
        top && keys.iter().any(|known| {
            key.strip_prefix(known)
                .is_some_and(|rest| rest.trim_start_matches('"').starts_with(':'))
        })
    })
}

/// The findings of `check` about a text, as the protocol writes them.
fn diagnostics(uri: &str, text: &str) -> Vec<Json> {
    let path = PathBuf::from(decoded(uri.strip_prefix("file://").unwrap_or(uri)).into_owned());
    let name = path.display().to_string();
    let found = of_text(&path, text);
    let own = found.iter().filter(|one| one.get("file").and_then(Json::as_str) == Some(&name));
    own.map(|one| diagnostic(text, one)).collect()
}

fn diagnostic(text: &str, found: &Json) -> Json {
    let said = |name: &str| found.get(name).and_then(Json::as_str).unwrap_or_default();
    let place = |line: &str, column: &str| {
        let number = |name: &str| {
            let number = found.get(name).and_then(Json::as_u64).unwrap_or(1);
            usize::try_from(number).unwrap_or(1).saturating_sub(1)
        };
        let (line, column) = (number(line), number(column));
        let before = text.lines().nth(line).unwrap_or_default().chars().take(column);
        json!({ "line": line, "character": before.map(char::len_utf16).sum::<usize>() })
    };
    let message = match said("help") {
        "" => said("message").to_owned(),
        help => format!("{}\n{help}", said("message")),
    };
    json!({
        "range": { "start": place("line", "column"), "end": place("endLine", "endColumn") },
        "severity": if said("severity") == "error" { 1 } else { 2 },
        "code": said("code"),
        "source": "mwl-proxy",
        "message": message,
    })
}

#[cfg(test)]
mod tests;
