use super::*;
use http::HeaderValue;

fn read(target: &str) -> Result<(Absolute, Target), TargetError> {
    Target::read(&Bytes::copy_from_slice(target.as_bytes()))
}

#[test]
fn a_target_has_one_of_three_forms() {
    let form = |target: &str, method| {
        let (absolute, target) = read(target)?;
        check_form(&absolute, &target, &method)?;
        Ok(target.as_str().to_owned())
    };
    let is = |target: &str| Ok(target.to_owned());
    assert_eq!(form("/a", Method::GET), is("/a"));
    assert_eq!(form("http://a.test", Method::GET), is("/"));
    assert_eq!(form("HTTP://a.test?x", Method::GET), is("/?x"));
    assert_eq!(form("https://a.test/x?y/z", Method::GET), is("/x?y/z"));
    assert_eq!(form("http://a.test/<x>", Method::GET), is("/<x>"));
    assert_eq!(form("*", Method::OPTIONS), is("*"));
    assert_eq!(form("*", Method::GET), Err(TargetError::Form));
    assert_eq!(form("a.test:80", Method::GET), Err(TargetError::Form));
    assert_eq!(form("a.test:80", Method::CONNECT), Err(TargetError::Form));
    assert_eq!(form("ftp://a.test/x", Method::GET), Err(TargetError::Scheme));
    assert_eq!(form("1tp://a.test/x", Method::GET), Err(TargetError::Scheme));
    assert_eq!(form("http:///x", Method::GET), Err(TargetError::BadHost));
}

/// RFC 9113 §8.3.1. Of a `:path`, the library itself refuses what begins with another character.
#[test]
fn a_path_of_http_2_begins_with_a_slash() {
    let form = |path: &'static str, method| {
        let target = Target::from(Some(PathAndQuery::from_static(path)));
        check_form(&Absolute::default(), &target, &method)
    };
    assert_eq!(form("/?x", Method::GET), Ok(()));
    assert_eq!(form("*", Method::OPTIONS), Ok(()));
    for path in ["?x", "?", "?/a", "*"] {
        assert_eq!(form(path, Method::GET), Err(TargetError::Form), "{path}");
    }
    assert_eq!(form("?x", Method::OPTIONS), Err(TargetError::Form));
}

#[test]
fn graphic_characters_pass_and_nothing_else_does() {
    for byte in 0..=u8::MAX {
        for (before, behind) in [("/a", "b"), ("/a?b", "c"), ("/", ""), ("http://h/", "")] {
            let mut target = before.as_bytes().to_vec();
            target.push(byte);
            target.extend_from_slice(behind.as_bytes());
            let read = Target::read(&target.clone().into());
            let wanted = match byte {
                b'#' => Err(TargetError::Fragment),
                b'!'..=b'~' => Ok(&target[before.find('/').unwrap_or(0)..]),
                _ => Err(TargetError::Character),
            };
            let read = read.map(|(_, target)| target.as_str().as_bytes().to_vec());
            let wanted = wanted.map(|all| {
                let text = String::from_utf8(all.to_vec()).unwrap();
                text.strip_prefix("//h").unwrap_or(&text).as_bytes().to_vec()
            });
            assert_eq!(read, wanted, "{byte} behind {before}");
        }
    }
}

#[test]
fn a_raw_target_has_the_parts_of_any() {
    for target in ["/a`b?q=<x>&y?z", "/a?q=\"abc\"", "/<>", "/`?", "/a?b"] {
        let (_, target) = read(target).unwrap();
        let whole = match target.query() {
            Some(query) => format!("{}?{query}", target.path()),
            None => target.path().to_owned(),
        };
        assert_eq!(whole, target.as_str());
    }
    let long = |byte: char| Target::of_text(format!("/{}", byte.to_string().repeat(LONGEST)));
    assert_eq!(
        (long('a').err(), long('<').err()),
        (Some(TargetError::TooLong), Some(TargetError::TooLong))
    );
}

fn of(target: &str, hosts: &[&'static str]) -> Result<String, TargetError> {
    let mut headers = HeaderMap::new();
    for host in hosts {
        headers.append(header::HOST, HeaderValue::from_static(host));
    }
    let (absolute, _) = read(target).unwrap();
    let asked = authority(&absolute, Version::HTTP_11, &headers)?;
    Ok(format!("{} {}", asked.host, asked.plain()))
}

#[test]
fn one_well_formed_host_is_wanted() {
    assert_eq!(of("/", &["a.test:80"]).unwrap(), "a.test a.test:80");
    assert_eq!(of("/", &["[::1]:80"]).unwrap(), "[::1] [::1]:80");
    assert_eq!(of("/", &[]), Err(TargetError::NoHost));
    assert_eq!(of("/", &["a", "b"]), Err(TargetError::TwoHosts));
    for bad in [
        "a.test, b.test",
        "a@b",
        "[::1",
        "a.test:99999",
        "a/b",
        "",
        "a:b",
        "[::1]x",
        ".",
        "a..",
        "[::1].",
        "%61.test",
        ".:80",
    ] {
        assert_eq!(of("/", &[bad]), Err(TargetError::BadHost), "{bad:?}");
    }
}

#[test]
fn a_dot_behind_a_host_is_nothing() {
    for (host, wanted) in
        [("a.test.", "a.test a.test"), ("a.test.:80", "a.test a.test:80"), ("a.", "a a")]
    {
        assert_eq!(of("/", &[host]).unwrap(), wanted);
    }
    assert_eq!(of("http://a.test.:81/x", &["b"]).unwrap(), "a.test a.test:81");
}

#[test]
fn the_absolute_form_overrules_the_host_field() {
    assert_eq!(of("http://a.test/x", &["b.test"]).unwrap(), "a.test a.test");
    assert_eq!(of("http://u:p@a.test/x", &["a.test"]), Err(TargetError::UserInfo));
}
