//! Runs: in a session, or in one of their own that goes with them.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use axum_core::response::IntoResponse;
use cellar_engine::Language;
use cellar_hub::{OnDisconnect, OpenRequest, RunHandle, RunRequest};
use cellar_wire::{ResultJson, RunBody, RunJson, input_body, run_body};
use http::StatusCode;

use crate::{
    gate::{Call, json},
    problem::{Answer, Problem},
    stream::{self, Form},
    tenant::{Repeat, Tenant, minted},
};

/// How long a run goes on whose reader has gone away, for it to come back.
const DISCONNECT_GRACE: Duration = Duration::from_secs(5);

/// `POST /v1/sessions/{session}/runs`
pub(crate) async fn start(mut call: Call, session: &str) -> Answer {
    let bytes = call.body().await?;
    let tenant = &call.tenant;
    let request = run_body(&bytes)?;
    let what = fingerprint(&("run", session, &bytes[..]));
    let form = Form::of(&call.headers);
    match tenant.repeat(call.key()?.as_deref(), what)? {
        Repeat::Again(run) => again(tenant, &run, form).await,
        Repeat::First(ticket) => {
            tenant.session(session).await?;
            let run = begin(tenant, session, request, form)?;
            if let Some(ticket) = ticket {
                ticket.made(run.id());
            }
            deliver(run, form).await
        }
    }
}

/// `POST /v1/eval`
pub(crate) async fn eval(mut call: Call) -> Answer {
    let bytes = call.body().await?;
    let tenant = &call.tenant;
    let request = run_body(&bytes)?;
    let what = fingerprint(&("eval", &bytes[..]));
    let form = Form::of(&call.headers);
    match tenant.repeat(call.key()?.as_deref(), what)? {
        Repeat::Again(run) => again(tenant, &run, form).await,
        Repeat::First(ticket) => {
            let open = OpenRequest { name: Some(minted("eval")), ..OpenRequest::default() };
            let session = tenant.hub.open_session(open, None).await?;
            let begun = begin(tenant, &session, request, form);
            let passing = Passing { tenant: tenant.clone(), session };
            let run = begun?;
            if let Some(ticket) = ticket {
                ticket.made(run.id());
            }
            let ended = run.clone();
            tokio::spawn(async move {
                let _ = ended.result().await;
                drop(passing);
            });
            deliver(run, form).await
        }
    }
}

/// A session that goes when this is dropped, with its kernels: its run, which is kept, has no use for them.
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

fn begin(tenant: &Tenant, session: &str, request: RunBody, form: Form) -> Result<RunHandle, Problem> {
    let is_kept = request.is_kept || form == Form::Later;
    let request = RunRequest {
        id: minted("run"),
        cells: request.cells,
        keep_going: request.keep_going,
        is_owned: form != Form::Later,
        on_disconnect: if is_kept { OnDisconnect::Continue } else { OnDisconnect::Cancel(DISCONNECT_GRACE) },
    };
    Ok(tenant.hub.start(session, request)?)
}

async fn deliver(run: RunHandle, form: Form) -> Answer {
    if form == Form::Later {
        let body: RunJson<ResultJson> = RunJson {
            run: run.id().to_owned(),
            session: run.session_name().to_owned(),
            status: "running",
            result: None,
        };
        let mut response = json(StatusCode::ACCEPTED, &body)?;
        stream::name(&mut response, &run);
        return Ok(response);
    }
    let reader = run.own(0);
    stream::follow(run, reader, form).await
}

/// The run that a request has made before, in the form that it asks for now.
async fn again(tenant: &Tenant, run: &str, form: Form) -> Answer {
    let run = tenant.hub.run(run)?;
    if form == Form::Later {
        return deliver(run, form).await;
    }
    let reader = run.rejoin(0);
    stream::follow(run, reader, form).await
}

/// `GET /v1/runs/{run}`
pub(crate) async fn show(call: Call, run: &str) -> Answer {
    let asked = call.asked(&["wait"])?;
    let wait = match asked.get("wait") {
        None => 0,
        Some(text) => {
            let seconds = text.parse::<u64>().ok().filter(|seconds| *seconds <= WAIT_SECONDS_MAX);
            seconds.ok_or_else(|| Problem::bad(format!("`wait` is a number of seconds, {WAIT_SECONDS_MAX} at most")))?
        }
    };
    let run = call.tenant.hub.run(run)?;
    let ended = match run.is_ended() {
        true => Some(run.result().await),
        false => tokio::time::timeout(Duration::from_secs(wait), run.result()).await.ok(),
    };
    let (status, result) = match ended {
        None => ("running", None),
        Some(Err(error)) => return Err(error.into()),
        Some(Ok(result)) if result.is_error => ("error", Some(ResultJson::from(&*result))),
        Some(Ok(result)) => ("complete", Some(ResultJson::from(&*result))),
    };
    let (run, session) = (run.id().to_owned(), run.session_name().to_owned());
    json(StatusCode::OK, &RunJson { run, session, status, result })
}

/// Seconds that a look at a run may wait for its end.
const WAIT_SECONDS_MAX: u64 = 60;

/// `GET /v1/runs/{run}/events`
pub(crate) async fn events(call: Call, run: &str) -> Answer {
    let asked = call.asked(&["after"])?;
    let run = call.tenant.hub.run(run)?;
    let Some(from) = stream::place(&run, &call.headers, asked.get("after").map(String::as_str))? else {
        // This tells a browser's reader not to come again.
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let form = if Form::of(&call.headers) == Form::Events { Form::Events } else { Form::Lines };
    let reader = run.rejoin(from);
    stream::follow(run, reader, form).await
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

/// What tells requests apart that carry the same key.
pub(crate) fn fingerprint(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
