//! The process's own resource usage, read from `/proc/self` on request. Systems other than Linux have no such
//! files; there the families are left out.

use std::fmt::Write as _;
use std::fs;

use crate::system::descriptors;

/// Clock ticks per second in `/proc`: a constant of Linux's user-space interface (`USER_HZ`), independent of
/// the kernel's own rate.
const TICKS: f64 = 100.0;

/// A figure's name, kind, help and value.
type Figure = (&'static str, &'static str, &'static str, f64);

/// Appends the process's figures in the text exposition format.
pub(super) fn render(text: &mut String) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let fds = match fs::read_dir("/proc/self/fd") {
        Ok(open) => u32::try_from(open.count()).ok(),
        // To count them takes one more than there are.
        Err(error) if descriptors::are_exhausted(&error) => {
            u32::try_from(descriptors::allowed()).ok()
        }
        Err(_) => None,
    };
    let figures = figures(
        &read("/proc/self/stat"),
        &read("/proc/self/status"),
        &read("/proc/stat"),
        &read("/proc/self/limits"),
        fds,
    );
    for (name, kind, help, value) in figures {
        // Writing to a string cannot fail.
        write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n").ok();
    }
}

/// `stat`, `status` and `limits` are files of `/proc/self`; `system` is `/proc/stat`. A figure that cannot be
/// read is left out.
fn figures(stat: &str, status: &str, system: &str, limits: &str, fds: Option<u32>) -> Vec<Figure> {
    // The second field, the command's name, may contain spaces and brackets, so count from its end.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect());
    // proc(5) counts the fields from 1. The first one here is the state, field 3.
    let field = |number: usize| -> Option<f64> { fields.get(number - 3)?.parse().ok() };
    let cpu = field(14).zip(field(15)).map(|(user, system)| (user + system) / TICKS);
    let booted = starting_with(system, "btime ").and_then(|rest| rest.parse::<f64>().ok());
    let started = booted.zip(field(22)).map(|(boot, ticks)| boot + ticks / TICKS);
    let max_fds = starting_with(limits, "Max open files")
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    // These are in kibibytes. `stat` counts in pages, whose size varies.
    let bytes = |name: &str| -> Option<f64> {
        let kibibytes: f64 =
            starting_with(status, name)?.strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes * 1024.0)
    };
    let all = [
        ("process_cpu_seconds_total", "counter", "Processor time used, in seconds.", cpu),
        ("process_resident_memory_bytes", "gauge", "Resident memory.", bytes("VmRSS:")),
        ("process_virtual_memory_bytes", "gauge", "Virtual memory.", bytes("VmSize:")),
        ("process_open_fds", "gauge", "Open file descriptors.", fds.map(f64::from)),
        ("process_max_fds", "gauge", "How many file descriptors may be open.", max_fds),
        ("process_threads", "gauge", "Threads.", field(20)),
        (
            "process_start_time_seconds",
            "gauge",
            "When the process started, in seconds since the epoch.",
            started,
        ),
    ];
    let figure = |(name, kind, help, value)| Some((name, kind, help, value?));
    all.into_iter().filter_map(figure).collect()
}

/// The rest of the line that begins with `start`.
fn starting_with<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(start)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "7 (a b) c) S 1 7 7 0 -1 4194304 9 0 0 0 150 50 0 0 20 0 3 0 1000 9999 12 18";
    const STATUS: &str = "Name:\ta b) c\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\n";

    #[test]
    fn figures_are_in_base_units() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n";
        let system = "cpu 1 2\nbtime 1700000000\n";
        let found = figures(STAT, STATUS, system, limits, Some(5));
        let found: Vec<_> = found.iter().map(|(name, .., value)| (*name, *value)).collect();
        assert_eq!(
            found,
            [
                ("process_cpu_seconds_total", 2.0),
                ("process_resident_memory_bytes", 1_048_576.0),
                ("process_virtual_memory_bytes", 2_097_152.0),
                ("process_open_fds", 5.0),
                ("process_max_fds", 1024.0),
                ("process_threads", 3.0),
                ("process_start_time_seconds", 1_700_000_010.0),
            ]
        );
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        assert_eq!(figures("", "", "", "", None), []);
        assert_eq!(figures("1 (", "VmRSS: x kB", "btime", "Max open files", None), []);
    }
}
