//! `fetch`, `urllib.request` and similar: requests to the hosts that a session was granted.
//!
//! A request is validated, then checked against the rules, then its host's addresses are checked against those that are
//! never granted, or only explicitly; the client connects to those addresses and to no others. Redirects are not followed:
//! the cell may send a request to the new location, which is checked like any other. Credentials that a rule adds are
//! removed from the response, as from all answers. Read [`Network::ask`] first.

mod addresses;
mod credentials;
mod request;
mod resolve;
mod rules;

use std::{
    error::Error,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cellar_core::text::describe;
use cellar_engine::bridges::{CallError, CallErrorKind, HttpCall, HttpResponse, Response};
use reqwest::{
    Client, Url,
    header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};

use crate::{
    client,
    options::{Http, HttpRule},
};
use request::Request;
use resolve::{CheckedLookup, SystemLookup, check};
use rules::host_of;

pub use credentials::HeaderTemplate;
pub use resolve::{Lookup, LookupFuture};
pub(crate) use rules::granting;
pub use rules::host_pattern;

/// Headers of an answer, and their bytes.
const HEADERS_MAX: usize = 100;
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Usage of a session's grants.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    calls: AtomicU64,
}

/// The hosts that were granted.
pub(crate) struct Network {
    options: Http,
    lookup: Arc<dyn Lookup>,
    clients: OnceLock<Result<Clients, String>>,
}

/// Two connection pools: connections of a rule that grants private addresses are not reused for other rules.
struct Clients {
    public: Client,
    private: Client,
}

impl Network {
    pub(crate) fn new(options: Http) -> Network {
        Network { options, lookup: Arc::new(SystemLookup), clients: OnceLock::new() }
    }

    /// Describes the rules in words.
    pub(crate) fn rules(&self) -> Vec<String> {
        self.options.allow.iter().map(ToString::to_string).collect()
    }

    /// Looks names up in another way.
    pub(crate) fn with_lookup(&self, lookup: Arc<dyn Lookup>) -> Network {
        Network { options: self.options.clone(), lookup, clients: OnceLock::new() }
    }

    /// Sends a request, if it is granted.
    ///
    /// # Errors
    /// `Invalid` for an invalid request, `Denied` for one that is not granted, `Limit` for one that is too large, too slow
    /// or one too many, `Failed` for errors of the connection.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn ask(self: Arc<Network>, call: HttpCall, spent: Arc<Spent>) -> Result<Response, CallError> {
        let timeout = call.timeout.map_or(self.options.timeout, |timeout| timeout.min(self.options.timeout));
        let request = Request::check(call, self.options.request_bytes)?;
        // What no rule could grant is refused as that.
        check_address(&request.url, true)?;
        let rule = granting(&self.options.allow, &request.method, &request.url)?;
        check_address(&request.url, rule.private)?;
        if spent.calls.fetch_add(1, Ordering::Relaxed) >= self.options.calls {
            let message = format!(
                "this session has made its {} requests (calls under [http] in cellar.toml)",
                self.options.calls
            );
            return Err(CallError::new(CallErrorKind::Limit, message));
        }
        let host = host_of(&request.url).to_owned();
        let exchange = self.exchange(rule, request);
        tokio::time::timeout(timeout, exchange).await.unwrap_or_else(|_| {
            let message = format!("`{host}` did not answer within {}", seconds(timeout));
            Err(CallError::new(CallErrorKind::Limit, message))
        })
    }

    async fn exchange(&self, rule: &HttpRule, request: Request) -> Result<Response, CallError> {
        let Request { method, url, mut headers, body } = request;
        add_credentials(rule, &mut headers)?;
        let host = host_of(&url).to_owned();
        let client = self.client(rule)?;
        let mut request = client.request(method, url.clone()).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        let mut response = request.send().await.map_err(|error| failed(&host, error))?;
        let status = response.status().as_u16();
        let headers = headers_of(&host, response.headers())?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(&host, error))? {
            if body.len().saturating_add(chunk.len()) > self.options.response_bytes {
                let message = format!(
                    "the answer of `{host}` has more than {} bytes (response_mib under [http] in cellar.toml)",
                    self.options.response_bytes
                );
                return Err(CallError::new(CallErrorKind::Limit, message));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Response::Http(HttpResponse { status, url: url.into(), headers, body }))
    }

    fn client(&self, rule: &HttpRule) -> Result<&Client, CallError> {
        let build = |private| {
            client::builder(&self.options.certificates)?
                .redirect(Policy::none())
                .no_proxy()
                .retry(reqwest::retry::never())
                .http1_max_headers(HEADERS_MAX)
                // As programs write them: some servers tell `Content-Type` from `content-type`.
                .http1_title_case_headers()
                .pool_max_idle_per_host(4)
                .dns_resolver(CheckedLookup { lookup: self.lookup.clone(), private })
                .build()
                .map_err(|error| describe(&error))
        };
        let clients = self.clients.get_or_init(|| Ok(Clients { public: build(false)?, private: build(true)? }));
        match clients {
            Ok(clients) if rule.private => Ok(&clients.private),
            Ok(clients) => Ok(&clients.public),
            Err(fault) => Err(CallError::new(
                CallErrorKind::Failed,
                format!("requests cannot be sent from this machine: {fault}"),
            )),
        }
    }
}

/// Checks a host that is an address already, and so is not looked up.
fn check_address(url: &Url, private: bool) -> Result<(), CallError> {
    match url.host() {
        Some(url::Host::Ipv4(address)) => check(host_of(url), address.into(), private),
        Some(url::Host::Ipv6(address)) => check(host_of(url), address.into(), private),
        _ => Ok(()),
    }
}

/// Adds the headers that the host knows the values of. An answer may repeat them: it must not be packed, so that they
/// are found in it.
fn add_credentials(rule: &HttpRule, headers: &mut HeaderMap) -> Result<(), CallError> {
    if !rule.headers.is_empty() {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    for (name, template) in &rule.headers {
        let refuse = |why: String| {
            let message = format!("the header `{name}` that the host adds for `{}` {why}", rule.host);
            CallError::new(CallErrorKind::Failed, message)
        };
        let value = template.fill().map_err(|variable| {
            refuse(format!("has no value: the environment variable `{variable}` (headers_env) is not set"))
        })?;
        let header = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(&value).ok());
        let (name, mut value) = header.ok_or_else(|| refuse("has a value that HTTP does not allow".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(())
}

/// The headers of an answer, each byte as a character.
fn headers_of(host: &str, headers: &HeaderMap) -> Result<Vec<(String, String)>, CallError> {
    let size: usize = headers.iter().map(|(name, value)| name.as_str().len().saturating_add(value.len())).sum();
    if size > HEADER_BYTES_MAX {
        let message = format!("the headers of the answer of `{host}` have more than {HEADER_BYTES_MAX} bytes");
        return Err(CallError::new(CallErrorKind::Limit, message));
    }
    let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    Ok(headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect())
}

/// Converts an error of the client, or returns the refusal of the resolver that caused it.
fn failed(host: &str, error: reqwest::Error) -> CallError {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<CallError>() {
            return refused.clone();
        }
        cause = error.source();
    }
    // The outermost error says no more than that there is one.
    let error = error.without_url();
    let message = format!("the request to `{host}` failed: {}", describe(error.source().unwrap_or(&error)));
    CallError::new(CallErrorKind::Failed, message)
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests;
