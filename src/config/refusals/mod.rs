//! What bad files are told: the whole rendered text, as its author reads it.

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

use super::tests::World;

/// The rendered diagnostics of `text` as `c.yaml`.
fn told(text: &str) -> String {
    let mut world = World::default();
    world.files.insert("c.yaml", text);
    world.files.insert("bad.json", "{ \"entrypoint\": }");
    world.variables.insert("EXPRESSION", "{{ vars.secret }}");
    match world.load("c.yaml") {
        Ok(loaded) => panic!("accepted:\n{text}\n{:?}", loaded.settings),
        Err(refused) => refused.to_string(),
    }
}
