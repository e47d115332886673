//! How the program is linked, and what it says of itself.
//!
//! A process keeps in memory the pages of its program that it touches, and the system maps sixteen pages around each.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Names a file with a list of functions, one symbol a line, which the linker is to put side by side.
///
/// `docker/build` sets it, with a list that `benches/functions.py` made of the same program. It needs the linker of
/// GNU, which takes a script that adds to its own. A relative path is one from the top of the tree.
const ORDER: &str = "MWL_LINK_ORDER";

/// The commit and its date, where the sources have no `.git` beside them: `MWL_COMMIT=1a2b3c4d5e`,
/// `MWL_COMMIT_DATE=2026-11-29`.
const COMMIT: [&str; 2] = ["MWL_COMMIT", "MWL_COMMIT_DATE"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={ORDER}");
    println!("cargo:rustc-env=MWL_VERSION={}", version()?);
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        // The program is position independent and full of tables of pointers. Written out one by one, the
        // relocations of these take more memory than some proxies do; packed, a fiftieth of that.
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        // The allocator, in place of the C library's. Nothing names it, so it would be left out.
        println!("cargo:rustc-link-arg-bins=-Wl,-u,mi_version");
    }
    if let Ok(list) = env::var(ORDER) {
        println!("cargo:rerun-if-changed={list}");
        let listed = fs::read_to_string(&list)
            .map_err(|error| format!("{ORDER} names {list}, which cannot be read: {error}"))?;
        let path = Path::new(&env::var("OUT_DIR")?).join("order.ld");
        fs::write(&path, script(&listed)?)?;
        println!("cargo:rustc-link-arg-bins=-T{}", path.display());
    }
    Ok(())
}

/// The version, with the commit and its date where they are known. The same sources give the same text.
///
/// A debug build does not ask git: each commit would compile the whole library anew.
fn version() -> Result<String, Box<dyn Error>> {
    let version = env::var("CARGO_PKG_VERSION")?;
    for name in COMMIT {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let given = COMMIT.map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    let asked = || {
        let head = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
        println!("cargo:rerun-if-changed={head}");
        Some([
            git(&["rev-parse", "--short=10", "HEAD"])?,
            git(&["show", "-s", "--format=%cs", "HEAD"])?,
        ])
    };
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let known = match given {
        [Some(commit), date] => Some([commit, date.unwrap_or_default()]),
        [None, _] if release => asked(),
        [None, _] => None,
    };
    Ok(match known {
        None => version,
        Some([commit, date]) => format!("{version} ({})", format!("{commit} {date}").trim_end()),
    })
}

/// What git says of these sources; `None` where it says nothing.
fn git(arguments: &[&str]) -> Option<String> {
    // A checkout of something else around these sources has another commit.
    let here = Path::new(&env::var("CARGO_MANIFEST_DIR").ok()?).join(".git").exists();
    let output = here.then(|| Command::new("git").args(arguments).output())?.ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// A linker script that puts the listed functions first. What runs is a fifth of the program and would lie all over it.
///
/// A function stands in a section of its name, beneath `hot` or `unlikely` where the compiler knows or thinks that it is. A dollar
/// sign, which a symbol may hold, is not allowed in a script's names: `?` stands for any character.
fn script(listed: &str) -> Result<String, std::fmt::Error> {
    let mut script = String::from("SECTIONS {\n  .text : {\n");
    for name in listed.lines() {
        let name = name.replace('$', "?");
        writeln!(script, "    *(.text.{name} .text.hot.{name} .text.unlikely.{name})")?;
    }
    script.push_str("    *(.text.hot .text.hot.*)\n    *(.text.unlikely .text.unlikely.*)\n    *(.text .text.*)\n  }\n} INSERT BEFORE .init;\n");
    Ok(script)
}
