//! What the author of a bad file reads: the whole rendered text.

mod classification;
mod files;
mod matches;
mod scalars;
mod shaping;
mod stacks;
mod targets;
mod tls;
mod upstreams;
mod variables;

use super::tests::TestOrigin;

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
