//! What the author of a bad file reads: the whole rendered text.

mod classification;
mod files;
mod matches;
mod scalars;
mod shaping;
mod stacks;
mod stores;
mod targets;
mod tls;
mod upstreams;
mod variables;

use super::tests::TestOrigin;

/// The diagnostics of a file with one upstream, `billing`, and then these lines.
fn of_file(rest: &str) -> String {
    let prelude = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }";
    rendered(&format!("{prelude}\n{rest}\n"))
}

/// The same for a file whose one route, `r`, has these keys.
fn of_target(keys: &str) -> String {
    of_file(&format!("routes:\n- name: r\n  {}", keys.replace('\n', "\n  ")))
}

/// The same for a route to `billing` with these further keys.
fn of_route(keys: &str) -> String {
    of_target(&format!("upstream: billing\n{keys}"))
}

/// The rendered diagnostics of `text` as `c.yaml`.
fn rendered(text: &str) -> String {
    let mut world = TestOrigin::default();
    world.files.insert("c.yaml", text);
    world.files.insert("bad.json", "{ \"entrypoint\": }");
    world.variables.insert("EXPRESSION", "{{ vars.secret }}");
    match world.load("c.yaml") {
        Ok(loaded) => panic!("accepted:\n{text}\n{:?}", loaded.settings),
        Err(refused) => refused.to_string(),
    }
}
