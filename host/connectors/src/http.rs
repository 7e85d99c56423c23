//! Interfaces over HTTP whose answers are JSON, page by page.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use cellar_core::time::later;
use cellar_tables::Batches;
use futures::{StreamExt, future::BoxFuture};
use reqwest::{
    Client, StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue, LINK, RETRY_AFTER},
    redirect::Policy,
};
use serde_json::{Map, Value};
use url::Url;

use crate::{
    FetchOptions, FetchSpec, HttpFetch, Pages, Request, Source,
    error::{FetchError, FetchFault},
    json::{self, JsonRows, kind_of},
    rows::too_many_bytes,
    tool::{as_text, spec},
    unready,
};

/// Bytes of one page. As values they take many times that.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// Pages of one fetch.
const PAGES_MAX: usize = 10_000;
/// Tries of one request.
const TRIES_MAX: u32 = 4;
/// The first pause between two tries; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(250);
/// Timeout of a probe of the server.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes of a server's error that a message repeats.
const SAID_BYTES_MAX: usize = 300;

/// An interface.
pub(crate) struct Endpoint {
    /// Server, or the reason why it cannot be used.
    server: Result<Arc<Server>, String>,
    fetches: Arc<Fetches>,
}

type Fetches = BTreeMap<String, (FetchSpec, HttpFetch)>;

pub(crate) struct Server {
    client: Client,
    url: Url,
    headers: HeaderMap,
    /// Minimum time between two requests.
    pause: Option<Duration>,
    /// Earliest time of the next request.
    next: Mutex<Instant>,
}

impl Endpoint {
    pub(crate) fn new(server: Result<Server, String>, fetches: Fetches) -> Endpoint {
        Endpoint { server: server.map(Arc::new), fetches: Arc::new(fetches) }
    }
}

/// # Errors
/// What is wrong with a fetch.
pub(crate) fn read(fetches: BTreeMap<String, FetchOptions<HttpFetch>>) -> Result<Fetches, String> {
    let mut made = BTreeMap::new();
    for (name, options) in fetches {
        let (spec, fetch) = spec(&name, options)?;
        let templates = fetch.query.iter().map(|(_, value)| value).chain([&fetch.path]);
        for parameter in templates.flat_map(|template| names_in(template)) {
            if !spec.parameters.iter().any(|known| known.name == parameter) {
                let what = format!("`{{{parameter}}}` stands for a parameter of which `parameters` says nothing");
                return Err(format!("fetches.{name}: {what}"));
            }
        }
        if !fetch.rows.is_empty() && !fetch.rows.starts_with('/') {
            return Err(format!("fetches.{name}: `rows` is a JSON pointer, such as /data/items"));
        }
        made.insert(name, (spec, fetch));
    }
    Ok(made)
}

impl Source for Endpoint {
    fn fetches(&self) -> Vec<FetchSpec> {
        self.fetches.values().map(|(spec, _)| spec.clone()).collect()
    }

    fn fetch(&self, request: Request) -> BoxFuture<'static, Result<Batches, FetchError>> {
        let (server, fetches) = (self.server.clone(), Arc::clone(&self.fetches));
        Box::pin(async move {
            let server = server.map_err(|reason| unready(&reason))?;
            let Some((_, fetch)) = fetches.get(&request.fetch) else {
                return Err(FetchError::new(FetchFault::Unknown, "there is no such fetch"));
            };
            let rows = server.pages(fetch, &request).await?;
            let made = tokio::task::spawn_blocking(move || rows.finish());
            made.await.unwrap_or_else(|_| Err(FetchError::failed("the answer could not be read")))
        })
    }

    fn probe(&self) -> BoxFuture<'static, Result<String, FetchError>> {
        let server = self.server.clone();
        Box::pin(async move {
            let server = server.map_err(|reason| unready(&reason))?;
            let answer = server.client.get(server.url.clone()).headers(server.headers.clone());
            let answer = answer.timeout(PROBE_TIMEOUT).send().await;
            let answer = answer.map_err(|error| unreachable(&error, PROBE_TIMEOUT))?;
            Ok(format!("it answers with {}", answer.status()))
        })
    }
}

impl Server {
    /// # Errors
    /// What is wrong with the address or a header.
    pub(crate) fn new(url: &str, headers: Vec<(String, String)>, rate: Option<f64>) -> Result<Server, String> {
        let url = Url::parse(url).ok().filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
        let url = url.ok_or_else(|| "`url` is no address of HTTP".to_owned())?;
        let mut known = HeaderMap::new();
        for (name, value) in headers {
            let header = HeaderName::try_from(&name).map_err(|_| format!("`{name}` is no name of a header"))?;
            let value = HeaderValue::try_from(value);
            let mut value = value.map_err(|_| format!("the header `{name}` has a value that none may have"))?;
            value.set_sensitive(true);
            known.insert(header, value);
        }
        // It fails when there is a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().user_agent("cellar").redirect(Policy::none()).build();
        let client = client.map_err(|_| "the certificates of the system cannot be read".to_owned())?;
        let pause = rate.filter(|rate| *rate > 0.0).map(|rate| Duration::from_secs_f64((1.0 / rate).min(60.0)));
        Ok(Server { client, url, headers: known, pause, next: Mutex::new(Instant::now()) })
    }

    async fn pages(&self, fetch: &HttpFetch, request: &Request) -> Result<JsonRows, FetchError> {
        let mut url = self.first(fetch, &request.arguments)?;
        let (mut rows, mut bytes) = (JsonRows::new(&request.bounds, request.deadline), 0_usize);
        // A page that was asked for once would be asked for without end.
        let mut seen = HashSet::new();
        for page in 0..PAGES_MAX {
            if !seen.insert(url.clone()) {
                return Err(FetchError::failed(format!("page {} of the answer leads to one before it", page)));
            }
            let (body, headers) = self.ask(&url, request, bytes).await?;
            bytes = bytes.saturating_add(body.len());
            // A large one takes a while.
            let read = tokio::task::spawn_blocking(move || json::read("the answer", &body)).await;
            let mut answer = read.map_err(|_| FetchError::failed("the answer could not be read"))??;
            let found = answer.pointer_mut(&fetch.rows).ok_or_else(|| {
                FetchError::failed(format!("the answer has nothing at `{}`, where the rows should be", fetch.rows))
            })?;
            let Value::Array(items) = found else {
                let what = kind_of(found);
                return Err(FetchError::failed(format!("the answer has {what} where an array of rows was expected")));
            };
            let items = std::mem::take(items);
            let count = items.len();
            items.into_iter().try_for_each(|row| rows.push(row))?;
            let next = self.next_page(fetch, &url, &answer, &headers, page, rows.count(), count)?;
            let Some(next) = next else { return Ok(rows) };
            url = next;
        }
        Err(FetchError::new(FetchFault::Limit, format!("there are more than {PAGES_MAX} pages")))
    }

    fn first(&self, fetch: &HttpFetch, arguments: &Map<String, Value>) -> Result<Url, FetchError> {
        let path = filled(&fetch.path, arguments, |text| {
            // A part of a path is one part, whatever is in it.
            let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
            encoded.replace('+', "%20").replace('.', "%2E")
        });
        let invalid = |what: &str| FetchError::new(FetchFault::Invalid, what);
        let path = path.ok_or_else(|| invalid("a parameter of the path is not given"))?;
        // However they are written, addresses take these for the folder itself and the one above.
        let steps = |part: &str| matches!(part.replace("%2E", ".").as_str(), "." | "..");
        if path.split('/').any(steps) {
            return Err(invalid("a part of the path would be `.` or `..`, which leads elsewhere"));
        }
        let mut url = self.url.clone();
        if !path.is_empty() {
            let base = url.path().trim_end_matches('/').to_owned();
            url.set_path(&format!("{base}/{}", path.trim_start_matches('/')));
        }
        {
            let mut query = url.query_pairs_mut();
            for (name, template) in &fetch.query {
                if let Some(value) = filled(template, arguments, str::to_owned) {
                    query.append_pair(name, &value);
                }
            }
            match &fetch.pages {
                Pages::Number { parameter, first } => {
                    query.append_pair(parameter, &first.to_string());
                }
                Pages::Offset { parameter, limit } => {
                    query.append_pair(parameter, "0");
                    if let Some((name, count)) = limit {
                        query.append_pair(name, &count.to_string());
                    }
                }
                Pages::One | Pages::Link { .. } | Pages::Cursor { .. } => {}
            }
        }
        if url.query() == Some("") {
            url.set_query(None);
        }
        Ok(url)
    }

    #[allow(clippy::too_many_arguments, reason = "each way of paging looks at another of them")]
    fn next_page(
        &self,
        fetch: &HttpFetch,
        url: &Url,
        answer: &Value,
        headers: &HeaderMap,
        page: usize,
        rows: usize,
        count: usize,
    ) -> Result<Option<Url>, FetchError> {
        let with = |parameter: &str, value: &str| {
            let mut next = url.clone();
            let others: Vec<_> = url.query_pairs().filter(|(name, _)| name != parameter).collect();
            next.query_pairs_mut().clear().extend_pairs(others).append_pair(parameter, value);
            next
        };
        match &fetch.pages {
            Pages::One => Ok(None),
            Pages::Link { field } => {
                let link = match field {
                    Some(field) => {
                        answer.pointer(field).and_then(Value::as_str).filter(|link| !link.is_empty()).map(str::to_owned)
                    }
                    None => headers.get_all(LINK).iter().find_map(|value| next_link(value.to_str().ok()?)),
                };
                let Some(link) = link else { return Ok(None) };
                let next = url.join(&link).ok().filter(|next| next.origin() == self.url.origin());
                next.map(Some)
                    .ok_or_else(|| FetchError::failed("the next page is at another server, which is not asked"))
            }
            Pages::Cursor { field, parameter } => {
                let cursor = answer.pointer(field).filter(|cursor| !cursor.is_null()).map(as_text);
                Ok(cursor.filter(|cursor| !cursor.is_empty()).map(|cursor| with(parameter, &cursor)))
            }
            Pages::Offset { parameter, limit } => {
                let is_last = count == 0 || limit.as_ref().is_some_and(|(_, limit)| count < *limit);
                Ok((!is_last).then(|| with(parameter, &rows.to_string())))
            }
            Pages::Number { parameter, first } => {
                let number = first.saturating_add(u64::try_from(page).unwrap_or(u64::MAX)).saturating_add(1);
                Ok((count > 0).then(|| with(parameter, &number.to_string())))
            }
        }
    }

    /// Sends a request, retries it as long as time permits, and returns a successful response.
    async fn ask(&self, url: &Url, request: &Request, before: usize) -> Result<(Vec<u8>, HeaderMap), FetchError> {
        let mut pause = PAUSE;
        for attempt in 1.. {
            self.wait_for_turn().await;
            let left = request.deadline.saturating_duration_since(Instant::now());
            let asked = self.client.get(url.clone()).headers(self.headers.clone()).timeout(left).send().await;
            let is_last = attempt >= TRIES_MAX;
            match asked {
                Ok(answer) if answer.status().is_success() => return body(answer, request, before).await,
                Ok(answer) => {
                    let status = answer.status();
                    let may_pass = status == StatusCode::TOO_MANY_REQUESTS
                        || [StatusCode::SERVICE_UNAVAILABLE, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT]
                            .contains(&status);
                    if status.is_redirection() {
                        return Err(FetchError::failed(format!(
                            "the server answers with {status}; redirects are not followed"
                        )));
                    }
                    let wanted = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                    let wait = wanted.map_or(pause, Duration::from_secs);
                    if !may_pass || is_last || wait >= left {
                        return Err(refused(status, answer).await);
                    }
                    tokio::time::sleep(wait).await;
                }
                Err(error) if is_last || error.is_timeout() || pause >= left => {
                    return Err(unreachable(&error, request.bounds.timeout));
                }
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = pause.saturating_mul(2);
        }
        Err(FetchError::failed("the server does not answer"))
    }

    /// Waits until the next request may be sent.
    async fn wait_for_turn(&self) {
        let Some(pause) = self.pause else { return };
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = (*next).max(Instant::now());
            *next = later(turn, pause);
            turn
        };
        tokio::time::sleep_until(turn.into()).await;
    }
}

/// Reads an answer, no more of it than the fetch may have.
async fn body(answer: reqwest::Response, request: &Request, before: usize) -> Result<(Vec<u8>, HeaderMap), FetchError> {
    let headers = answer.headers().clone();
    let room = request.bounds.bytes.saturating_sub(before);
    let page = PAGE_BYTES_MAX.min(room);
    let mut body = Vec::new();
    let mut pieces = answer.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| unreachable(&error, request.bounds.timeout))?;
        if body.len().saturating_add(piece.len()) > page {
            return Err(match page < room {
                true => {
                    FetchError::new(FetchFault::Limit, format!("a page has more than {} MiB", PAGE_BYTES_MAX >> 20))
                }
                false => too_many_bytes(&request.bounds),
            });
        }
        body.extend_from_slice(&piece);
    }
    Ok((body, headers))
}

/// Converts an error response of the server.
async fn refused(status: StatusCode, answer: reqwest::Response) -> FetchError {
    let mut said = Vec::new();
    let mut pieces = answer.bytes_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        said.extend_from_slice(&piece);
        if said.len() > SAID_BYTES_MAX {
            break;
        }
    }
    let said = String::from_utf8_lossy(&said);
    let said = cellar_core::text::prefix(said.trim(), SAID_BYTES_MAX as u64);
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    FetchError::failed(format!("the server answers with {status}{said}"))
}

/// Converts an error of the client. The message does not contain the address.
fn unreachable(error: &reqwest::Error, timeout: Duration) -> FetchError {
    if error.is_timeout() {
        return FetchError::timeout(timeout);
    }
    FetchError::failed(if error.is_connect() {
        "the server cannot be reached"
    } else if error.is_body() || error.is_decode() {
        "the answer was cut short"
    } else {
        "the request failed"
    })
}

/// The address of the next page in a header `Link`.
fn next_link(value: &str) -> Option<String> {
    value.split(',').find_map(|link| {
        let (address, parameters) = link.split_once(';')?;
        let is_next = parameters.split(';').any(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or_default();
            name.trim().eq_ignore_ascii_case("rel")
                && value.trim().trim_matches('"').split(' ').any(|rel| rel.eq_ignore_ascii_case("next"))
        });
        let address = address.trim().strip_prefix('<')?.strip_suffix('>')?;
        is_next.then(|| address.to_owned())
    })
}

/// The parameters that a template has.
fn names_in(template: &str) -> impl Iterator<Item = &str> {
    template.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name))
}

/// A template with its parameters; nothing where one of them is not given.
fn filled(template: &str, arguments: &Map<String, Value>, encode: impl Fn(&str) -> String) -> Option<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}')?;
        text.push_str(before);
        let value = arguments.get(name).filter(|value| !value.is_null())?;
        text.push_str(&encode(&as_text(value)));
        rest = after;
    }
    text.push_str(rest);
    Some(text)
}
