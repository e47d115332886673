//! How the program is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The program is position independent and full of tables of pointers. Written out one by one, the
    // relocations of these take more memory than some proxies do; packed, a fiftieth of that.
    let os = std::env::var("CARGO_CFG_TARGET_OS");
    if os.is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
