//! How the program is linked.
//!
//! What a process keeps in memory of its program is the pages that it touches, and sixteen around each. Two
//! things are said to the linker about that; neither changes what the program does.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// The functions that a start and usual requests run. `benches/functions.py` writes it.
const FUNCTIONS: &str = "link/functions.txt";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={FUNCTIONS}");
    println!("cargo:rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    if is("CARGO_CFG_TARGET_OS", "linux") {
        // The program is position independent and full of tables of pointers. Written out one by one, the
        // relocations of these take more memory than some proxies do; packed, a fiftieth of that.
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    if is("PROFILE", "release") && links_by_script() {
        order();
    }
}

fn is(variable: &str, value: &str) -> bool {
    env::var(variable).is_ok_and(|set| set == value)
}

/// Whether the linker is one that takes a script which adds to its own: the one that comes with the compiler.
fn links_by_script() -> bool {
    let chosen = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let other =
        ["linker=", "fuse-ld", "link-self-contained"].iter().any(|flag| chosen.contains(flag));
    is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && env::var_os("RUSTC_LINKER").is_none()
        && !other
}

/// Puts the listed functions side by side: a fifth of the program, which would lie all over it.
///
/// A name ends in a hash of types and versions. The very functions that were seen come first; then, for a
/// build whose hashes are others, whatever has their names.
fn order() {
    let Ok(listed) = fs::read_to_string(FUNCTIONS) else {
        return;
    };
    let names: Vec<&str> = listed.lines().filter(|line| !line.starts_with('#')).collect();
    let mut script = String::from("SECTIONS {\n  .text : {\n");
    for name in &names {
        section(&mut script, name);
    }
    for name in names.iter().filter_map(|name| without_hash(name)) {
        section(&mut script, &format!("{name}*"));
    }
    script.push_str("    *(.text.unlikely .text.unlikely.*)\n    *(.text .text.*)\n  }\n} INSERT BEFORE .init;\n");
    let Some(out) = env::var_os("OUT_DIR") else { return };
    let path = Path::new(&out).join("order.ld");
    if fs::write(&path, script).is_ok() {
        println!("cargo:rustc-link-arg-bins=-T{}", path.display());
    }
}

/// The part of a name that is the same in every build; `None` of one that is whole.
fn without_hash(name: &str) -> Option<&str> {
    if name.starts_with("_ZN") {
        return name.rfind("17h").and_then(|hash| name.get(..hash + 3));
    }
    name.starts_with("_R").then(|| name.split('.').next().unwrap_or(name))
}

/// A function stands in a section of its name, beneath `unlikely` where the compiler thinks it is. A dollar
/// sign is a name's in a script.
fn section(script: &mut String, name: &str) {
    let name = name.replace('$', "?");
    writeln!(script, "    *(.text.{name} .text.unlikely.{name})").unwrap_or_default();
}
