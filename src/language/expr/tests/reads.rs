//! Which parts of the bindings are read.

use std::sync::Mutex;

use super::*;
use crate::language::value::{Map, Native};

#[test]
fn the_paths_of_an_expression_are_known() {
    let paths = |body: &str| {
        let program = compile(body);
        let shown = program.reads().iter().map(|path| format!("{path} {:?}", path.end));
        shown.collect::<Vec<_>>().join(", ")
    };
    for (body, expected) in [
        ("step.input.body.x", "step.input.body.x Value"),
        ("step['input'].body", "step.input.body Value"),
        ("has(step.input.body)", "step.input.body Presence"),
        ("'body' in step.input", "step.input.body Presence"),
        ("step.input[vars.key]", "step.input Unknown, vars.key Value"),
        ("step.results[0].body", "step.results Value"),
        ("step.input.?body", "step.input Presence, step.input.body Value"),
        ("step.input[?'body']", "step.input Presence, step.input.body Value"),
        ("step.input.items.map(i, i.body)", "step.input.items Value"),
        ("{'r': middleware.result}", "middleware.result Value"),
        ("vars.a + vars.a", "vars.a Value"),
        ("[1].map(step, step.input)", ""),
    ] {
        assert_eq!(paths(body), expected, "{body}");
    }
}

#[test]
fn a_member_that_no_path_leads_to_is_known_by_its_name() {
    for (body, selects) in [
        ("step.input.body", false),
        ("step.input[vars.key]", false),
        ("step.results[0].body", true),
        ("step.results[0]['body']", true),
        ("step.results[0][vars.key]", true),
        ("has(step.results[0].body)", true),
        ("step.results.map(r, r.body)", true),
        ("step.results.exists(r, 'body' in r)", true),
        ("step.results.map(r, r.status)", false),
        ("step.results.map(r, r[0])", false),
        ("step.results.map(r, r.?body)", true),
        ("step.results", false),
    ] {
        assert_eq!(compile(body).may_select("body"), selects, "{body}");
    }
}

#[test]
fn a_path_knows_where_it_stands() {
    let program = compile("'step.x' + step.x + vars['é'] + step.x");
    let offsets = program.reads().iter().map(|path| format!("{path} {}", path.offset));
    assert_eq!(offsets.collect::<Vec<_>>(), ["step.x 11", "vars.é 20"]);
}

/// A host's object that notes which members it is asked for.
#[derive(Debug, Default)]
struct Host(Mutex<Vec<String>>);

impl Native for Host {
    fn member(&self, name: &str) -> Option<Value> {
        self.0.lock().unwrap().push(name.to_owned());
        (name != "absent").then(|| Value::from(name))
    }

    fn to_map(&self) -> Map {
        self.0.lock().unwrap().push("*".to_owned());
        Map::from_iter([("body".into(), Value::from("text"))])
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[test]
fn a_host_object_is_asked_only_for_what_is_named() {
    let asked = |body: &str| {
        let host = Arc::new(Host::default());
        let native: Arc<dyn Native> = host.clone();
        let vars = Value::object([("host", Value::Native(native))]);
        let fixture = Fixture(Value::object([("vars", vars)]));
        let result = compile(body).evaluate(&fixture).unwrap();
        let asked = host.0.lock().unwrap().join(",");
        (result, asked)
    };
    for (body, expected) in [
        ("vars.host.path", "path"),
        ("vars.host.path == 'path' && vars.host['method'] != ''", "path,method"),
        ("has(vars.host.absent)", "absent"),
        ("[vars.host].map(h, h.path)", "path"),
        ("'path' in vars.host", "path"),
        ("has(vars.host.absent) || 'path' in vars.host", "absent,path"),
        ("vars.host.path in ['a', 'b']", "path"),
        ("size(vars.host)", "*"),
        ("vars.host == {'body': 'text'}", "*"),
        ("toJson(vars.host)", "*"),
        ("vars.host.map(k, k)", "*"),
        ("vars.host", ""),
        ("{'h': vars.host, 'l': [vars.host]}", ""),
        ("true ? vars.host : null", ""),
    ] {
        assert_eq!(asked(body).1, expected, "{body}");
    }
    assert!(asked("vars.host").0.as_native::<Host>().is_some());
    assert!(asked("{'h': vars.host}").0.get("h").unwrap().as_native::<Host>().is_some());
}

/// Bindings that note which roots they are asked for.
struct Asked(Mutex<Vec<Root>>);

impl Bindings for Asked {
    fn root(&self, root: Root) -> Option<Value> {
        self.0.lock().unwrap().push(root);
        Some(Value::empty_object())
    }

    fn now(&self) -> i128 {
        0
    }

    fn wall_time(&self) -> i128 {
        0
    }
}

#[test]
fn only_roots_that_are_named_are_asked_for() {
    let asked = Asked(Mutex::default());
    compile("has(vars.x) || has(step.y)").evaluate(&asked).unwrap();
    compile("1 + 1").evaluate(&asked).unwrap();
    assert_eq!(*asked.0.lock().unwrap(), [Root::Vars, Root::Step]);
}

#[test]
fn a_value_that_is_passed_on_is_not_copied() {
    let items = |value: &Value| match value.get("vars").and_then(|vars| vars.get("items")) {
        Some(Value::Array(items)) => items,
        other => panic!("{other:?}"),
    };
    let data = json(DATA);
    let before = items(&data);
    for body in ["vars.items", "vars.yes ? vars.items : []", "{'a': [vars.items]}.a[0]"] {
        match compile(body).evaluate(&Fixture(data.clone())) {
            Ok(Value::Array(after)) => assert!(before.is_same(&after), "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}
