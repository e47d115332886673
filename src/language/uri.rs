//! Provider URIs: `mwl:<type>/<namespace>/<name…>` (MWL, "`mwl` URI scheme").
//!
//! Two URIs are the same only if their texts are: a URI has one spelling and is never normalised.

use std::sync::Arc;

/// A valid `mwl` URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderUri {
    text: Arc<str>,
    kind: ProviderKind,
}

/// The two types of provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// `provider.call`: what a call's `provider` names.
    Call,
    /// `provider.middleware`: what a middleware entry's `provider` names.
    Middleware,
}

impl ProviderKind {
    /// The type segment.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "provider.call",
            Self::Middleware => "provider.middleware",
        }
    }

    /// The second segment of the codes of such a provider.
    pub const fn code_segment(self) -> &'static str {
        match self {
            Self::Call => "Call",
            Self::Middleware => "Middleware",
        }
    }
}

impl ProviderUri {
    /// Reads a URI by the scheme's ABNF ("Syntax").
    ///
    /// # Errors
    /// What is wrong with `text`, and what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = |problem: &str| {
            Err(format!(
                "`{text}` is not a provider URI: {problem}; \
                 write `mwl:provider.call/NAMESPACE/NAME` or `mwl:provider.middleware/NAMESPACE/NAME`"
            ))
        };
        let Some(path) = text.strip_prefix("mwl:") else {
            let other = text.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("mwl:"));
            return if other {
                refuse("the scheme is written `mwl`, in lower case")
            } else {
                refuse("it does not start with `mwl:`")
            };
        };
        if path.starts_with('/') {
            return refuse("nothing but the type follows `mwl:`, no `/`");
        }
        if let Some(bad) = path.chars().find(|c| !is_permitted(*c)) {
            return refuse(&format!("it holds `{}`", bad.escape_default()));
        }
        let segments: Vec<&str> = path.split('/').collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return refuse("it has an empty segment");
        }
        if segments.iter().any(|segment| matches!(*segment, "." | "..")) {
            return refuse("`.` and `..` are no segments");
        }
        let kind = match segments.first() {
            Some(&"provider.call") => ProviderKind::Call,
            Some(&"provider.middleware") => ProviderKind::Middleware,
            _ => return refuse("its type is neither `provider.call` nor `provider.middleware`"),
        };
        if segments.len() < 3 {
            return refuse("it needs a type, a namespace and a name");
        }
        Ok(Self { text: text.into(), kind })
    }

    /// The URI as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What kind of provider it names.
    pub const fn kind(&self) -> ProviderKind {
        self.kind
    }

    /// The authority that defines the provider.
    pub fn namespace(&self) -> &str {
        self.text.split('/').nth(1).unwrap_or_default()
    }

    /// Everything after the namespace.
    pub fn name(&self) -> &str {
        self.text.splitn(3, '/').nth(2).unwrap_or_default()
    }

    /// The name without a version segment: `http` of `http/v1`.
    pub fn bare_name(&self) -> &str {
        let name = self.name();
        let versioned = |last: &str| {
            last.strip_prefix('v').is_some_and(|rest| {
                rest.starts_with(|c: char| c.is_ascii_digit())
                    && rest.chars().all(|c| c.is_ascii_digit() || c == '.')
            })
        };
        match name.rsplit_once('/') {
            Some((rest, last)) if versioned(last) => rest,
            _ => name,
        }
    }
}

fn is_permitted(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_has_a_type_a_namespace_and_a_name() {
        let uri = ProviderUri::parse("mwl:provider.call/example.com/a/b_C-1/v1.2").unwrap();
        assert_eq!(uri.kind(), ProviderKind::Call);
        assert_eq!(uri.namespace(), "example.com");
        assert_eq!(uri.name(), "a/b_C-1/v1.2");
        assert_eq!(uri.bare_name(), "a/b_C-1");
        let uri = ProviderUri::parse("mwl:provider.middleware/mwl/retry").unwrap();
        assert_eq!(uri.kind(), ProviderKind::Middleware);
        assert_eq!(uri.bare_name(), "retry");
        let uri = ProviderUri::parse("mwl:provider.call/x/v1").unwrap();
        assert_eq!(uri.bare_name(), "v1");
    }

    #[test]
    fn what_is_not_a_uri_is_refused_with_what_to_write() {
        let problem = |text: &str| {
            let error = ProviderUri::parse(text).unwrap_err();
            let (_, rest) = error.split_once("URI: ").unwrap();
            rest.split_once("; write").unwrap().0.to_owned()
        };
        for (text, expected) in [
            ("", "it does not start with `mwl:`"),
            ("http://x/y", "it does not start with `mwl:`"),
            ("MWL:provider.call/x/y", "the scheme is written `mwl`, in lower case"),
            ("mwl://provider.call/x/y", "nothing but the type follows `mwl:`, no `/`"),
            ("mwl:/provider.call/x/y", "nothing but the type follows `mwl:`, no `/`"),
            ("mwl:provider.call/x/y?z", "it holds `?`"),
            ("mwl:provider.call/x/y#z", "it holds `#`"),
            ("mwl:provider.call/x/%41", "it holds `%`"),
            ("mwl:provider.call/x/ä", "it holds `\\u{e4}`"),
            ("mwl:provider.call/x/y ", "it holds ` `"),
            ("mwl:provider.call/x//y", "it has an empty segment"),
            ("mwl:provider.call/x/y/", "it has an empty segment"),
            ("mwl:provider.call/../y", "`.` and `..` are no segments"),
            ("mwl:provider.call/x/.", "`.` and `..` are no segments"),
            ("mwl:provider/x/y", "its type is neither `provider.call` nor `provider.middleware`"),
            (
                "mwl:Provider.Call/x/y",
                "its type is neither `provider.call` nor `provider.middleware`",
            ),
            ("mwl:", "it has an empty segment"),
            ("mwl:provider.call/x", "it needs a type, a namespace and a name"),
        ] {
            assert_eq!(problem(text), expected, "{text}");
        }
        let error = ProviderUri::parse("http").unwrap_err();
        assert_eq!(
            error,
            "`http` is not a provider URI: it does not start with `mwl:`; write \
             `mwl:provider.call/NAMESPACE/NAME` or `mwl:provider.middleware/NAMESPACE/NAME`"
        );
    }
}
