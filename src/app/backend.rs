//! What the admin address shows and controls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::{App, refused};
use crate::admin;
use crate::admin::switches::RetriesState;
use crate::reload::Cause;
use crate::telemetry::executions::{Executions, Filter};
use crate::telemetry::recordings::Recordings;
use crate::telemetry::switches::{StandingSwitch, SwitchKind};

impl admin::Backend for App {
    fn metrics(&self) -> String {
        self.metrics.tasks(self.server.tasks());
        self.metrics.render()
    }

    fn is_ready(&self) -> bool {
        // Who asked before another process took the address wants to know whether requests are served there: they are.
        self.readiness.is_ready() || self.replaced.load(Ordering::Acquire)
    }

    fn token(&self) -> Option<Arc<str>> {
        self.shown.load().admin.as_ref()?.token.clone()
    }

    fn routes(&self) -> Json {
        let standing = self.metrics.switches().standing();
        admin::routes::counted(&self.shown.load().routes, &self.metrics.routes(), &standing)
    }

    fn upstreams(&self) -> Json {
        let upstreams = self.server.runtime().upstream_summaries();
        json!({ "switches": self.switches(), "upstreams": upstreams })
    }

    fn drain(&self, upstream: &str, endpoint: &str, drains: bool) -> Result<Json, String> {
        let runtime = self.server.runtime();
        let found = runtime.drain(self.metrics.switches(), upstream, endpoint, drains);
        if found.is_none() {
            return Err(format!("no upstream is called `{upstream}`\n"));
        }
        let summary = runtime.upstream_summaries().into_iter().find(|one| one.name == upstream);
        if found == Some(0) {
            let all = summary.iter().flat_map(|summary| &summary.endpoints);
            let all: Vec<&str> = all.map(|one| one.endpoint.as_str()).collect();
            let all = all.join(", ");
            return Err(format!("`{upstream}` has no endpoint `{endpoint}`; it has {all}\n"));
        }
        Ok(json!(summary))
    }

    fn sample(&self) {
        self.history.sample(self.metrics.counts());
    }

    fn history(&self, since: u64) -> Json {
        self.history.read(since)
    }

    fn explain(&self, question: &[u8], stop: &CancellationToken) -> Result<Json, String> {
        let files = self.shown.load().files.clone();
        let loaded = self.input.again(&files).map_err(|refused| refused.to_string())?;
        (self.explain)(loaded, question, stop)
    }

    fn executions(&self, filter: &Filter) -> Json {
        let executions: &Executions = self.telemetry.executions();
        let shown = executions.read(filter);
        let shown: Vec<Json> = shown.iter().map(|execution| execution.to_json()).collect();
        let switches = self.switches();
        json!({ "kept": executions.keep(), "switches": switches, "executions": shown })
    }

    fn config(&self) -> Json {
        let shown = self.shown.load();
        let file = self.input.file().map(|path| path.display().to_string());
        let version = env!("CARGO_PKG_VERSION");
        let (hash, switches, config) = (&*shown.hash, self.switches(), shown.config.shown());
        json!({ "version": version, "hash": hash, "file": file, "switches": switches, "config": config })
    }

    fn switch_retries(&self, route: &str, wanted: RetriesState) -> Option<Json> {
        if !self.shown.load().routes.has(route) {
            return None;
        }
        let (switches, name) = (self.metrics.switches(), Arc::from(route));
        let seconds = match wanted {
            RetriesState::Off(length) => {
                switches.set(SwitchKind::Retries, &name, Some(length));
                Some(length.as_secs_f64())
            }
            RetriesState::On => {
                switches.clear(SwitchKind::Retries, &name);
                None
            }
        };
        let state = if seconds.is_some() { "off" } else { "on" };
        Some(json!({ "route": route, "retries": state, "secondsLeft": seconds }))
    }

    fn recordings(&self) -> Option<&Recordings> {
        self.telemetry.recordings()
    }

    fn missed(&self, events: u64) {
        self.metrics.events_missed(events);
    }

    fn reload(&self) -> admin::Reloading<'_> {
        Box::pin(async {
            let applied = self.handle.ask(Cause::Admin).await;
            applied.unwrap_or_else(|| {
                let refused =
                    refused("stopping", "the process is stopping: nothing is loaded any more");
                Err(refused.sources.to_json(&refused.diagnostics))
            })
        })
    }
}

impl App {
    /// What operators have switched, for the pages.
    fn switches(&self) -> Json {
        let standing = self.metrics.switches().standing();
        standing.iter().map(StandingSwitch::to_json).collect()
    }
}
