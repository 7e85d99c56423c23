//! `[http]` of a `cellar.toml`.

use std::time::Duration;

use cellar_bridges::{HeaderTemplate, Http, HttpRule, host_pattern};
use cellar_wire::check::{At, Fields};

use super::Parser;
use crate::file::bytes_of;

const SCHEMES: [&str; 2] = ["https", "http"];
/// Seconds and MiB of a request.
const TIMEOUT_SECONDS_MAX: u64 = 600;
const MIB_MAX: u64 = 64;

impl Parser<'_> {
    pub(super) fn http(&mut self, at: &At<'_>) -> Option<Http> {
        let known = ["allow", "timeout", "request_mib", "response_mib", "calls", "certificates"];
        let fields = at.fields(&known, &mut self.problems)?;
        let default = Http::default();
        let items = fields.get("allow").and_then(|at| at.items("host", &mut self.problems)).unwrap_or_default();
        let allow = items.iter().filter_map(|item| self.http_rule(item)).collect();
        let mut number = |key, max| fields.get(key).and_then(|at| at.integer(1..=max, &mut self.problems));
        let timeout = number("timeout", TIMEOUT_SECONDS_MAX).map_or(default.timeout, Duration::from_secs);
        let mut bytes = |key| number(key, MIB_MAX).and_then(|mib| usize::try_from(mib << 20).ok());
        let request_bytes = bytes("request_mib").unwrap_or(default.request_bytes);
        let response_bytes = bytes("response_mib").unwrap_or(default.response_bytes);
        let calls = number("calls", u64::MAX).unwrap_or(default.calls);
        let certificates = fields.get("certificates").and_then(|at| self.certificates(&at)).unwrap_or_default();
        Some(Http { allow, timeout, request_bytes, response_bytes, calls, certificates })
    }

    fn certificates(&mut self, at: &At<'_>) -> Option<Vec<u8>> {
        let path = at.filled_text(&mut self.problems)?;
        match bytes_of(&self.path(path)) {
            Ok(text) => Some(text),
            Err(error) => {
                at.expected(format_args!("a file with certificates ({error})"), &mut self.problems);
                None
            }
        }
    }

    fn http_rule(&mut self, at: &At<'_>) -> Option<HttpRule> {
        let known = ["host", "methods", "ports", "schemes", "paths", "headers_env", "private", "confirm"];
        let fields = at.fields(&known, &mut self.problems)?;
        let expected = "the name of a host, `*.` and a name, or `*`";
        let host = fields.required("host", expected, &mut self.problems).and_then(|at| {
            let host = host_pattern(at.text(&mut self.problems)?);
            if host.is_err() {
                at.expected(expected, &mut self.problems);
            }
            host.ok()
        });
        let default = HttpRule::default();
        let headers = self.headers(&fields);
        let schemes = self.schemes(&fields).unwrap_or_else(|| {
            // Where nothing is said, credentials are sent encrypted.
            let count = if headers.is_empty() { SCHEMES.len() } else { 1 };
            default.schemes[..count].to_vec()
        });
        let methods = self.words(&fields, "method").unwrap_or_default();
        let methods = methods.iter().map(|method| method.to_ascii_uppercase()).collect();
        let ports = self.ports(&fields).unwrap_or(default.ports);
        let paths = self.paths(&fields);
        let private = fields.get("private").and_then(|at| at.boolean(&mut self.problems)).unwrap_or_default();
        let confirm = self.confirm(&fields);
        Some(HttpRule { host: host?, methods, ports, schemes, paths, headers, private, confirm })
    }

    /// The list under the plural of `word`.
    fn words(&mut self, fields: &Fields<'_>, word: &str) -> Option<Vec<String>> {
        fields.get(&format!("{word}s")).and_then(|at| at.texts(word, &mut self.problems))
    }

    fn schemes(&mut self, fields: &Fields<'_>) -> Option<Vec<String>> {
        let schemes = self.words(fields, "scheme")?;
        if !schemes.iter().all(|scheme| SCHEMES.contains(&scheme.as_str())) {
            let at = fields.get("schemes")?;
            at.expected("`https` and `http`", &mut self.problems);
        }
        Some(schemes)
    }

    fn ports(&mut self, fields: &Fields<'_>) -> Option<Vec<u16>> {
        let items = fields.get("ports")?.items("port", &mut self.problems)?;
        let ports = items.iter().filter_map(|item| item.integer(1..=u64::from(u16::MAX), &mut self.problems));
        Some(ports.filter_map(|port| u16::try_from(port).ok()).collect())
    }

    fn paths(&mut self, fields: &Fields<'_>) -> Vec<String> {
        let paths = self.words(fields, "path").unwrap_or_default();
        if let Some(at) = fields.get("paths")
            && !paths.iter().all(|path| path.starts_with('/'))
        {
            at.expected("paths that begin with `/`", &mut self.problems);
        }
        paths
    }

    /// `headers_env`: what the host adds to requests.
    pub(super) fn headers(&mut self, fields: &Fields<'_>) -> Vec<(String, HeaderTemplate)> {
        let entries = fields.get("headers_env").and_then(|at| at.entries(&mut self.problems)).unwrap_or_default();
        let mut headers = Vec::new();
        for (name, at) in entries {
            let Some(text) = at.text(&mut self.problems) else { continue };
            match HeaderTemplate::parse(text) {
                Ok(template) => headers.push((name.to_owned(), template)),
                Err(expected) => at.expected(expected, &mut self.problems),
            }
        }
        headers
    }
}
