//! Reloads while requests run: none is lost, none changes its rules on the way, and an invalid file changes nothing.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::time::Duration;
use std::{fs, thread};

use tokio::time::Instant;

use crate::support::client::{Client, ask, get, request};
use crate::support::origin::{Origin, State, Turn, answer, bytes};
use crate::support::program::{Directory, Proxy, configuration};
use crate::support::watched::{Gate, PATIENCE, Watched, pause};

/// A configuration whose requests carry its generation.
fn generation(billing: SocketAddr, number: usize) -> String {
    let route = format!(
        "
  - name: all
    match: {{ pathPrefix: / }}
    call:
      provider: mwl:provider.call/mwl-proxy/http/v1
      with: {{ upstream: billing, headers: {{ x-generation: \"{number}\" }} }}
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [{{ match: {{ codes: [Provider.Call.*] }}, attempts: 3 }}] }} }}
"
    );
    configuration(&[("billing", billing)], &route)
}

/// Answers with the generation in the request.
fn mirror() -> Origin {
    Origin::by(|head, _| {
        answer(200, &[("x-generation", head.field("x-generation").unwrap_or("none"))], "")
    })
}

fn served(proxy: &Proxy) -> String {
    let got = get(proxy.address, "/");
    assert_eq!(got.status, 200);
    got.field("x-generation").unwrap().to_owned()
}

fn reload(proxy: &Proxy) -> u16 {
    ask(proxy.admin, request("POST", "/reload", &[], b"")).status
}

fn reloads(proxy: &Proxy, outcome: &str) -> u64 {
    proxy.metric("mwl_config_reloads_total", &[("outcome", outcome)])
}

/// Waits until this generation is served. Returns how long that took.
fn until_served(proxy: &Proxy, number: &str) -> Duration {
    let begun = Instant::now();
    while served(proxy) != number {
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} for generation {number}");
        pause(5);
    }
    begun.elapsed()
}

/// Exactly this many reloads were applied and refused.
fn assert_reloads(proxy: &Proxy, applied: u64, refused: u64) {
    // A configuration is served a moment before it is counted.
    for (outcome, least) in [("applied", applied), ("refused", refused)] {
        proxy.until_metric("mwl_config_reloads_total", &[("outcome", outcome)], least);
    }
    assert_eq!((reloads(proxy, "applied"), reloads(proxy, "refused")), (applied, refused));
}

/// The metric that names the configuration being served.
fn hash(proxy: &Proxy) -> String {
    let page = get(proxy.admin, "/metrics");
    let line = page.text().lines().find(|line| line.starts_with("mwl_config_info{"));
    line.expect("a configuration's hash").to_owned()
}

#[test]
fn five_hundred_requests_outlive_nine_reloads() {
    let origin = mirror();
    let proxy = Proxy::start(&generation(origin.address, 1));
    let before = hash(&proxy);
    let done = Watched::new(0);
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                let mut client = Client::connect(proxy.address);
                let mut newest = 0;
                for _ in 0..100 {
                    let got = client.ask(request("POST", "/", &[], b"some body"));
                    assert_eq!(got.status, 200);
                    let number: usize = got.field("x-generation").unwrap().parse().unwrap();
                    assert!(number >= newest, "{number} after {newest}");
                    newest = number;
                    done.update(|done| *done += 1);
                }
            });
        }
        for number in 2..=10 {
            done.until("requests", |done| (*done >= (number - 1) * 50).then_some(()));
            proxy.rewrite(&generation(origin.address, number));
            assert_eq!(reload(&proxy), 200);
            assert_eq!(
                served(&proxy),
                number.to_string(),
                "the reload is done when it is answered"
            );
        }
    });
    assert_ne!(hash(&proxy), before);
    assert_eq!(proxy.metric("mwl_requests_total", &[("status", "200")]), 509);
    assert_eq!(origin.count(), 509);
}

#[test]
fn a_request_runs_to_its_end_on_the_configuration_it_began_with() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::by(move |head, number| match number {
        0 => Turn::Gated(held.clone(), bytes(503, &[], "")),
        _ => answer(200, &[("x-generation", head.field("x-generation").unwrap())], ""),
    });
    let proxy = Proxy::start(&generation(origin.address, 1));
    let mut client = Client::connect(proxy.address);
    client.send(request("GET", "/", &[], b""));
    origin.until_state(0, State::Whole);
    proxy.rewrite(&generation(origin.address, 2));
    assert_eq!(reload(&proxy), 200);
    assert_eq!(served(&proxy), "2");
    gate.open();
    assert_eq!(client.answer().field("x-generation"), Some("1"));
    let got = client.ask(request("GET", "/", &[], b""));
    assert_eq!(got.field("x-generation"), Some("2"), "the same connection, the next request");
}

#[test]
fn a_changed_file_is_loaded_without_being_told() {
    let origin = mirror();
    let proxy = Proxy::start(&generation(origin.address, 1));
    let before = reloads(&proxy, "applied");
    proxy.rewrite(&generation(origin.address, 2));
    proxy.until_metric("mwl_config_reloads_total", &[("outcome", "applied")], before + 1);
    assert_eq!(served(&proxy), "2");
}

#[test]
fn a_mounted_directory_that_is_swapped_is_loaded() {
    let origin = mirror();
    let directory = Directory::new();
    directory.write("..first/proxy.yaml", &generation(origin.address, 1));
    symlink("..first", directory.path("..data")).unwrap();
    symlink("..data/proxy.yaml", directory.path("proxy.yaml")).unwrap();
    let proxy = Proxy::start_at(directory, "proxy.yaml");
    assert_eq!(served(&proxy), "1");
    let before = reloads(&proxy, "applied");

    let directory = proxy.directory();
    directory.write("..second/proxy.yaml", &generation(origin.address, 2));
    symlink("..second", directory.path("..data_tmp")).unwrap();
    fs::rename(directory.path("..data_tmp"), directory.path("..data")).unwrap();
    proxy.until_metric("mwl_config_reloads_total", &[("outcome", "applied")], before + 1);
    assert_eq!(served(&proxy), "2");
    assert_eq!(reloads(&proxy, "refused"), 0);
}

#[test]
fn a_hangup_loads_the_file_anew() {
    let origin = mirror();
    let proxy = Proxy::start(&generation(origin.address, 1));
    proxy.rewrite(&generation(origin.address, 2));
    proxy.program().signal("HUP");
    until_served(&proxy, "2");
    // A configuration that is served already is not loaded again.
    proxy.program().signal("HUP");
    proxy.until_metric("mwl_config_reloads_total", &[("outcome", "unchanged")], 1);
    assert_eq!(reload(&proxy), 200);
    assert_reloads(&proxy, 1, 0);
}

#[test]
fn each_content_is_applied_once_whoever_asked_for_it() {
    let origin = mirror();
    let proxy = Proxy::start(&generation(origin.address, 1));
    for number in 2..=4 {
        proxy.rewrite(&generation(origin.address, number));
        assert_eq!(reload(&proxy), 200);
        assert_eq!(served(&proxy), number.to_string());
    }
    // Once the watcher has loaded the next change by itself, it has seen all of these.
    proxy.rewrite(&generation(origin.address, 5));
    until_served(&proxy, "5");
    proxy.rewrite("broken: true");
    assert_eq!(reload(&proxy), 422);
    proxy.rewrite(&generation(origin.address, 6));
    until_served(&proxy, "6");
    assert_reloads(&proxy, 5, 1);
}

/// The steps of a kubelet, twenty times.
#[test]
fn a_config_map_that_is_swapped_is_applied_once_and_within_two_seconds() {
    let origin = mirror();
    let directory = Directory::new();
    directory.write("..t1/proxy.yaml", &generation(origin.address, 1));
    symlink("..t1", directory.path("..data")).unwrap();
    symlink("..data/proxy.yaml", directory.path("proxy.yaml")).unwrap();
    let proxy = Proxy::start_at(directory, "proxy.yaml");
    let directory = proxy.directory();
    for number in 2..=21 {
        let (old, new) = (format!("..t{}", number - 1), format!("..t{number}"));
        directory.write(&format!("{new}/proxy.yaml"), &generation(origin.address, number));
        symlink(&new, directory.path("..data_tmp")).unwrap();
        fs::rename(directory.path("..data_tmp"), directory.path("..data")).unwrap();
        fs::remove_dir_all(directory.path(&old)).unwrap();
        let took = until_served(&proxy, &number.to_string());
        assert!(took.as_secs_f64() < 2.0, "swap {number} was seen after {took:?}");
    }
    assert_reloads(&proxy, 20, 0);
}

#[test]
fn a_file_is_not_loaded_before_it_is_whole() {
    let origin = mirror();
    let proxy = Proxy::start(&generation(origin.address, 1));
    let text = generation(origin.address, 2);
    // The first half of the file is a valid configuration too: only the last route is missing.
    let half = text.find("    middleware:").unwrap();
    let mut writer = fs::File::create(proxy.directory().path("proxy.yaml")).unwrap();
    pause(300);
    assert_eq!(served(&proxy), "1", "truncated");
    writer.write_all(&text.as_bytes()[..half]).unwrap();
    pause(300);
    assert_eq!(served(&proxy), "1", "half of it");
    // A reload that is asked for now waits until the writer is done.
    thread::scope(|scope| {
        let asked = scope.spawn(|| reload(&proxy));
        pause(300);
        assert_eq!(served(&proxy), "1", "half of it, and somebody asks");
        writer.write_all(&text.as_bytes()[half..]).unwrap();
        drop(writer);
        assert_eq!(asked.join().unwrap(), 200);
    });
    assert_eq!(served(&proxy), "2");
    // Left empty: an error, not a configuration without routes.
    fs::write(proxy.directory().path("proxy.yaml"), "").unwrap();
    proxy.until_metric("mwl_config_reloads_total", &[("outcome", "refused")], 1);
    assert_eq!(served(&proxy), "2");
    assert_reloads(&proxy, 1, 1);
}

#[test]
fn an_editor_may_write_as_it_likes() {
    let origin = mirror();
    let proxy = Proxy::start(&generation(origin.address, 1));
    let at = |name: &str| proxy.directory().path(name);
    // Moved away as a backup, then written again.
    fs::rename(at("proxy.yaml"), at("proxy.yaml~")).unwrap();
    fs::write(at("proxy.yaml"), generation(origin.address, 2)).unwrap();
    until_served(&proxy, "2");
    // Deleted, and created again after a while.
    fs::remove_file(at("proxy.yaml")).unwrap();
    pause(300);
    fs::write(at("proxy.yaml"), generation(origin.address, 3)).unwrap();
    until_served(&proxy, "3");
    // Written beside it and renamed over it.
    proxy.rewrite(&generation(origin.address, 4));
    until_served(&proxy, "4");
    // Written in place.
    fs::write(at("proxy.yaml"), generation(origin.address, 5)).unwrap();
    until_served(&proxy, "5");
    // A change of its backup has no effect.
    fs::write(at("proxy.yaml~"), "broken").unwrap();
    assert_reloads(&proxy, 4, 0);
}

#[test]
fn a_flow_that_the_configuration_names_is_watched_too() {
    let origin = mirror();
    let flow = |number: usize| {
        format!(
            r#"{{ "$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "ask", "steps": {{ "ask": {{ "action": "Call", "call": {{
                "provider": "mwl:provider.call/mwl-proxy/http/v1",
                "with": {{ "upstream": "billing", "headers": {{ "x-generation": "{number}" }} }} }},
                "next": "done" }}, "done": {{ "action": "Return", "value": "{{{{ step.input }}}}" }} }} }}"#
        )
    };
    let directory = Directory::new();
    directory.write("flows/ask.json", &flow(1));
    let route = "  - { name: all, match: { pathPrefix: / }, flow: flows/ask.json }\n";
    let file = configuration(&[("billing", origin.address)], route);
    let proxy = Proxy::start_in(directory, &file);
    assert_eq!(served(&proxy), "1");
    proxy.directory().write("flows/ask.json", &flow(2));
    until_served(&proxy, "2");
    fs::write(proxy.directory().path("flows/ask.json"), flow(3)).unwrap();
    until_served(&proxy, "3");
    assert_reloads(&proxy, 2, 0);
}

#[test]
fn upstream_connections_and_counters_outlive_a_reload() {
    let origin = mirror();
    let proxy =
        Proxy::start(&format!("limits: {{ workers: 1 }}\n{}", generation(origin.address, 1)));
    for number in 1..=5 {
        proxy.rewrite(&format!("limits: {{ workers: 1 }}\n{}", generation(origin.address, number)));
        assert_eq!(reload(&proxy), 200);
        assert_eq!(served(&proxy), number.to_string());
    }
    let connections: Vec<usize> = origin.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0; 5], "one connection to the upstream serves them all");
    assert_eq!(proxy.metric("mwl_requests_total", &[("status", "200")]), 5);
}

#[test]
fn an_address_that_is_taken_leaves_everything_as_it_was() {
    let origin = mirror();
    let proxy = Proxy::start(&generation(origin.address, 1));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let with = |address: &str| generation(origin.address, 2).replacen("127.0.0.1:0", address, 1);
    proxy.rewrite(&with(&address));
    let got = ask(proxy.admin, request("POST", "/reload", &[], b""));
    assert_eq!(got.status, 422);
    assert!(got.text().contains(&address), "{}", got.text());
    assert_eq!(served(&proxy), "1");
    // Once the new address is free, it is used, and the old one is closed.
    drop(taken);
    assert_eq!(reload(&proxy), 200);
    assert_eq!(get(address.parse().unwrap(), "/").field("x-generation"), Some("2"));
    assert!(std::net::TcpStream::connect(proxy.address).is_err(), "the old address");
}

#[test]
fn a_broken_file_changes_nothing_but_a_metric_and_a_log_line() {
    let origin = mirror();
    let good = generation(origin.address, 1);
    let proxy = Proxy::start(&good);
    let (before, applied) = (hash(&proxy), reloads(&proxy, "applied"));
    let at = format!("proxy.yaml:{}:1", good.lines().count() + 1);

    proxy.rewrite(&format!("{good}surprise: true\n"));
    proxy.until_metric("mwl_config_reloads_total", &[("outcome", "refused")], 1);
    proxy.program().line("the refusal", |line| line.contains(&at).then_some(()));
    let named = proxy.program().lines().iter().filter(|line| line.contains(&at)).count();
    assert_eq!(named, 1, "one log line with file, line and column");
    assert_eq!(served(&proxy), "1");
    assert_eq!(hash(&proxy), before);
    assert_eq!(reloads(&proxy, "applied"), applied);
    assert_eq!(get(proxy.admin, "/readyz").status, 200);

    assert_ne!(reload(&proxy), 200, "who asks is told");
    assert_eq!(served(&proxy), "1");

    // An empty file is not an empty configuration.
    proxy.rewrite("");
    assert_ne!(reload(&proxy), 200);
    assert_eq!(served(&proxy), "1");

    proxy.rewrite(&generation(origin.address, 2));
    assert_eq!(reload(&proxy), 200);
    assert_eq!(served(&proxy), "2");
}

/// Nothing is applied, and all is well again.
#[test]
fn what_is_put_back_as_it_was_is_unchanged() {
    let origin = mirror();
    let good = generation(origin.address, 1);
    let proxy = Proxy::start(&good);
    let (before, unchanged) = (hash(&proxy), reloads(&proxy, "unchanged"));
    proxy.rewrite("");
    assert_eq!(reload(&proxy), 422);
    assert_eq!(proxy.metric("mwl_config_last_reload_successful", &[]), 0);
    proxy.rewrite(&good);
    proxy.until_metric("mwl_config_reloads_total", &[("outcome", "unchanged")], unchanged + 1);
    assert_eq!(proxy.metric("mwl_config_last_reload_successful", &[]), 1);
    assert_eq!((reloads(&proxy, "applied"), reloads(&proxy, "unchanged")), (0, unchanged + 1));
    assert_eq!(hash(&proxy), before);
}

#[test]
fn a_listener_may_come_and_go() {
    let origin = mirror();
    let both = |number: usize| {
        let two = "listeners: [{ address: 127.0.0.1:0 }, { address: \"[::1]:0\" }]";
        generation(origin.address, number).replace("listeners: [{ address: 127.0.0.1:0 }]", two)
    };
    let proxy = Proxy::start(&generation(origin.address, 1));
    let mut client = Client::connect(proxy.address);
    assert_eq!(client.ask(request("GET", "/", &[], b"")).status, 200);
    proxy.rewrite(&both(2));
    assert_eq!(reload(&proxy), 200);
    let second = proxy.program().line("the second address", |line| {
        let (_, from) = line.split_once("[::1]:")?;
        let digits: String = from.chars().take_while(char::is_ascii_digit).collect();
        digits
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .map(|port: u16| SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port)))
    });
    assert_eq!(get(second, "/").field("x-generation"), Some("2"));
    let got = client.ask(request("GET", "/", &[], b""));
    assert_eq!(got.field("x-generation"), Some("2"), "a connection that was open stays open");
}
