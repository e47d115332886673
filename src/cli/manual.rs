//! `completions` and `man`: what clap knows of the commands, for shells and for `man`.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::arguments::Cli;
use super::output::{refuse, say};

/// The name of the program.
const NAME: &str = "mwl-proxy";

/// Prints the completions for `shell`.
pub(super) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    let script = String::from_utf8_lossy(&script);
    // In bash's script, `clap_complete` takes the hyphen of the name for a blank between commands, but only in one of two
    // places, so that a command's options would never be found.
    say(script.replace("mwl__subcmd__proxy", "mwl__proxy").trim_end());
    ExitCode::SUCCESS
}

/// Prints the manual page of the command that these words name.
pub(super) fn page(words: &[String]) -> ExitCode {
    match rendered(words) {
        Ok(page) => {
            say(page.trim_end());
            ExitCode::SUCCESS
        }
        Err(message) => refuse(&message),
    }
}

fn rendered(words: &[String]) -> Result<String, String> {
    let mut command = Cli::command();
    // Gives each command its usage and its full name.
    command.build();
    let mut name = NAME.to_owned();
    for word in words {
        let Some(found) = command.find_subcommand(word) else {
            let all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            return Err(format!("`{name}` has no command `{word}`; it has `{}`", all.join("`, `")));
        };
        command = found.clone();
        name = format!("{name}-{word}");
    }
    let mut page = Vec::new();
    let rendered = Man::new(command).title(name).render(&mut page);
    rendered.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let page = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            rendered(&words)
        };
        let whole = page(&[]).unwrap();
        assert!(whole.contains(".TH mwl-proxy 1"), "{whole}");
        for command in Cli::command().get_subcommands().map(Command::get_name) {
            assert!(whole.contains(command), "{command}");
            assert!(page(&[command]).unwrap().contains(&format!(".TH mwl-proxy-{command} 1")));
        }
        assert!(page(&["flow", "test"]).unwrap().contains("expected\\-error.json"));
        let refused = page(&["flow", "tset"]).unwrap_err();
        assert!(refused.starts_with("`mwl-proxy-flow` has no command `tset`; it has `run`"));
    }
}
