//! The program; all that it does is in the library.

use std::process::ExitCode;

// On Linux the program's `malloc` is mimalloc's (`override`; `build.rs` has it linked), which Rust's own allocator calls. As
// a global allocator it would be asked for an alignment each time, which costs twice as many instructions.
#[cfg(target_os = "linux")]
use mimalloc as _;

#[cfg(not(target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    mwl_proxy::cli::main()
}
