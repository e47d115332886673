//! The command: what goes where, exit codes, its help.

use std::path::Path;

use crate::support::program::{Directory, run};

fn sample(name: &str) -> String {
    Path::new("tests/import").join(name).display().to_string()
}

#[test]
fn the_configuration_and_the_summary_have_an_output_each() {
    let file = sample("istio-service-and-rule.yaml");
    let output = run(&["import", "istio", &file]);
    assert_eq!(output.status.code(), Some(0));
    let written = String::from_utf8(output.stdout).unwrap();
    assert!(written.starts_with("# From Istio, by `mwl-proxy import`.\nlisteners: "), "{written}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with(&format!("{file}: 1 upstream, 1 route.\n")), "{said}");
    assert!(said.contains(&format!("\n  {file}:34:21: `maxRetries: 3` at once")), "{said}");
    let directory = Directory::new();
    let written = directory.write("written.yaml", &written);
    let output = run(&["check", "--strict", written.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn what_cannot_be_imported_prints_nothing() {
    for (arguments, code, said) in [
        (
            ["import", "envoy-gateway", "tests/import/istio-any-5xx.yaml"],
            1,
            "this is a `VirtualService`",
        ),
        (["import", "istio", "-"], 1, "the file is empty"),
        (["import", "nginx", "tests/import/none.conf"], 2, "cannot be read"),
        (["import", "squid", "tests/import/none.conf"], 2, "step-functions"),
    ] {
        let output = run(&arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{told}");
        assert!(told.contains(said), "{arguments:?}: {told}");
    }
}

#[test]
fn the_help_lists_the_kinds() {
    let output = run(&["import", "--help"]);
    let told = String::from_utf8(output.stdout).unwrap();
    for kind in [
        "istio",
        "envoy",
        "envoy-gateway",
        "nginx",
        "haproxy",
        "step-functions",
        "noetl",
        "chevere",
        "tower",
    ] {
        assert!(told.contains(&format!("- {kind}:")), "{kind}: {told}");
    }
}
