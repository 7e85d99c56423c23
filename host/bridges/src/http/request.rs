//! Validation of requests: nothing that a cell wrote is trusted.

use cellar_engine::bridges::{CallError, CallErrorKind, HttpCall};
use cellar_secrets::quote;
use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use super::rules::{host_of, port_of};

/// Characters of a URL.
const URL_CHARS_MAX: usize = 16 << 10;
/// Headers of a request, and their bytes.
const HEADERS_MAX: usize = 100;
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Headers that belong to the connection, which is the host's.
const OF_CONNECTION: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request whose every part is valid. It is not checked against the rules yet.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Vec<u8>>,
}

impl Request {
    /// Checks a request.
    ///
    /// # Errors
    /// `Invalid`, or `Limit` where there is too much of something.
    pub(super) fn check(call: HttpCall, body_bytes_max: usize) -> Result<Request, CallError> {
        let HttpCall { method, url, headers, body, timeout: _ } = call;
        let length = body.as_ref().map_or(0, Vec::len);
        if length > body_bytes_max {
            let message = format!(
                "the body of the request has {length} bytes, at most {body_bytes_max} are granted (request_mib under \
                 [http] in cellar.toml)"
            );
            return Err(CallError::new(CallErrorKind::Limit, message));
        }
        let method = check_method(&method)?;
        let url = check_url(&url)?;
        let headers = check_headers(&headers, &url)?;
        Ok(Request { method, url, headers, body })
    }
}

fn invalid(message: String) -> CallError {
    CallError::new(CallErrorKind::Invalid, message)
}

fn check_method(text: &str) -> Result<Method, CallError> {
    let method =
        Method::from_bytes(text.as_bytes()).map_err(|_| invalid(format!("{} is no HTTP method", quote(text))))?;
    match method {
        Method::CONNECT | Method::TRACE => Err(invalid(format!("the method {method} is not sent"))),
        method => Ok(method),
    }
}

fn check_url(text: &str) -> Result<Url, CallError> {
    let refuse = |why: &str| invalid(format!("the URL {} {why}", quote(text)));
    if text.len() > URL_CHARS_MAX {
        return Err(CallError::new(CallErrorKind::Limit, format!("a URL has at most {URL_CHARS_MAX} characters")));
    }
    // The parser would leave some of these out, silently.
    if text.chars().any(|c| c.is_control() || c == ' ') {
        return Err(refuse("has a blank or a control character in it"));
    }
    let mut url: Url = text.parse().map_err(|error| refuse(&format!("cannot be read: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // It is not quoted: there is a password in it.
        return Err(invalid(
            "a URL with a user name or a password is not sent: use an Authorization header".to_owned(),
        ));
    }
    url.set_fragment(None);
    // `example.com.` is `example.com`.
    if let Some(host) = url.host_str().and_then(|host| host.strip_suffix('.')).map(str::to_owned) {
        url.set_host(Some(&host)).map_err(|_| refuse("has no host"))?;
    }
    if host_of(&url).is_empty() || port_of(&url) == 0 {
        return Err(refuse("has no host"));
    }
    Ok(url)
}

fn check_headers(given: &[(String, String)], url: &Url) -> Result<HeaderMap, CallError> {
    let size: usize = given.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum();
    if given.len() > HEADERS_MAX || size > HEADER_BYTES_MAX {
        let message = format!("a request has at most {HEADERS_MAX} headers of {HEADER_BYTES_MAX} bytes in all");
        return Err(CallError::new(CallErrorKind::Limit, message));
    }
    let mut headers = HeaderMap::with_capacity(given.len());
    for (name, value) in given {
        let refuse = || invalid(format!("the header {} has a name or a value that HTTP does not allow", quote(name)));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse())?;
        let value = latin1(value).and_then(|bytes| HeaderValue::from_bytes(&bytes).ok()).ok_or_else(refuse)?;
        if name == "host" {
            check_host(&value, url)?;
        } else if !OF_CONNECTION.contains(&name.as_str()) {
            headers.append(name, value);
        }
    }
    Ok(headers)
}

/// The header `host` must name the host that the URL names: a server may hold others.
fn check_host(value: &HeaderValue, url: &Url) -> Result<(), CallError> {
    let told = value.to_str().unwrap_or_default();
    let same = format!("{}://{told}/", url.scheme()).parse::<Url>().is_ok_and(|told| told.origin() == url.origin());
    if same {
        return Ok(());
    }
    Err(invalid(format!("the header `host` names {}, and the URL `{}`", quote(told), host_of(url))))
}

/// The bytes that the characters of a header stand for.
fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, url: &str, headers: &[(&str, &str)]) -> HttpCall {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        HttpCall { method: method.to_owned(), url: url.to_owned(), headers, ..HttpCall::default() }
    }

    fn url(text: &str) -> Result<String, String> {
        let request = Request::check(call("GET", text, &[]), 10);
        request.map(|request| request.url.to_string()).map_err(|error| error.message)
    }

    fn headers(given: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let request = Request::check(call("GET", "http://a.test:81/", given), 10).map_err(|error| error.message)?;
        Ok(request.headers.iter().map(|(name, value)| format!("{name}: {value:?}")).collect())
    }

    #[test]
    fn hosts_are_written_one_way() {
        assert_eq!(url("http://A.Test./x#y").as_deref(), Ok("http://a.test/x"));
        assert_eq!(url("http://0x7f.1/").as_deref(), Ok("http://127.0.0.1/"));
        assert_eq!(url("http://2130706433").as_deref(), Ok("http://127.0.0.1/"));
        assert_eq!(url("http://127.1./").as_deref(), Ok("http://127.0.0.1/"));
        assert_eq!(url("http://１２７.0.0.1/").as_deref(), Ok("http://127.0.0.1/"));
        assert_eq!(url("http://[::FFFF:127.0.0.1]/").as_deref(), Ok("http://[::ffff:7f00:1]/"));
        assert_eq!(url("http://bücher.test/").as_deref(), Ok("http://xn--bcher-kva.test/"));
        assert_eq!(url("http:\\\\a.test\\x").as_deref(), Ok("http://a.test/x"));
    }

    #[test]
    fn urls_that_mean_something_else_are_refused() {
        let check = |text: &str, expected: &str| {
            let message = url(text).expect_err(text);
            assert!(message.contains(expected), "{text}: {message}");
        };
        check("http://a.test/\r\nX: y", "a blank or a control character");
        check("http://a.test/a b", "a blank or a control character");
        check("http://a\t.test/", "a blank or a control character");
        check("http://user:secret@a.test/", "use an Authorization header");
        check("http://user@a.test/", "use an Authorization header");
        check("http://a.test@b.test/", "use an Authorization header");
        check("file:///etc/passwd", "neither http nor https");
        check("gopher://a.test/", "neither http nor https");
        check("/x", "cannot be read");
        check("http://", "cannot be read");
        check("http://a.test:0/", "has no host");
        check("http://a.test:99999/", "cannot be read");
        check("http://256.256.256.256/", "cannot be read");
        check("http://a%00b.test/", "cannot be read");
        check("http://./", "has no host");
        check(&format!("http://a.test/{}", "x".repeat(URL_CHARS_MAX)), "at most");
        assert!(!url("http://user:secret@a.test/").expect_err("refused").contains("secret"));
    }

    #[test]
    fn nothing_slips_into_the_head_of_a_request() {
        let check = |method: &str| Request::check(call(method, "http://a.test/", &[]), 10).map(drop);
        for method in ["GET\r\nX: y", "GET /", "", "GÉT", "CONNECT", "TRACE"] {
            assert_eq!(check(method).expect_err(method).kind, CallErrorKind::Invalid, "{method}");
        }
        check("PURGE").expect("any token");
        for header in [("x", "a\r\nb: c"), ("x\r\ny", "a"), ("x y", "a"), ("", "a"), ("x", "a\0b"), ("x", "€")] {
            let message = headers(&[header]).expect_err("refused");
            assert!(message.contains("that HTTP does not allow"), "{message}");
        }
        assert_eq!(
            headers(&[("X-Name", "ü"), ("x-name", "b")]),
            Ok(vec!["x-name: \"\\xfc\"".into(), "x-name: \"b\"".into()])
        );
    }

    #[test]
    fn headers_of_the_connection_are_the_hosts() {
        let given = [("Transfer-Encoding", "chunked"), ("Content-Length", "5"), ("Connection", "x"), ("Upgrade", "y")];
        assert_eq!(headers(&given), Ok(Vec::new()));
        assert_eq!(headers(&[("Host", "a.test:81")]), Ok(Vec::new()));
        for other in ["b.test", "a.test", "a.test:82", "a.test:81, b.test", ""] {
            assert!(headers(&[("Host", other)]).expect_err(other).contains("the header `host` names"), "{other}");
        }
    }

    #[test]
    fn there_is_a_limit_to_everything() {
        let body = HttpCall { body: Some(vec![0; 11]), ..call("POST", "http://a.test/", &[]) };
        let kind = |request: Result<Request, CallError>| request.map(drop).expect_err("refused").kind;
        assert_eq!(kind(Request::check(body, 10)), CallErrorKind::Limit);
        let value = "x".repeat(HEADER_BYTES_MAX);
        assert_eq!(kind(Request::check(call("GET", "http://a.test/", &[("a", &value)]), 10)), CallErrorKind::Limit);
        let many = [("a", "b"); HEADERS_MAX + 1];
        assert_eq!(kind(Request::check(call("GET", "http://a.test/", &many), 10)), CallErrorKind::Limit);
    }
}
