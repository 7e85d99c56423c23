//! Runs: in a session, or in one of their own, which ends with them.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use axum_core::response::IntoResponse;
use cellar_config::Config;
use cellar_engine::{Language, results::View};
use cellar_hub::{Driving, LineError, OnDisconnect, OpenRequest, RunHandle, RunRequest};
use cellar_wire::{PAGE_CHARACTERS, PAGE_ROWS, ResultJson, RunBody, RunJson, eval_body, input_body, run_body};
use http::StatusCode;
use serde_json::json;

use super::stream::{self, Form};
use crate::{
    http::{Buffered, Call, FREE_BYTES, answers},
    problem::{Answer, Problem},
    tenant::{Repeat, Tenant, fingerprint, minted},
};

/// Time for which a run goes on without its reader, so that the reader can come back.
pub(super) const DISCONNECT_GRACE: Duration = Duration::from_secs(5);

/// `POST /v1/sessions/{session}/runs`
pub(crate) async fn start(mut call: Call, session: &str) -> Answer {
    let bytes = call.body().await?;
    let tenant = &call.tenant;
    let request = run_body(&bytes)?;
    let what = fingerprint(&("run", session, &bytes[..]));
    let form = Form::of(&call.parts.headers);
    match tenant.repeat(call.key()?.as_deref(), what)? {
        Repeat::Again(run) => again(tenant, &run, form).await,
        Repeat::First(ticket) => {
            tenant.session(session).await?;
            let (run, driving) = begin(tenant, session, request, form)?;
            if let Some(ticket) = ticket {
                ticket.made(run.id());
            }
            hold(bytes, &run);
            deliver(tenant, run, Some(driving), form).await
        }
    }
}

/// `POST /v1/eval`
pub(crate) async fn eval(mut call: Call) -> Answer {
    let bytes = call.body().await?;
    let tenant = &call.tenant;
    let request = eval_body::<Config>(&bytes)?;
    let what = fingerprint(&("eval", &bytes[..]));
    let form = Form::of(&call.parts.headers);
    match tenant.repeat(call.key()?.as_deref(), what)? {
        Repeat::Again(run) => again(tenant, &run, form).await,
        Repeat::First(ticket) => {
            let answerer = tenant.calls.answerer().filter(|_| !request.tools.is_empty());
            let tools = request.tools.clone();
            let config = tenant.requested_opening(&request.grants)?.config(tenant.hub.file())?;
            let open = OpenRequest { name: Some(minted("eval")), config, tools, ..OpenRequest::default() };
            tenant.make_room("").await?;
            let session = tenant.hub.open_session(open, answerer).await?;
            let begun = begin(tenant, &session, request, form);
            let passing = Passing { tenant: tenant.clone(), session };
            let (run, driving) = begun?;
            if let Some(ticket) = ticket {
                ticket.made(run.id());
            }
            let ended = run.clone();
            tokio::spawn(async move {
                let _ = ended.result().await;
                drop((passing, bytes.lease));
            });
            deliver(tenant, run, Some(driving), form).await
        }
    }
}

/// Keeps a body on its tenant's account until the run has ended whose cells came in it.
fn hold(body: Buffered, run: &RunHandle) {
    let Buffered { bytes, lease } = body;
    if bytes.len() <= FREE_BYTES {
        return;
    }
    let ended = run.clone();
    tokio::spawn(async move {
        let _ = ended.result().await;
        drop(lease);
    });
}

/// Session that ends when this is dropped, with its kernels: its run, which is kept, does not need them.
struct Passing {
    tenant: Arc<Tenant>,
    session: String,
}

impl Drop for Passing {
    fn drop(&mut self) {
        if let Ok(entry) = self.tenant.hub.session(&self.session) {
            [Language::Python, Language::JavaScript].into_iter().for_each(|language| entry.session.reset(language));
            let _ = self.tenant.hub.close(&self.session);
        }
    }
}

fn begin(tenant: &Tenant, session: &str, request: RunBody, form: Form) -> Result<(RunHandle, Driving), Problem> {
    let is_kept = request.is_kept || form == Form::Later;
    let request = RunRequest {
        id: minted("run"),
        cells: request.cells,
        keep_going: request.keep_going,
        options: request.options,
        is_owned: form != Form::Later,
        on_disconnect: if is_kept { OnDisconnect::Continue } else { OnDisconnect::Cancel(DISCONNECT_GRACE) },
    };
    Ok(tenant.hub.begin(session, request)?)
}

/// Responds with the output of a run. For its result alone, the run is driven within this task.
async fn deliver(tenant: &Tenant, run: RunHandle, driving: Option<Driving>, form: Form) -> Answer {
    if form == Form::Later {
        return accepted(&run);
    }
    let reader = if form == Form::Result { run.own_result() } else { run.own(0) };
    if let Some(driving) = driving.filter(|_| form == Form::Result) {
        driving.await;
    }
    stream::follow(run, reader, form, &tenant.calls).await
}

/// Responds with the id of a run, which goes on.
pub(super) fn accepted(run: &RunHandle) -> Answer {
    let body: RunJson<ResultJson> = RunJson {
        run: run.id().to_owned(),
        session: run.session_name().to_owned(),
        status: "running",
        result: None,
        calls: Vec::new(),
    };
    let mut response = answers::json(StatusCode::ACCEPTED, &body)?;
    stream::name(&mut response, run);
    Ok(response)
}

/// Responds with the run that an earlier request with the same key made, in the form that this request asks for.
async fn again(tenant: &Tenant, run: &str, form: Form) -> Answer {
    let run = tenant.hub.run(run)?;
    if form == Form::Later {
        return deliver(tenant, run, None, form).await;
    }
    let reader = if form == Form::Result { run.rejoin_result() } else { run.rejoin(0) };
    stream::follow(run, reader, form, &tenant.calls).await
}

/// `GET /v1/runs/{run}`
pub(crate) async fn show(call: Call, run: &str) -> Answer {
    let asked = call.query(&["wait"])?;
    let wait = wait_seconds(asked.get("wait"))?;
    let run = call.tenant.hub.run(run)?;
    let calls = &call.tenant.calls;
    let mut changes = calls.changes();
    // It is told when the caller has something to do: there is a result, or a call to answer.
    let looked = async {
        while !run.is_ended() && calls.of_run(&run).is_empty() {
            tokio::select! {
                _ = run.result() => break,
                changed = changes.changed() => if changed.is_err() { break },
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(wait), looked).await;
    let ended = match run.is_ended() {
        true => Some(run.result().await),
        false => None,
    };
    let calls = calls.of_run(&run);
    let (status, result) = match ended {
        None => ("running", None),
        Some(Err(error)) => return Err(error.into()),
        Some(Ok(result)) if result.is_error => ("error", Some(ResultJson::from(&*result))),
        Some(Ok(result)) => ("complete", Some(ResultJson::from(&*result))),
    };
    let (run, session) = (run.id().to_owned(), run.session_name().to_owned());
    answers::json(StatusCode::OK, &RunJson { run, session, status, result, calls })
}

/// Seconds that a query may wait, at most.
const WAIT_SECONDS_MAX: u64 = 60;

/// Parses the seconds that a query is to wait.
pub(crate) fn wait_seconds(given: Option<&String>) -> Result<u64, Problem> {
    let Some(text) = given else { return Ok(0) };
    let seconds = text.parse::<u64>().ok().filter(|seconds| *seconds <= WAIT_SECONDS_MAX);
    seconds.ok_or_else(|| Problem::bad(format!("`wait` is a number of seconds, {WAIT_SECONDS_MAX} at most")))
}

/// `GET /v1/runs/{run}/outputs`
pub(crate) async fn outputs(call: Call, run: &str) -> Answer {
    pages(call, run, None).await
}

/// `GET /v1/runs/{run}/outputs/{output}`
pub(crate) async fn output(call: Call, run: &str, output: &str) -> Answer {
    pages(call, run, Some(output)).await
}

async fn pages(call: Call, run: &str, output: Option<&str>) -> Answer {
    let asked = call.query(&["from", "rows", "characters", "valueCharacters"])?;
    let number = |name: &str, range: RangeInclusive<u64>| match asked.get(name) {
        None => Ok(None),
        Some(text) => {
            let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
            let bad = || Problem::bad(format!("`{name}` is a number from {} to {}", range.start(), range.end()));
            number.map(Some).ok_or_else(bad)
        }
    };
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let usual = View::default();
    let from = number("from", 0..=u64::from(u32::MAX))?;
    let view = View {
        from: from.unwrap_or_default(),
        rows: number("rows", PAGE_ROWS)?.unwrap_or(usual.rows),
        characters: number("characters", PAGE_CHARACTERS)?.map_or(usual.characters, size),
        value_characters: number("valueCharacters", PAGE_CHARACTERS)?.map_or(usual.value_characters, size),
        ..usual
    };
    let output = match output {
        None if from.is_some() => {
            return Err(Problem::bad("pages behind the first are those of one output: `outputs/NUMBER?from=…`"));
        }
        None => None,
        Some(text) => Some(text.parse::<usize>().map_err(|_| Problem::unknown("output"))?),
    };
    let run = call.tenant.hub.run(run)?;
    if !run.is_ended() {
        let detail = "the run has not ended";
        return Err(Problem::new(StatusCode::CONFLICT, "run-under-way", detail));
    }
    let outputs = match cellar_hub::pages(run, output, view).await {
        Ok(outputs) => outputs,
        Err(LineError::Hub(error)) => return Err(error.into()),
        Err(_) => return Err(Problem::unknown("output")),
    };
    answers::json(StatusCode::OK, &json!({ "outputs": outputs }))
}

/// `GET /v1/runs/{run}/events`
pub(crate) async fn events(call: Call, run: &str) -> Answer {
    let asked = call.query(&["after"])?;
    let run = call.tenant.hub.run(run)?;
    let Some(from) = stream::place(&run, &call.parts.headers, asked.get("after").map(String::as_str))? else {
        // This tells a browser's reader not to come again.
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let form = if Form::of(&call.parts.headers) == Form::Events { Form::Events } else { Form::Lines };
    let reader = run.rejoin(from);
    stream::follow(run, reader, form, &call.tenant.calls).await
}

/// `POST /v1/runs/{run}/cancel`
pub(crate) async fn cancel(call: Call, run: &str) -> Answer {
    call.tenant.hub.run(run)?.cancel();
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /v1/runs/{run}/input`
pub(crate) async fn input(mut call: Call, run: &str) -> Answer {
    let (request, value) = input_body(&call.body().await?)?;
    let run = call.tenant.hub.run(run)?;
    match value {
        Some(value) => run.session().submit_input(&request, value)?,
        None => run.session().end_input(&request)?,
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
