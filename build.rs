//! How the program is linked. Nothing here changes what the program does; it changes how much memory it takes.
//!
//! A process keeps in memory the pages of its program that it touches, and the system maps sixteen pages around each.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// Names a file with a list of functions, one symbol a line, which the linker is to put side by side.
///
/// `docker/build` sets it, with a list that `benches/functions.py` made of the same program. It needs the linker of
/// GNU, which takes a script that adds to its own. A relative path is one from the top of the tree.
const ORDER: &str = "MWL_LINK_ORDER";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={ORDER}");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        // The program is position independent and full of tables of pointers. Written out one by one, the
        // relocations of these take more memory than some proxies do; packed, a fiftieth of that.
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
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

/// A linker script that puts the listed functions first. What runs is a fifth of the program and would lie all over it.
///
/// A function stands in a section of its name, beneath `unlikely` where the compiler thinks that it is. A dollar
/// sign, which a symbol may hold, is not allowed in a script's names: `?` stands for any character.
fn script(listed: &str) -> Result<String, std::fmt::Error> {
    let mut script = String::from("SECTIONS {\n  .text : {\n");
    for name in listed.lines() {
        let name = name.replace('$', "?");
        writeln!(script, "    *(.text.{name} .text.unlikely.{name})")?;
    }
    script.push_str("    *(.text.unlikely .text.unlikely.*)\n    *(.text .text.*)\n  }\n} INSERT BEFORE .init;\n");
    Ok(script)
}
