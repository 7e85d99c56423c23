//! Traces of requests: a line of the log for each, and a span for an OpenTelemetry collector. Neither names more than
//! routes and tenants: ids of sessions and runs are private.

use std::time::{Duration, Instant, SystemTime};

use axum_core::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rand::Rng;
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::mpsc};

/// Spans that wait to be sent; more are left out.
const WAITING_MAX: usize = 4_096;
/// Spans that are sent at once.
const BATCH_MAX: usize = 512;
/// Time for which the first of them waits for more.
const BATCH_TIME: Duration = Duration::from_millis(500);
/// Timeout of sending.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// OpenTelemetry's span kind of a server.
const KIND_SERVER: u8 = 2;
/// OpenTelemetry's status code of an error.
const STATUS_ERROR: u8 = 2;

/// Labels of a request for logs and traces, which its response carries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    pub(crate) tenant: Option<String>,
    pub(crate) route: Option<&'static str>,
}

/// Request, as seen on arrival.
#[derive(Debug)]
pub(crate) struct Seen {
    method: Method,
    at: SystemTime,
    since: Instant,
    trace: u128,
    parent: Option<u64>,
    span: u64,
    /// True if the trace is sampled: by its caller, or because it begins here.
    is_sampled: bool,
}

impl Seen {
    pub(crate) fn of(request: &Request<Body>) -> Seen {
        let mut random = rand::rng();
        let parent = parent(request.headers());
        Seen {
            method: request.method().clone(),
            at: SystemTime::now(),
            since: Instant::now(),
            trace: parent.map_or_else(|| random.random(), |(trace, ..)| trace),
            parent: parent.map(|(_, span, _)| span),
            span: random.random(),
            is_sampled: parent.is_none_or(|(.., is_sampled)| is_sampled),
        }
    }
}

/// Parses `traceparent`, as specified by the W3C: the trace, the parent span, and whether the trace is sampled.
fn parent(headers: &HeaderMap) -> Option<(u128, u64, bool)> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let is_told = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    // A version to come may say more.
    if !is_told || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let (trace, span) = (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
    let flags = u8::from_str_radix(flags, 16).ok()?;
    (trace != 0 && span != 0).then_some((trace, span, flags & 1 == 1))
}

/// Queue of spans for a collector, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Traces(Option<mpsc::Sender<Value>>);

impl Traces {
    /// Creates the queue, and a task that sends its spans, if there is a collector. Must be called within a runtime.
    pub(crate) fn new(collector: Option<Uri>) -> Traces {
        let Some(collector) = collector else { return Traces::default() };
        let (sender, spans) = mpsc::channel(WAITING_MAX);
        tokio::spawn(send_all(collector, spans));
        Traces(Some(sender))
    }

    /// Logs an answered request, and queues its span. Returns its route, and the time that it took.
    pub(crate) fn told(&self, seen: Seen, response: &Response) -> (&'static str, Duration) {
        let took = seen.since.elapsed();
        let labels = response.extensions().get::<Labels>().cloned().unwrap_or_default();
        let (status, route) = (response.status(), labels.route.unwrap_or("other"));
        let (trace, span) = (format!("{:032x}", seen.trace), format!("{:016x}", seen.span));
        tracing::info!(
            target: "cellar_server::requests",
            method = %seen.method,
            route,
            status = status.as_u16(),
            tenant = labels.tenant.as_deref(),
            took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            trace_id = trace,
            span_id = span,
            "request"
        );
        let Some(spans) = self.0.as_ref().filter(|_| seen.is_sampled) else { return (route, took) };
        let nanos =
            |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos().to_string();
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let mut attributes = vec![
            text("http.request.method", seen.method.as_str()),
            text("http.route", route),
            json!({"key": "http.response.status_code", "value": {"intValue": status.as_u16().to_string()}}),
        ];
        attributes.extend(labels.tenant.as_deref().map(|tenant| text("cellar.tenant", tenant)));
        let mut span = json!({
            "traceId": trace,
            "spanId": span,
            "name": format!("{} {route}", seen.method),
            "kind": KIND_SERVER,
            "startTimeUnixNano": nanos(seen.at),
            "endTimeUnixNano": nanos(seen.at.checked_add(took).unwrap_or(seen.at)),
            "attributes": attributes,
        });
        if let Some(parent) = seen.parent {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        if status.is_server_error() {
            span["status"] = json!({"code": STATUS_ERROR});
        }
        // A collector that does not keep up costs spans, and nothing else.
        let _ = spans.try_send(span);
        (route, took)
    }
}

/// Sends spans as they come, to the last.
async fn send_all(collector: Uri, mut spans: mpsc::Receiver<Value>) {
    while let Some(first) = spans.recv().await {
        let mut batch = vec![first];
        let gathered = async {
            while batch.len() < BATCH_MAX
                && let Some(span) = spans.recv().await
            {
                batch.push(span);
            }
        };
        let _ = tokio::time::timeout(BATCH_TIME, gathered).await;
        let count = batch.len();
        let resource = json!({"attributes": [
            {"key": "service.name", "value": {"stringValue": "cellar"}},
            {"key": "service.version", "value": {"stringValue": env!("CARGO_PKG_VERSION")}},
        ]});
        let scopes = json!([{"scope": {"name": "cellar"}, "spans": batch}]);
        let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]});
        match tokio::time::timeout(SEND_TIMEOUT, send(&collector, body)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, count, "spans were not sent"),
            Err(_) => tracing::warn!(count, "spans were not sent in time"),
        }
    }
}

async fn send(collector: &Uri, body: Value) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let host = collector.host().unwrap_or_default();
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), collector.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::post(collector.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, collector.authority().map_or(host, |authority| authority.as_str()))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(serde_json::to_vec(&body)?)))?;
    let answered = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let _ = http_body_util::Limited::new(response.into_body(), 64 << 10).collect().await;
        if status.is_success() { Ok(()) } else { Err(format!("the collector answers {status}").into()) }
    };
    let answered = answered.await;
    connection.abort();
    answered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_is_told_by_its_header() {
        let said = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().expect("a header"));
            parent(&headers)
        };
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let whole = said(&format!("00-{trace}-{span}-01")).expect("a parent");
        assert_eq!(
            (format!("{:032x}", whole.0), format!("{:016x}", whole.1), whole.2),
            (trace.into(), span.into(), true)
        );
        assert!(!said(&format!("00-{trace}-{span}-00")).expect("a parent").2);
        assert!(said(&format!("01-{trace}-{span}-01-more")).is_some(), "a version to come");
        for odd in [
            String::new(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}-{}-01", &span[1..]),
        ] {
            assert_eq!(said(&odd), None, "{odd}");
        }
    }
}
