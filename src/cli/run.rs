//! `run`: the proxy, from a file or from one of two built-in configurations.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use super::arguments::{ADMIN, Lines, Run};
use super::dev;
use super::explain;
use super::output::{complain, say};
use crate::app::{self, Addresses, Input, Sockets, StartError, Watched};
use crate::quickstart;
use crate::source::Causes;
use crate::system::inherited::Inherited;
use crate::telemetry::lines::LineStyle;
use crate::telemetry::log;

/// The built-in configuration of the quick-start.
const QUICKSTART: &str = include_str!("../../config/quickstart.yaml");

pub(super) fn run(run: &Run) -> ExitCode {
    // First of all: the log has a thread.
    let inherited = Inherited::of_service_manager();
    let filter = std::env::var("MWL_LOG").ok();
    if let Err(problem) = log::start(filter.as_deref()) {
        complain(&problem);
    }
    let sockets = inherited.map_err(StartError::Sockets);
    let sockets = sockets.map(|inherited| Sockets { inherited, takeover: run.takeover.clone() });
    let started = sockets.and_then(|sockets| start(run, sockets));
    // The log must come out before our own message and before the exit.
    log::flush();
    match started {
        Ok(code) => code,
        Err(error) => {
            complain(&Causes(&error).to_string());
            if let Some(help) = help(run, &error) {
                complain(&help);
            }
            ExitCode::FAILURE
        }
    }
}

fn start(run: &Run, sockets: Sockets) -> Result<ExitCode, StartError> {
    let lines = lines(run, stdout().is_terminal(), std::env::var_os("NO_COLOR").as_deref());
    let watched = Watched { lines, record: run.record.clone() };
    if let Some(file) = &run.config {
        return app::run(Input::given(file), sockets, watched, explain::ask, |_| {});
    }
    if let Some(upstream) = &run.upstream {
        let (admin, faults) = (dev_admin(run)?, run.fault.clone().unwrap_or_default());
        if run.print_config {
            say(dev::written(upstream, run.listen, Some(admin), &faults).trim_end());
            return Ok(ExitCode::SUCCESS);
        }
        let input = dev::before(upstream, run.listen, Some(admin), &faults);
        return app::run(input, sockets, watched, explain::ask, |addresses| {
            say(&dev_banner(addresses, upstream));
        });
    }
    if run.print_config {
        say(QUICKSTART.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let flaky = quickstart::start()?;
    let admin = run.admin.map_or_else(|| ADMIN.to_owned(), |admin| admin.to_string());
    let input = quickstart_before(&flaky.to_string(), run.listen.to_string(), admin);
    app::run(input, sockets, watched, explain::ask, |addresses| say(&banner(addresses)))
}

/// The admin address of the dev proxy.
fn dev_admin(run: &Run) -> Result<SocketAddr, StartError> {
    let known = || ADMIN.parse().map_err(|_| io::Error::other(format!("{ADMIN} is no address")));
    Ok(run.admin.map_or_else(known, Ok)?)
}

/// Whether each request has a line, and how it looks on this standard output. `NO_COLOR` is a convention
/// (<https://no-color.org>): any value but an empty one.
fn lines(run: &Run, terminal: bool, no_color: Option<&OsStr>) -> Option<LineStyle> {
    let shown = match run.lines {
        Lines::Auto => terminal || run.upstream.is_some(),
        Lines::Always => true,
        Lines::Never => false,
    };
    let coloured = terminal && no_color.is_none_or(OsStr::is_empty);
    shown.then_some(if coloured { LineStyle::Coloured } else { LineStyle::Plain })
}

/// The quick-start's configuration, with the built-in upstream at the address `flaky`.
pub(super) fn quickstart_before(flaky: &str, listen: String, admin: String) -> Input {
    Input::Text {
        name: PathBuf::from("(quick-start)"),
        text: QUICKSTART.to_owned(),
        variables: vec![("LISTEN", listen), ("ADMIN", admin), ("FLAKY", flaky.to_owned())],
    }
}

/// The first listener and the admin address.
fn places(addresses: &Addresses) -> (String, String) {
    let text =
        |address: Option<&SocketAddr>| address.map(SocketAddr::to_string).unwrap_or_default();
    (text(addresses.listeners.first()), text(addresses.admin.as_ref()))
}

fn banner(addresses: &Addresses) -> String {
    let (proxy, admin) = places(addresses);
    format!(
        "mwl-proxy on http://{proxy}, before a built-in upstream that fails on purpose. Try:\n\
         \n\
         \x20 curl -i http://{proxy}/flaky            # the upstream answers 503 twice: you get the third try's 200\n\
         \x20 curl -i http://{proxy}/throttled        # 429 with Retry-After: 2: the proxy waits as told, then 200\n\
         \x20 curl -i http://{proxy}/slow             # it takes ten seconds: a bound answers 504 after one\n\
         \x20 curl -i -X POST http://{proxy}/charge   # 402 is classified as a declined card, caught, and answered\n\
         \x20 curl -s http://{proxy}/audit            # how each of them ended, as the audit endpoint was told\n\
         \x20 curl -s http://{admin}/executions       # each of them, with its attempts\n\
         \x20 curl -s http://{admin}/metrics          # what was counted\n\
         \n\
         http://{admin}/ is a dashboard. --print-config prints the configuration. Ctrl-C stops."
    )
}

fn dev_banner(addresses: &Addresses, upstream: &str) -> String {
    let (proxy, admin) = places(addresses);
    format!(
        "mwl-proxy on http://{proxy}, before {upstream}. A failure that is worth another attempt gets up to \
         3 attempts of at most 30 seconds each, all within 2 minutes; a Retry-After is waited for. To see \
         what that does: mwl-proxy explain --upstream {upstream} --respond 503 --respond 200\n\
         http://{admin}/ is a dashboard. --fault 503=10% injects faults, --print-config prints this as a file, --record DIR \
         keeps exchanges. Each request has a line here. Ctrl-C stops."
    )
}

/// What to pass when an address is taken.
fn help(run: &Run, error: &StartError) -> Option<String> {
    let StartError::Address { message, taken: true } = error else {
        return None;
    };
    Some(if run.config.is_some() {
        "stop what listens there, or change the address in the file".into()
    } else if message.contains("`admin`") {
        "stop what listens there, or pass another address: --admin 127.0.0.1:0".into()
    } else {
        "stop what listens there, or pass another address: --listen 127.0.0.1:0".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::check;

    fn args() -> Run {
        Run {
            config: None,
            upstream: None,
            listen: "127.0.0.1:0".parse().unwrap(),
            admin: Some("127.0.0.1:0".parse().unwrap()),
            takeover: None,
            fault: None,
            print_config: false,
            lines: Lines::Auto,
            record: None,
        }
    }

    #[test]
    fn built_in_configurations_compile() {
        let any = "127.0.0.1:0";
        let quickstart = quickstart_before("127.0.0.1:1", any.into(), any.into());
        let loaded = quickstart.load().unwrap_or_else(|refused| panic!("{refused}"));
        let built = check(loaded).unwrap_or_else(|refused| panic!("{refused}"));
        assert!(built.warnings.is_empty());
    }

    #[test]
    fn lines_are_for_terminals_and_the_dev_proxy_and_colours_only_where_they_are_wanted() {
        let (file, dev) = (args(), Run { upstream: Some("http://a".into()), ..args() });
        let (plain, coloured) = (Some(LineStyle::Plain), Some(LineStyle::Coloured));
        let no_color = Some(OsStr::new("1"));
        assert_eq!(lines(&file, false, None), None);
        assert_eq!(lines(&file, true, None), coloured);
        assert_eq!(lines(&file, true, no_color), plain);
        assert_eq!(lines(&file, true, Some(OsStr::new(""))), coloured);
        assert_eq!(lines(&dev, false, None), plain);
        assert_eq!(lines(&Run { lines: Lines::Never, ..dev }, true, None), None);
        assert_eq!(lines(&Run { lines: Lines::Always, ..file }, false, None), plain);
    }

    #[test]
    fn an_address_that_is_taken_says_what_to_pass() {
        let error = |message: &str| StartError::Address { message: message.into(), taken: true };
        let listen = help(&args(), &error("cannot listen on 127.0.0.1:8080: in use")).unwrap();
        assert!(listen.ends_with("--listen 127.0.0.1:0"));
        let admin = help(&args(), &error("cannot listen on 127.0.0.1:9900 for `admin`: in use"));
        assert!(admin.unwrap().ends_with("--admin 127.0.0.1:0"));
    }
}
