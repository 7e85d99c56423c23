//! Output of a run, in the form that a reader asks for: one result, lines of JSON, or server-sent events. A stream ends
//! with a result or a problem, and then closes; one that closes without has been cut, and is resumed.

use std::time::Duration;

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use cellar_hub::{Delivery, Reader, RunHandle};
use cellar_wire::{EventJson, ResultJson, ResultLine};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::json;

use crate::{
    http::answers,
    problem::{Answer, Problem},
    tenant::{Calls, SentCalls},
};

/// Interval of heartbeats of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Event id of the result, in the place of an event's number.
const END: &str = "end";

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The result alone, when the run has ended.
    Result,
    /// A line of JSON for each event, and the result.
    Lines,
    /// Server-sent events.
    Events,
    /// The run's id at once.
    Later,
}

impl Form {
    /// Returns the form that a request asks for.
    pub(crate) fn of(headers: &HeaderMap) -> Form {
        let has = |name: header::HeaderName, word: &str| {
            let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.any(|value| value.to_ascii_lowercase().contains(word))
        };
        if has(header::HeaderName::from_static("prefer"), "respond-async") {
            Form::Later
        } else if has(header::ACCEPT, "text/event-stream") {
            Form::Events
        } else if has(header::ACCEPT, "ndjson") {
            Form::Lines
        } else {
            Form::Result
        }
    }
}

/// Follows a run to its end.
///
/// # Errors
/// It was refused, and nothing ran.
pub(crate) async fn follow(run: RunHandle, mut reader: Reader, form: Form, calls: &Calls) -> Answer {
    let content_type = match form {
        Form::Lines => "application/x-ndjson",
        Form::Events => "text/event-stream",
        Form::Result | Form::Later => {
            let answer = result(&run).await;
            // Held until then: a client that goes away takes it along.
            drop(reader);
            return answer;
        }
    };
    let first = reader.next().await;
    if first.is_none() {
        // A run that was refused has no event: it is told with a status.
        run.result().await?;
    }
    Ok(stream(run, (reader, first), calls.clone(), form, content_type))
}

/// Waits for the result of a run, and responds with it.
async fn result(run: &RunHandle) -> Answer {
    let result = run.result().await?;
    let mut response = answers::json(StatusCode::OK, &ResultJson::from(&*result))?;
    name(&mut response, run);
    Ok(response)
}

/// Names the run in the headers of a response.
pub(crate) fn name(response: &mut Response, run: &RunHandle) {
    let headers = response.headers_mut();
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/runs/{}", run.id())) {
        headers.insert(header::LOCATION, place);
    }
    if let Ok(id) = HeaderValue::from_str(run.id()) {
        headers.insert("cellar-run", id);
    }
}

fn stream(
    run: RunHandle,
    (mut reader, first): (Reader, Option<Delivery>),
    calls: Calls,
    form: Form,
    content_type: &'static str,
) -> Response {
    let followed = run.clone();
    let body = async_stream::stream! {
        let run = followed;
        let mut next = first;
        let (mut changes, mut known) = (calls.changes(), SentCalls::default());
        loop {
            if let Some(delivery) = next.take() {
                yield Ok::<Bytes, std::io::Error>(told(&run, &delivery, form));
            }
            for news in known.news(&calls, calls.of_run(&run)) {
                yield Ok(line(form, None, &news));
            }
            tokio::select! {
                delivery = reader.next() => match delivery {
                    Some(delivery) => next = Some(delivery),
                    None => break,
                },
                _ = changes.changed() => {}
                () = tokio::time::sleep(HEARTBEAT) => yield Ok(heartbeat(form)),
            }
        }
        yield Ok(last(&run, form).await);
    };
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies that gather answers must not.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    let mut response = (StatusCode::OK, headers, Body::from_stream(body)).into_response();
    name(&mut response, &run);
    response
}

fn told(run: &RunHandle, delivery: &Delivery, form: Form) -> Bytes {
    match delivery {
        Delivery::Event(event) => line(form, Some((run, &event.seq.to_string())), &EventJson::from(&**event)),
        Delivery::Gap(from, to) => line(form, None, &json!({"type": "gap", "from": from, "to": to})),
        _ => Bytes::new(),
    }
}

async fn last(run: &RunHandle, form: Form) -> Bytes {
    match run.result().await {
        Ok(result) => line(form, Some((run, END)), &ResultLine { result: ResultJson::from(&*result) }),
        Err(error) => {
            let problem = Problem::from(error);
            line(form, Some((run, END)), &json!({"type": "error", "error": problem.json()}))
        }
    }
}

fn heartbeat(form: Form) -> Bytes {
    match form {
        Form::Events => Bytes::from_static(b":\n\n"),
        _ => Bytes::from_static(b"{\"type\":\"heartbeat\"}\n"),
    }
}

fn line(form: Form, id: Option<(&RunHandle, &str)>, value: &impl Serialize) -> Bytes {
    let json = serde_json::to_string(value).unwrap_or_default();
    Bytes::from(match (form, id) {
        (Form::Events, Some((run, place))) => format!("id: {}:{place}\ndata: {json}\n\n", run.id()),
        (Form::Events, None) => format!("data: {json}\n\n"),
        _ => json + "\n",
    })
}

/// Returns the number of the event at which a reader resumes, from `Last-Event-ID` or `after`; 0 if neither is given,
/// none if the reader has had the result.
pub(crate) fn place(run: &RunHandle, headers: &HeaderMap, after: Option<&str>) -> Result<Option<u64>, Problem> {
    let bad =
        || Problem::bad("a place in a run is the number of an event, or `RUN:NUMBER` as the stream of the run has it");
    let given = match headers.get("last-event-id") {
        Some(value) => Some(value.to_str().map_err(|_| bad())?),
        None => after,
    };
    let Some(given) = given else { return Ok(Some(0)) };
    let number = match given.split_once(':') {
        Some((id, number)) if id == run.id() => number,
        Some(_) => return Err(bad()),
        None => given,
    };
    if number == END {
        return Ok(None);
    }
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_add(1).map(Some).ok_or_else(bad)
}
