//! The address space that the process may use (`RLIMIT_AS`, which `ulimit -v` sets).

use std::fs;

use rustix::process::{Resource, getrlimit};

/// A limited address space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpace {
    /// How much the process may use.
    pub limit: u64,
    /// How much it uses now.
    pub used: u64,
}

/// The address space of this process; `None` if it is not limited, or if the system does not say how much is used.
pub fn limited() -> Option<AddressSpace> {
    let limit = getrlimit(Resource::As).current?;
    let used = used(&fs::read_to_string("/proc/self/status").ok()?)?;
    Some(AddressSpace { limit, used })
}

/// What `status`, a file of `/proc/self`, says of it.
fn used(status: &str) -> Option<u64> {
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let kibibytes: u64 = size.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_read_in_bytes() {
        let status =
            "Name:\tmwl-proxy\nVmPeak:\t    9999 kB\nVmSize:\t    1024 kB\nVmRSS:\t 5 kB\n";
        assert_eq!(used(status), Some(1 << 20));
        assert_eq!(used("Name:\tmwl-proxy\n"), None);
    }
}
