//! Rules that grant requests to a session.

use cellar_engine::bridges::{CallError, CallErrorKind};
use cellar_secrets::quote;
use reqwest::{Method, Url};

use crate::options::HttpRule;

/// First part of a request that does not match a rule. A later variant is a closer match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Misfit {
    Host,
    Scheme,
    Port,
    Method,
    Path,
}

/// Returns the rule that grants this request: the first that matches.
///
/// # Errors
/// `Denied`: the part that is not granted, and the setting in `cellar.toml` that would grant it.
pub(crate) fn granting<'a>(rules: &'a [HttpRule], method: &Method, url: &Url) -> Result<&'a HttpRule, CallError> {
    let mut closest = Misfit::Host;
    for rule in rules {
        match misfit(rule, method, url) {
            None => return Ok(rule),
            Some(misfit) => closest = closest.max(misfit),
        }
    }
    Err(CallError::new(CallErrorKind::Denied, denial(closest, method, url)))
}

fn misfit(rule: &HttpRule, method: &Method, url: &Url) -> Option<Misfit> {
    let fits = |list: &[String], word: &str| list.iter().any(|each| each == word);
    match () {
        () if !fits_host(&rule.host, host_of(url)) => Some(Misfit::Host),
        () if !fits(&rule.schemes, url.scheme()) => Some(Misfit::Scheme),
        () if !rule.ports.contains(&port_of(url)) => Some(Misfit::Port),
        () if !rule.methods.is_empty() && !fits(&rule.methods, method.as_str()) => Some(Misfit::Method),
        () if !fits_path(&rule.paths, url.path()) => Some(Misfit::Path),
        () => None,
    }
}

/// `*` is every host, `*.example.com` every host below that one.
fn fits_host(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        None => pattern == host,
        Some("") => true,
        Some(ending) => host.len() > ending.len() && host.ends_with(ending),
    }
}

/// Returns true if a path is granted: a granted path includes everything below it. A path with encoded dots or slashes,
/// with what is encoded twice, or with parameters might lead elsewhere, since servers disagree about them.
fn fits_path(granted: &[String], path: &str) -> bool {
    let is_below = |prefix: &String| {
        path.strip_prefix(prefix.as_str())
            .is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
    };
    let lower = path.to_ascii_lowercase();
    // THREAT: T19
    let is_plain = !["%2e", "%2f", "%5c", "%25", "%3b", "%00", "//", ";", "\\"].iter().any(|odd| lower.contains(odd));
    granted.is_empty() || (is_plain && granted.iter().any(is_below))
}

fn denial(misfit: Misfit, method: &Method, url: &Url) -> String {
    let (host, scheme, port) = (host_of(url), url.scheme(), port_of(url));
    let of_host = "of that host under [http] allow in cellar.toml";
    match misfit {
        Misfit::Host => format!(
            "the host `{host}` is not granted: add {{ host = \"{host}\", methods = [\"{method}\"], ports = [{port}] }} to \
             [http] allow in cellar.toml"
        ),
        Misfit::Scheme => format!("{scheme} is not granted for `{host}`: add \"{scheme}\" to the schemes {of_host}"),
        Misfit::Port => format!("port {port} of `{host}` is not granted: add {port} to the ports {of_host}"),
        Misfit::Method => format!("{method} is not granted for `{host}`: add \"{method}\" to the methods {of_host}"),
        Misfit::Path => {
            let path = quote(url.path());
            format!("the path {path} of `{host}` is not granted: add what it begins with to the paths {of_host}")
        }
    }
}

/// Normalizes a host pattern of a rule to the notation of requests: `*`, `*.` and a name, a name, or an address.
///
/// # Errors
/// The text is not a host pattern.
pub fn host_pattern(text: &str) -> Result<String, NotAHost> {
    let (wildcard, name) = match text.strip_prefix("*.") {
        Some(name) => ("*.", name),
        None if text == "*" => return Ok(text.to_owned()),
        None => ("", text),
    };
    let host = url::Host::parse(name.strip_suffix('.').unwrap_or(name)).map_err(|_| NotAHost)?;
    match host {
        url::Host::Domain(name) if !name.contains('*') => Ok(format!("{wildcard}{name}")),
        url::Host::Ipv4(_) | url::Host::Ipv6(_) if wildcard.is_empty() => Ok(host.to_string()),
        _ => Err(NotAHost),
    }
}

/// A text that names no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAHost;

/// Returns the host of a request's URL. URLs without one are refused before.
pub(super) fn host_of(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

pub(super) fn port_of(url: &Url) -> u16 {
    url.port_or_known_default().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(host: &str) -> HttpRule {
        HttpRule { host: host.to_owned(), ..HttpRule::default() }
    }

    fn is_granted(rule: &HttpRule, method: &str, url: &str) -> Result<(), String> {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let rules = std::slice::from_ref(rule);
        granting(rules, &method, &url.parse().expect("a URL")).map(drop).map_err(|error| error.message)
    }

    fn check(rule: &HttpRule, granted: &[&str], refused: &[&str]) {
        for url in granted {
            assert_eq!(is_granted(rule, "GET", url), Ok(()), "{url}");
        }
        for url in refused {
            assert!(is_granted(rule, "GET", url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_host_is_granted_by_its_name() {
        let other = ["https://b.test/", "https://a.test.b.test/", "https://xa.test/", "https://x.a.test/"];
        check(&rule("a.test"), &["https://a.test/", "https://A.TEST/x?y#z", "https://a.test:443/"], &other);
        check(
            &rule("*.a.test"),
            &["https://x.a.test/", "https://x.y.a.test/"],
            &["https://a.test/", "https://xa.test/"],
        );
        check(&rule("*"), &["https://a.test/", "https://1.1.1.1/"], &[]);
    }

    #[test]
    fn hosts_of_rules_are_written_one_way() {
        let check = |text: &str, expected: &str| assert_eq!(host_pattern(text).as_deref(), Ok(expected), "{text}");
        check("*", "*");
        check("*.Example.com.", "*.example.com");
        check("bücher.test", "xn--bcher-kva.test");
        check("0x7f.1", "127.0.0.1");
        check("[::1]", "[::1]");
        for none in ["", "*.", "**", "a.*.test", "*.127.0.0.1", "a.test:80", "a.test/x", "http://a.test", "::1", "a b"]
        {
            assert_eq!(host_pattern(none), Err(NotAHost), "{none}");
        }
    }

    #[test]
    fn spellings_of_addresses_are_one_address() {
        let spellings = ["https://127.0.0.1/", "https://0x7f.1/", "https://2130706433/", "https://017700000001/"];
        check(&rule("127.0.0.1"), &spellings, &["https://[::ffff:127.0.0.1]/"]);
        check(&rule("a.test"), &[], &spellings);
    }

    #[test]
    fn ports_schemes_and_methods_are_granted_too() {
        let plain = HttpRule { ports: vec![80, 8080], methods: vec!["GET".to_owned()], ..rule("a.test") };
        check(&plain, &["http://a.test/", "http://a.test:8080/"], &["https://a.test/", "http://a.test:81/"]);
        assert!(is_granted(&plain, "POST", "http://a.test/").is_err());
        assert!(is_granted(&plain, "get", "http://a.test/").is_err());
        let encrypted = HttpRule { schemes: vec!["https".to_owned()], ports: vec![8443], ..rule("a.test") };
        check(&encrypted, &["https://a.test:8443/"], &["http://a.test:8443/"]);
    }

    #[test]
    fn paths_are_granted_with_what_is_below_them() {
        let rule = HttpRule { paths: vec!["/v1".to_owned(), "/files/".to_owned()], ..rule("a.test") };
        let granted =
            ["https://a.test/v1", "https://a.test/v1/x", "https://a.test/x/../v1/y", "https://a.test/files/a"];
        let refused = [
            "https://a.test/",
            "https://a.test/v10",
            "https://a.test/files",
            "https://a.test/v1/../admin",
            "https://a.test/v1/%2e%2e/admin",
            "https://a.test/v1/..%2fadmin",
            "https://a.test/v1/..%5Cadmin",
            "https://a.test/v1//admin",
        ];
        check(&rule, &granted, &refused);
    }

    #[test]
    fn a_denial_says_what_would_grant_it() {
        let limited = HttpRule { methods: vec!["GET".to_owned()], paths: vec!["/v1".to_owned()], ..rule("a.test") };
        let denial = |method: &str, url: &str| is_granted(&limited, method, url).expect_err("refused");
        assert_eq!(
            denial("GET", "https://b.test/x"),
            "the host `b.test` is not granted: add { host = \"b.test\", methods = [\"GET\"], ports = [443] } to [http] \
             allow in cellar.toml"
        );
        let of_host = "of that host under [http] allow in cellar.toml";
        assert_eq!(
            denial("GET", "https://a.test:444/v1"),
            format!("port 444 of `a.test` is not granted: add 444 to the ports {of_host}")
        );
        assert_eq!(
            denial("POST", "https://a.test/v1"),
            format!("POST is not granted for `a.test`: add \"POST\" to the methods {of_host}")
        );
        assert_eq!(
            denial("GET", "https://a.test/v2"),
            format!("the path \"/v2\" of `a.test` is not granted: add what it begins with to the paths {of_host}")
        );
    }

    #[test]
    fn paths_that_services_might_read_otherwise_are_refused() {
        let granted = ["/public".to_owned()];
        for path in ["/public", "/public/a", "/public/a%20b", "/public/%C3%A9"] {
            assert!(fits_path(&granted, path), "{path}");
        }
        for path in [
            "/public/..;/secret",
            "/public/%252e%252e/secret",
            "/public/%25252e/x",
            "/public;x/secret",
            "/public/%3b/x",
            "/public/%3B../x",
            "/public/%2e%2E/secret",
            "/public/..%2fsecret",
            "/public/%5c../x",
            "/public//secret",
            "/publication",
            "/public/\\..\\secret",
            "/public/%00",
        ] {
            assert!(!fits_path(&granted, path), "{path}");
        }
        assert!(fits_path(&[], "/a;b/%252e"), "where no paths are named, all are granted");
    }
}
