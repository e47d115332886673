//! The changes that a route makes: to requests before its Flow sees them, and to answers before the client
//! does. They concern the path's prefix, the host and the fields. All of them are literal and prepared when a
//! configuration is loaded.
//!
//! A request is changed once, not once per attempt, and the Flow reads what will be sent: `frame.input.path`
//! and `.headers` show the new values. `match` has used the old ones.

use http::{HeaderMap, header};

use super::path;
use super::target::{Target, TargetError};
use crate::proxy::settings::{FieldEdits, Paths, PrefixRewrite};

/// Removes, sets and appends, in this order.
pub(crate) fn edit(fields: &mut HeaderMap, edits: &FieldEdits) {
    for name in &edits.remove {
        fields.remove(name);
    }
    for (name, value) in &edits.set {
        fields.insert(name, value.clone());
    }
    for (name, value) in &edits.append {
        fields.append(name, value.clone());
    }
}

/// `target` with the matched prefix replaced. Everything after the prefix is kept byte for byte, including the query.
/// `None` if there is nothing to replace: `*` has no prefix.
///
/// # Errors
/// When the result is longer than a target may be.
pub(crate) fn rewrite(
    target: &Target,
    rewrite: &PrefixRewrite,
    paths: Paths,
) -> Option<Result<Target, TargetError>> {
    // A slash at the end of the prefix belongs to what follows.
    let matched = rewrite.from.strip_suffix('/').unwrap_or(&rewrite.from);
    let rest = path::strip_prefix(target.path(), matched, paths)?;
    // The parameters of the prefix's last segment, and the segments after it.
    let (parameters, beneath) = rest.split_at_checked(rest.find('/').unwrap_or(rest.len()))?;
    if !(parameters.is_empty() || parameters.starts_with(';')) {
        return None;
    }
    let to = rewrite.to.as_ref();
    let mut rewritten = match to.strip_suffix('/') {
        _ if beneath.is_empty() => format!("{to}{parameters}"),
        // No segment is left that could have the parameters.
        Some("") => beneath.to_owned(),
        Some(to) => format!("{to}{parameters}{beneath}"),
        None => format!("{to}{parameters}{beneath}"),
    };
    if let Some(query) = target.query() {
        rewritten.push('?');
        rewritten.push_str(query);
    }
    Some(Target::of_text(rewritten))
}

/// Why configuration may not set, append or remove `name`, if so. `request`: in a request, otherwise in an answer.
pub(crate) fn reserved(name: &header::HeaderName, request: bool) -> Option<&'static str> {
    match name.as_str() {
        "connection" | "keep-alive" | "proxy-connection" | "te" | "trailer"
        | "transfer-encoding" | "upgrade" => {
            Some("it is about one connection, and the proxy's own")
        }
        "content-length" => Some("it frames the message"),
        "host" if request => Some("use `rewrite: { host: … }`"),
        "expect" if request => Some("it is between the client and the proxy"),
        "x-request-id" if request => Some("it is `execution.id`, which the client may choose"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http::header::HeaderName;

    fn rewritten(from: &str, to: &str, target: &str) -> Option<String> {
        let rule = PrefixRewrite { from: from.into(), to: to.into() };
        let target = Target::of_text(target.to_owned()).unwrap();
        Some(rewrite(&target, &rule, Paths::default())?.unwrap().as_str().to_owned())
    }

    #[test]
    fn the_prefix_is_replaced_and_the_rest_keeps_its_bytes() {
        for (from, to, target, wanted) in [
            ("/api", "/v2", "/api/x", "/v2/x"),
            ("/api", "/v2", "/api", "/v2"),
            ("/api", "/v2/", "/api/x", "/v2/x"),
            ("/api", "/v2/", "/api", "/v2/"),
            ("/api", "/", "/api", "/"),
            ("/api", "/", "/api/x?q=%20", "/x?q=%20"),
            ("/api/", "/", "/api/", "/"),
            ("/api/", "/", "/ap%69/a%2Fb?q=%20", "/a%2Fb?q=%20"),
            ("/api/", "/v2", "/api/x", "/v2/x"),
            ("/", "/v2", "/x/%61", "/v2/x/%61"),
            ("/", "/v2", "/", "/v2/"),
            ("/api", "/v2", "/api//x", "/v2//x"),
            ("/api", "/v2", "/api?", "/v2?"),
            ("/api", "/v2", "/api;v=1/x;y?<z>", "/v2;v=1/x;y?<z>"),
            ("/api", "/v2/", "/api;v=1/x", "/v2;v=1/x"),
            ("/api", "/v2/", "/api;v=1", "/v2/;v=1"),
            ("/api", "/", "/api;v=1/x", "/x"),
            ("/api", "/", "/api;v=1", "/;v=1"),
            ("/api", "/v2", "/;/api/x", "/v2/x"),
        ] {
            let shown = rewritten(from, to, target);
            assert_eq!(shown.as_deref(), Some(wanted), "{from} {to} {target}");
        }
        assert_eq!(rewritten("/", "/v2", "*"), None);
        assert_eq!(rewritten("/api", "/v2", "/apis"), None);
    }

    #[test]
    fn fields_are_removed_then_set_then_appended() {
        let name = HeaderName::from_static;
        let value = HeaderValue::from_static;
        let mut fields = HeaderMap::new();
        fields.append("a", value("1"));
        fields.append("a", value("2"));
        fields.append("b", value("1"));
        fields.append("c", value("1"));
        edit(
            &mut fields,
            &FieldEdits {
                remove: vec![name("c"), name("a")],
                set: vec![(name("b"), value("2")), (name("d"), value("1"))],
                append: vec![(name("b"), value("3")), (name("c"), value("4"))],
            },
        );
        let of = |name: &str| -> Vec<_> { fields.get_all(name).iter().cloned().collect() };
        assert!(of("a").is_empty());
        assert_eq!(
            (of("b"), of("c"), of("d")),
            (vec![value("2"), value("3")], vec![value("4")], vec![value("1")])
        );
    }
}
