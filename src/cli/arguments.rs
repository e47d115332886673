//! The arguments of every command.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::addresses;
use super::dev::Faults;
use crate::import::Kind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// The default admin address of the quick-start.
pub(super) const ADMIN: &str = "127.0.0.1:9900";

/// The default listen address of the quick-start and the dev proxy.
pub(super) const LISTEN: &str = "127.0.0.1:8080";

/// The version, the commit and its date (`build.rs`).
pub(super) const VERSION: &str = env!("MWL_VERSION");

/// How a case is written, for the help of `flow test`.
const CASES: &str = "\
A case is a directory in the layout of MWL's conformance corpus:

  case.json                              `description`, `profiles` (as `mwl-proxy conformance` prints
                                         them), `marks` (`temporal` or none), `scenarios` (an object
                                         with a member for each)
  definition.json                        the definition
  scenarios/NAME/input.json              the execution's input
  scenarios/NAME/arguments.json          arguments for the Flow's parameters, if it has any
  scenarios/NAME/expected-result.json    the Result: a success whole, of a failure what matters

and with what the corpus has no form for:

  case.json                              `section`: where the rule is written
  scenarios/NAME/expected.json           `took`: how long the run takes, such as \"PT1M2S\"; within 20 ms
  scenarios/NAME/expected-error.json     in place of a Result, `codes`: why the definition is refused,
                                         such as \"unknown-step\"

Time is virtual: an hour of backoff takes no time. What fails is printed with its path, the JSON pointer
of the difference, and both sides.";

/// How a response is written, for the help of `explain`.
const RESPONSES: &str = "\
A RESPONSE is one of

  STATUS    the upstream answers, 200 to 599
  reset     the connection is lost once the request was sent
  refused   the upstream takes no connection
  hang      the upstream reads the request and never answers

directly behind it, perhaps

  *N        N calls in a row get it: 503*3
  @TIME     how long it takes: 200@1.5s, 200@20ms, 200@PT2S; or a draw between two: 200@20ms..80ms

and any of these, a comma before each:

  NAME=VALUE       a header field of the answer: 503,retry-after=2
  after=TIME       the same as @TIME
  upstream=NAME    kept for calls to that upstream: 500,upstream=audit
  body=TEXT        the answer's body: the rest, but for after= and upstream= at its end

Responses are used in order, one for each request that reaches an upstream; the last of them is given again
where more are asked for. Those that name no upstream are for the calls of the Flow's Steps. A cleanup (an
audit, say) gets 200 from an upstream that no response names.

A script file has a list of responses for each upstream, and one called `*` for all others, YAML or JSON:

  billing:
    - 503*2                       # as --respond takes it
    - status: 429                 # or status, reset: true, refused: true, hang: true
      headers: { retry-after: 2 }
      body: { error: slow down }  # a text, or what is sent as JSON
      after: 20ms..80ms
      times: 3
    - 200
  \"*\": [200@5ms]

With --runs, many requests come one after the other, each with all responses from the start. With --mix, each
call draws its response: --mix 200@20ms..80ms:90,503:7,reset:3 gives the first in 90 of 100 calls.

Jitter, latencies and mixes are drawn from --seed: the same arguments say the same.";

/// A sidecar reverse proxy whose resilience policy is a language.
///
/// Without a command and without a file, the quick-start runs: a proxy before a built-in upstream that
/// fails on purpose.
#[derive(Debug, Parser)]
#[command(name = "mwl-proxy", version = VERSION, args_conflicts_with_subcommands = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) run: Run,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Runs the proxy; what is done without a command.
    Run(Run),
    /// Validates configurations and MWL definitions. Exit 0: no errors; 1: errors.
    Check(Check),
    /// Prints a configuration as JSON with everything in place: variables, stacks, the Flows of files. It shows the values
    /// of variables. Exit 0: it is printed; 1: the file is wrong.
    Config(Resolve),
    /// Runs and inspects MWL definitions without a proxy.
    #[command(subcommand)]
    Flow(Flow),
    /// Evaluates one CEL expression as a route would and prints the value as JSON. Exit 0: it has one; 1:
    /// it fails, with the failure's code; 2: it does not compile.
    Eval(Eval),
    /// Says what a policy would do with a request and these responses, in virtual time: no socket is opened,
    /// an hour of waiting takes no time. Exit 0: it was said; 2: the configuration or the arguments are wrong.
    #[command(after_long_help = RESPONSES)]
    Explain(Explain),
    /// Writes the policies of another system as a configuration, with a comment at each thing that has no equal, and
    /// sums up on standard error. Exit 0: it is written; 1: the file is not of this kind; 2: it cannot be read.
    Import(Import),
    /// Sends recorded requests (`run --record DIR`) again, and prints what comes back beside what came back then. Exit 0:
    /// each was answered; 1: one was not, or cannot be sent again; 2: a file cannot be read.
    Replay(Replay),
    /// Prints the configuration's JSON Schema, for editors.
    Schema,
    /// Prints the provider documents.
    Catalog,
    /// Prints the URIs of the MWL conformance profiles that are claimed, one a line.
    Conformance,
    /// Speaks the Language Server Protocol on standard input and output, for editors: what `check` says while a file is
    /// written, and what the catalog says of a provider or a parameter. Exit 0: the editor has ended it.
    Lsp,
    /// Asks a running proxy whether it is ready. Exit 0: it is; 1: it is not.
    Probe(Probe),
    /// Prints completions for a shell: `source <(mwl-proxy completions bash)`.
    Completions(Completions),
    /// Prints the manual page of the program, or of one of its commands, for `man -l -`.
    Man(Man),
}

#[derive(Debug, Args)]
pub(super) struct Run {
    /// The configuration file, YAML or JSON. Loaded anew when it changes.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["upstream", "listen", "admin"])]
    pub(super) config: Option<PathBuf>,
    /// No file: a proxy before this URL with a sensible default policy.
    #[arg(long, value_name = "URL", value_parser = addresses::upstream)]
    pub(super) upstream: Option<String>,
    /// Where to listen, without a file.
    #[arg(long, value_name = "ADDR", default_value = LISTEN, value_parser = addresses::listen)]
    pub(super) listen: SocketAddr,
    /// Where operators are answered, without a file: 127.0.0.1:9900 if not given.
    #[arg(long, value_name = "ADDR", value_parser = addresses::listen)]
    pub(super) admin: Option<SocketAddr>,
    /// Faults before the URL, as 503=10%,reset=1%,delay=200ms or delay=1s:30%: of the attempts, so many fail or wait.
    #[arg(long, value_name = "FAULTS", requires = "upstream", value_parser = Faults::parse)]
    pub(super) fault: Option<Faults>,
    /// Prints the configuration that --upstream stands for, or else that of the quick-start, as a file to go on from, and
    /// ends.
    #[arg(long, conflicts_with = "config")]
    pub(super) print_config: bool,
    /// A line on standard output for each request: with --upstream, and with a file on a terminal, unless the
    /// access log goes there.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Lines::Auto)]
    pub(super) lines: Lines,
    /// Keeps the last exchanges in this folder, one file each: heads, bodies up to 64 KiB, attempts; without credentials.
    /// `mwl-proxy replay FILE` sends a request again.
    #[arg(long, value_name = "DIR")]
    pub(super) record: Option<PathBuf>,
    /// Restarts without an outage: the process that waits at this Unix socket hands its listening sockets over and
    /// drains; without one, this process starts by itself. Then this one waits there for the next.
    #[arg(long, value_name = "SOCKET")]
    pub(super) takeover: Option<PathBuf>,
}

/// Whether each request has a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Lines {
    /// With --upstream, and on a terminal.
    Auto,
    /// In any case.
    Always,
    /// Not at all.
    Never,
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// Configurations or MWL definitions, YAML or JSON; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// For people, for machines, or for the annotations of a GitHub workflow.
    #[arg(long, value_enum, default_value_t = Report::Text)]
    pub(super) format: Report,
    /// Makes warnings errors.
    #[arg(long)]
    pub(super) strict: bool,
    /// Environment variables, a line each: `NAME=VALUE`. They come before those of this process.
    #[arg(long, value_name = "FILE")]
    pub(super) env_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Resolve {
    /// The configuration file; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// Environment variables, a line each: `NAME=VALUE`. They come before those of this process.
    #[arg(long, value_name = "FILE")]
    pub(super) env_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Report {
    /// With source excerpts.
    Text,
    /// One JSON value.
    Json,
    /// A workflow command a line.
    Github,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// With source excerpts.
    Text,
    /// One JSON value.
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Flow {
    /// Runs a definition to its Result, printed as JSON. Exit 0: a success; 1: a failure; 2: the
    /// definition is ill-formed.
    Run(FlowRun),
    /// Runs a directory of cases and prints what fails. Exit 0: nothing; 1: something; 2: DIR holds no
    /// case, or a case is malformed.
    #[command(after_long_help = CASES)]
    Test(FlowTest),
}

#[derive(Debug, Args)]
pub(super) struct FlowTest {
    /// A case, or a folder of cases, or a folder of such folders.
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct FlowRun {
    /// The definition, JSON or YAML.
    #[arg(value_name = "DEF")]
    pub(super) definition: PathBuf,
    /// The execution's input, a JSON file; without it null.
    #[arg(long, value_name = "FILE")]
    pub(super) input: Option<PathBuf>,
    /// Arguments for the Flow's parameters, a JSON file; without it none.
    #[arg(long, value_name = "FILE")]
    pub(super) arguments: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Eval {
    /// The expression, with or without `{{ }}` around it.
    #[arg(value_name = "EXPR", allow_hyphen_values = true)]
    pub(super) expression: String,
    /// What the roots hold (`vars`, `step`, `middleware`…): an object, JSON or YAML; without it nothing.
    #[arg(long, value_name = "FILE")]
    pub(super) bindings: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Explain {
    /// The configuration file; without it the quick-start's.
    #[arg(short, long, value_name = "FILE", conflicts_with = "upstream")]
    pub(super) config: Option<PathBuf>,
    /// No file: the policy of `run --upstream URL`.
    #[arg(long, value_name = "URL", value_parser = addresses::upstream)]
    pub(super) upstream: Option<String>,
    /// The request: a method and a target.
    #[arg(long, value_name = "REQUEST", default_value = "GET /")]
    pub(super) request: String,
    /// A field of the request, `name: value`. May be given several times.
    #[arg(long = "header", value_name = "FIELD")]
    pub(super) headers: Vec<String>,
    /// The request's body: a text, or a file's content as @FILE.
    #[arg(long, value_name = "TEXT")]
    pub(super) body: Option<String>,
    /// What an upstream answers, in order; the last goes on. Without any: 200.
    #[arg(long = "respond", value_name = "RESPONSE")]
    pub(super) responses: Vec<String>,
    /// A file with what each upstream answers, in place of --respond.
    #[arg(long, value_name = "FILE", conflicts_with = "responses")]
    pub(super) script: Option<PathBuf>,
    /// Each call draws what it gets: responses with their weights, as 200:90,503:7,reset:3.
    #[arg(long, value_name = "MIX", conflicts_with_all = ["responses", "script"])]
    pub(super) mix: Option<String>,
    /// Sends the request so many times, and says the rate of success, percentiles and the load of the upstreams. With
    /// --mix 10000, unless it is given.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) runs: Option<u32>,
    /// Another configuration, beside the first: says what it does differently.
    #[arg(long, value_name = "FILE")]
    pub(super) against: Option<PathBuf>,
    /// How long the client waits before it leaves, as PT5S; without it, for ever.
    #[arg(long, value_name = "DURATION")]
    pub(super) client_timeout: Option<String>,
    /// The client presents the certificate in this file, as PEM.
    #[arg(long, value_name = "FILE")]
    pub(super) client_certificate: Option<String>,
    /// Another number gives other draws.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(super) seed: u64,
    /// For people, or for machines.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
    /// The same as --format json.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Import {
    /// The system that the file is from.
    #[arg(value_enum, value_name = "KIND")]
    pub(super) kind: Kind,
    /// The file; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// Recordings, in the order in which they are sent.
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Where to send them, in place of the proxy that recorded them. Their `Host` is then that of the URL.
    #[arg(long, value_name = "URL", value_parser = addresses::upstream)]
    pub(super) to: Option<String>,
    /// A field in place of the recorded ones of that name, `name: value`: credentials, which are not recorded, say. May be
    /// given several times.
    #[arg(long = "header", value_name = "FIELD")]
    pub(super) headers: Vec<String>,
    /// For people, or for machines.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Probe {
    /// The proxy's admin address.
    #[arg(long, value_name = "ADDR", default_value = ADMIN, value_parser = addresses::listen)]
    pub(super) admin: SocketAddr,
}

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub(super) shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct Man {
    /// A command, as `explain`, or `flow test`; without it, the program.
    #[arg(value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn running_is_what_is_done_without_a_command() {
        for line in
            [&["mwl-proxy"][..], &["mwl-proxy", "-c", "f"], &["mwl-proxy", "run", "-c", "f"]]
        {
            let cli = Cli::try_parse_from(line).unwrap();
            let run = match cli.command {
                Some(Command::Run(run)) => run,
                None => cli.run,
                other => panic!("{other:?}"),
            };
            assert_eq!(run.config.is_some(), line.contains(&"f"));
            assert_eq!(run.listen.to_string(), LISTEN);
        }
        for line in [
            &["mwl-proxy", "-c", "f", "--upstream", "http://a"][..],
            &["mwl-proxy", "-c", "f", "--listen", "127.0.0.1:1"],
            &["mwl-proxy", "--listen", "8080"],
            &["mwl-proxy", "check"],
            &["mwl-proxy", "nonsense"],
        ] {
            assert!(Cli::try_parse_from(line).is_err(), "{line:?}");
        }
    }
}
