//! Environment variables in a file, as `docker run --env-file` reads them: a line for each.

use std::collections::HashMap;
use std::path::Path;

use crate::source::MAX_BYTES;
use crate::system::file;

/// The variables of a file. Those of the process come after them.
#[derive(Debug, Default)]
pub(super) struct Variables(HashMap<String, String>);

impl Variables {
    /// Reads the file at `path`.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = file::read_given_text(path, MAX_BYTES);
        let text = text.map_err(|error| format!("{name} cannot be read: {error}"))?;
        Self::parse(&text).map_err(|line| {
            format!("{name}:{line}: this is no variable; write a line `NAME=VALUE`, or `# …`")
        })
    }

    /// The number of the first line that is no variable, no comment and not empty.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut variables = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = line.strip_prefix("export ").unwrap_or(line);
            let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let named = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
            let Some((name, value)) =
                named.filter(|(name, _)| !name.is_empty() && name.chars().all(letter))
            else {
                return Err(number + 1);
            };
            variables.insert(name.to_owned(), unquoted(value).to_owned());
        }
        Ok(Self(variables))
    }

    /// The value of a variable.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned().or_else(|| std::env::var(name).ok())
    }
}

/// The text between quotes, if `value` is in quotes.
fn unquoted(value: &str) -> &str {
    let within = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_variable_a_line() {
        let text = "# a comment\n\nA=1\nexport B = two words \nC='=x'\nD=\"\"\n";
        let variables = Variables::parse(text).unwrap();
        let values = ["A", "B", "C", "D"].map(|name| variables.value(name).unwrap());
        assert_eq!(values, ["1", "two words", "=x", ""]);
        assert_eq!(Variables::parse("A=1\nB").unwrap_err(), 2);
        assert_eq!(Variables::parse("=1").unwrap_err(), 1);
        // The process has it.
        assert!(variables.value("PATH").is_some());
    }
}
