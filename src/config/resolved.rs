//! A configuration with everything in place: variables, stacks and the Flows of files. `mwl-proxy config` prints it.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;

use super::read::Object;
use super::root::ROOT;
use super::stacks::{Part, Stacks};
use super::{Load, Origin, env, standard};
use crate::source::{Format, Kind, Member, Node, Sources};

/// The configuration `text` at `path`, which was loaded before, with everything in place. It shows the values of variables.
pub fn resolved(path: &Path, text: &str, origin: Origin<'_>) -> Option<Json> {
    let mut sources = Sources::default();
    let name = path.display().to_string();
    let written = sources.parse(&name, text, Format::of_name(&name)).ok()?;
    let folder = path.parent().unwrap_or_else(|| Path::new("")).to_owned();
    let load = Load::new(origin, sources, Vec::new(), folder);
    load.resolved(&written).map(|node| node.to_json())
}

impl Load<'_> {
    fn resolved(&self, written: &Node) -> Option<Node> {
        let node = env::resolve(&self.report, written, self.origin.variable);
        let root = Object::open(&self.report, "the configuration", &node, &ROOT)?;
        let known = standard::beside(&self.report, root.map("stacks"), node.span);
        let stacks = Stacks::read(&self.report, &known, node.span.bytes());
        let members = node.as_object()?.iter().filter(|member| &*member.key != "stacks");
        let members = members.map(|member| {
            let mut member = member.clone();
            match &*member.key {
                "middleware" => stacks.expand(&mut member.value, Part::List),
                "routes" => self.routes(&stacks, &mut member.value),
                _ => {}
            }
            member
        });
        Some(Node { span: node.span, kind: Kind::Object(members.collect()) })
    }

    fn routes(&self, stacks: &Stacks<'_>, routes: &mut Node) {
        let Kind::Array(items) = &mut routes.kind else {
            return;
        };
        for route in Arc::make_mut(items) {
            if let Kind::Object(members) = &mut route.kind {
                for member in Arc::make_mut(members) {
                    self.member(stacks, member);
                }
            }
        }
    }

    /// A member of a route.
    fn member(&self, stacks: &Stacks<'_>, member: &mut Member) {
        let Member { key, key_span, value } = member;
        match (&**key, &value.kind) {
            ("middleware", _) => stacks.expand(value, Part::List),
            ("call", _) => stacks.expand(value, Part::Call),
            ("flow", Kind::String(file)) => {
                if let Some(flow) = self.flow_file(Path::new(&**file), value) {
                    *value = flow;
                }
            }
            ("flow", _) => stacks.expand(value, Part::Flow),
            ("steps" | "flows", _) => {
                // Both are parts of a Flow.
                let part =
                    Member { key: Arc::clone(key), key_span: *key_span, value: value.clone() };
                let mut flow = Node { span: value.span, kind: Kind::Object([part].into()) };
                stacks.expand(&mut flow, Part::Flow);
                if let Some(expanded) = flow.get(key) {
                    *value = expanded.clone();
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::TestOrigin;
    use super::*;

    #[test]
    fn everything_is_in_place() {
        let text = r#"
listeners: [{ address: "${HOST}:0" }]
stacks:
  patient:
    parameters: { name: { type: string, default: inner } }
    middleware: [{ provider: P, comment: "${with.name}" }]
  both: [{ stack: patient }, { stack: patient, with: { name: outer } }]
middleware: [{ stack: patient }]
routes:
  - { name: a, call: {}, middleware: [{ stack: both }], steps: { s: { middleware: [{ stack: patient }] } } }
  - { name: b, flow: f.json }
"#;
        let mut world = TestOrigin::default();
        world.files.insert("f.json", r#"{ "entrypoint": "x" }"#);
        world.variables.insert("HOST", "127.0.0.1");
        let shown = world.with(|origin| resolved(Path::new("c.yaml"), text, origin)).unwrap();
        let entry = |name: &str| serde_json::json!({ "provider": "P", "comment": name });
        assert_eq!(shown["listeners"][0]["address"], "127.0.0.1:0");
        assert_eq!(shown["middleware"][0], entry("inner"));
        let all = serde_json::json!([entry("inner"), entry("outer")]);
        assert_eq!(shown["routes"][0]["middleware"], all);
        assert_eq!(shown["routes"][0]["steps"]["s"]["middleware"][0], entry("inner"));
        assert_eq!(shown["routes"][1]["flow"]["entrypoint"], "x");
        assert_eq!(shown.get("stacks"), None);
    }
}
