//! The list of pages, and which page a path asks for.

use std::borrow::Cow;

use http::Method;

use crate::proxy::message::query;

/// One page.
pub(super) struct Page {
    /// A segment in capitals stands for any: `/routes/NAME/retries`.
    pub(super) path: &'static str,
    pub(super) method: Method,
    /// Whether it is served without the token.
    pub(super) open: bool,
    /// Whether it is served under any `Host`: an orchestrator asks by whatever name it knows.
    pub(super) probe: bool,
    pub(super) summary: &'static str,
}

/// The segments of a path that stand where its page has capitals, decoded.
pub(super) type Names<'a> = Vec<Cow<'a, str>>;

/// All pages, in the order in which the index lists them.
pub(super) static PAGES: [Page; 18] = [
    Page::open("/", "The dashboard."),
    Page::read("/metrics", "Prometheus metrics."),
    Page::probe("/livez", "200 as long as the process runs."),
    Page::probe("/readyz", "200 while requests are wanted, 503 once it is stopping."),
    Page::read("/routes", "The routes in order, what their stacks do, and what they counted."),
    Page::read(
        "/upstreams",
        "The upstreams with their endpoints: the state of each, why it is out, what it counted.",
    ),
    Page::read(
        "/executions",
        "The last executions. ?route=NAME, ?outcome=success, degraded or failure, ?execution=ID, ?limit=NUMBER.",
    ),
    Page::read(
        "/history",
        "What routes and upstreams counted in the last quarter of an hour, every 5 seconds. ?since=NUMBER of a sample.",
    ),
    Page::read("/tap", "Execution events as they happen, as server-sent events. The same filters."),
    Page::read(
        "/recordings",
        "The latest exchanges that were kept (run --record DIR). ?limit=NUMBER, ?execution=ID, ?request=ID.",
    ),
    Page::read("/recordings/ID", "One of them: heads, bodies and attempts, without credentials."),
    Page::act(
        "/recordings/ID/replay",
        "Sends its request again, and answers with what comes back.",
    ),
    Page::read("/config", "The configuration as it was loaded, without secrets."),
    Page::act(
        "/explain",
        "What the configuration would do with a request: {\"request\": \"POST /charge\", \"respond\": [\"503\", \"200\"]}.",
    ),
    Page::act(
        "/reload",
        "Loads the configuration anew. 200 with its hash, or 422 with what is wrong with it.",
    ),
    Page::act(
        "/routes/NAME/retries",
        "?state=off switches the retries of a route off, for PT10M or ?for=DURATION up to PT24H; ?state=on ends that.",
    ),
    Page::act("/upstreams/NAME/endpoints/ADDRESS/drain", "Sends an endpoint no new requests."),
    Page::act("/upstreams/NAME/endpoints/ADDRESS/restore", "Ends that."),
];

impl Page {
    const fn read(path: &'static str, summary: &'static str) -> Self {
        Self { path, method: Method::GET, open: false, probe: false, summary }
    }

    const fn act(path: &'static str, summary: &'static str) -> Self {
        Self { path, method: Method::POST, open: false, probe: false, summary }
    }

    const fn open(path: &'static str, summary: &'static str) -> Self {
        Self { path, method: Method::GET, open: true, probe: false, summary }
    }

    const fn probe(path: &'static str, summary: &'static str) -> Self {
        Self { path, method: Method::GET, open: true, probe: true, summary }
    }

    pub(super) fn allow(&self) -> &'static str {
        if self.method == Method::GET { "GET, HEAD" } else { "POST" }
    }

    /// The names in `path`, if that asks for this page.
    fn names<'a>(&self, path: &'a str) -> Option<Names<'a>> {
        let mut names = Vec::new();
        let mut segments = path.split('/');
        for wanted in self.path.split('/') {
            let segment = segments.next()?;
            if wanted.starts_with(|first: char| first.is_ascii_uppercase()) {
                names.push(query::decoded(segment));
            } else if segment != wanted {
                return None;
            }
        }
        segments.next().is_none().then_some(names)
    }
}

/// The page that `path` asks for, and the names in it.
pub(super) fn find(path: &str) -> Option<(&'static Page, Names<'_>)> {
    PAGES.iter().find_map(|page| Some((page, page.names(path)?)))
}

/// One line for each page.
pub(super) fn index() -> String {
    let rows = PAGES
        .iter()
        .map(|page| format!("{:<5}{:<13}{}\n", page.method.as_str(), page.path, page.summary));
    format!("no such page; there are\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_have_names() {
        let found = |path| {
            let (page, names) = find(path)?;
            let names: Vec<String> = names.into_iter().map(Cow::into_owned).collect();
            Some((page.path, names.join(" ")))
        };
        let retries = "/routes/NAME/retries";
        assert_eq!(found("/routes"), Some(("/routes", String::new())));
        assert_eq!(found("/routes/pay/retries"), Some((retries, "pay".to_owned())));
        assert_eq!(found("/routes/a%2Fb+c%20d/retries"), Some((retries, "a/b+c d".to_owned())));
        for none in ["/routes/pay", "/routes/pay/retries/", "/routes/a/b/retries", "routes"] {
            assert_eq!(found(none), None, "{none}");
        }
    }
}
