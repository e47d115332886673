//! Addresses on the command line, also as people write them there: `3000`, `localhost:8080`.

use std::net::SocketAddr;

/// The URL of an upstream. Only a port, or a host and a port, are of this machine and of `http`.
pub(super) fn upstream(text: &str) -> Result<String, String> {
    let example = "write for example `http://127.0.0.1:3000`";
    let url = match text.split_once("://") {
        Some(_) => text.to_owned(),
        None if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("http://127.0.0.1:{text}")
        }
        None if text.contains(':') => format!("http://{}", text.strip_prefix("//").unwrap_or(text)),
        None => return Err(format!("this is no URL; {example}")),
    };
    let uri = url.parse::<http::Uri>().map_err(|_| format!("this is no URL; {example}"))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        return Err(format!("an upstream speaks http or https; {example}"));
    }
    let authority = uri.authority().filter(|authority| !authority.host().is_empty());
    let Some(authority) = authority.filter(|authority| !authority.as_str().contains('@')) else {
        return Err(format!("an upstream is a host and a port; {example}"));
    };
    let port = authority.as_str().rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    if port.is_some() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(format!("the port is a number from 1 to 65535; {example}"));
    }
    if !matches!(uri.path_and_query().map_or("/", |rest| rest.as_str()), "" | "/") {
        return Err(format!("an upstream has no path; {example}"));
    }
    Ok(url)
}

/// An address to listen on or to ask. `localhost` is 127.0.0.1. A port alone could mean this machine or every network, so
/// it is refused.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    if let Ok(address) = local.as_deref().unwrap_or(text).parse() {
        return Ok(address);
    }
    let port = text.strip_prefix([':', '*']).unwrap_or(text).trim_start_matches(':');
    Err(match port.parse::<u16>() {
        Ok(port) => format!(
            "this is no address; write `127.0.0.1:{port}` for this machine alone, or `0.0.0.0:{port}` for every network"
        ),
        Err(_) => {
            "this is no address with a port; write for example `127.0.0.1:8080` or `[::1]:8080`"
                .to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_may_be_a_port_or_a_host() {
        for (text, url) in [
            ("3000", "http://127.0.0.1:3000"),
            ("localhost:3000", "http://localhost:3000"),
            ("//app:3000", "http://app:3000"),
            ("https://app.test", "https://app.test"),
            ("http://[::1]:3000/", "http://[::1]:3000/"),
            ("HTTP://app", "HTTP://app"),
        ] {
            assert_eq!(upstream(text).as_deref(), Ok(url), "{text}");
        }
        for text in [
            "",
            "nonsense",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://u@a",
            "a b",
            "99999",
            "a:x",
        ] {
            let refused = upstream(text).unwrap_err();
            assert!(refused.ends_with("write for example `http://127.0.0.1:3000`"), "{refused}");
        }
    }

    #[test]
    fn a_port_alone_is_refused_with_what_it_may_mean() {
        assert_eq!(listen("localhost:8080").unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(listen("[::1]:8080").unwrap().to_string(), "[::1]:8080");
        for text in [":8080", "8080", "*:8080"] {
            let refused = listen(text).unwrap_err();
            assert!(refused.contains("write `127.0.0.1:8080` for"), "{text}: {refused}");
        }
        for text in ["app.test:80", "", "127.0.0.1", ":x"] {
            assert!(listen(text).unwrap_err().ends_with("or `[::1]:8080`"), "{text}");
        }
    }
}
