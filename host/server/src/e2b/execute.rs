//! Code that a client runs in a context: one run of the hub, told as the lines that clients read.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use cellar_engine::{Cell, EventKind, Language, config::RunOptions, event::fork_lines, outcome::FailureKind};
use cellar_hub::{Delivery, OnDisconnect, RunHandle, RunRequest};
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::{Account, Call, contexts, control, dead, results, sandboxes::Sandbox};
use crate::{
    problem::{Answer, Problem},
    tenant::minted,
};

/// Interval of heartbeats of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// `POST /execute`
pub(super) async fn run(mut call: Call, sandbox: Sandbox) -> Answer {
    let object = call.object().await?;
    let text = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(Problem::bad(format!("`{name}` is a text"))),
    };
    let code = text("code")?.ok_or_else(|| Problem::bad("`code` is missing"))?;
    let (session, language) = match (text("context_id")?, text("language")?) {
        (Some(_), Some(_)) => return Err(Problem::bad("`context_id` and `language` are not given together")),
        (Some(id), None) => contexts::find(&sandbox, id)?,
        (None, Some(name)) => (sandbox.id.clone(), contexts::language(name)?),
        (None, None) => (sandbox.id.clone(), contexts::language(&sandbox.language)?),
    };
    let environment = control::environment(&object, "env_vars")?;
    let entry = call.account.tenant.session(&session).await?;
    let cells = Cells::new(language, code, &environment, entry.session.limits().timeout_max);
    let request = RunRequest {
        id: minted("run"),
        cells: cells.all,
        // The environment is what it was again, however the cell ends.
        keep_going: true,
        options: RunOptions::default(),
        is_owned: true,
        on_disconnect: OnDisconnect::Cancel(Duration::ZERO),
    };
    let run = call.account.tenant.hub.start(&session, request)?;
    follow(call.account, sandbox, run, cells.shown).await
}

/// Cells of a run, of which the client sees one.
struct Cells {
    all: Vec<Cell>,
    shown: usize,
}

impl Cells {
    /// With `environment`, cells before and behind that of the client set the variables, and set them back.
    fn new(language: Language, code: &str, environment: &[(String, String)], timeout: Duration) -> Cells {
        let cell = |code: &str| Cell { timeout: Some(timeout), ..Cell::new(language, code) };
        if environment.is_empty() {
            return Cells { all: vec![cell(code)], shown: 0 };
        }
        let variables: serde_json::Map<String, Value> =
            environment.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        // JSON writes an object of texts as both languages do.
        let variables = Value::Object(variables).to_string();
        let (before, after) = match language {
            Language::JavaScript => (JAVASCRIPT_BEFORE, JAVASCRIPT_AFTER),
            _ => (PYTHON_BEFORE, PYTHON_AFTER),
        };
        let before = before.replace("VARIABLES", &variables);
        Cells { all: vec![cell(&before), cell(code), cell(after)], shown: 1 }
    }
}

// What the environment was is kept where cells do not look. A run that was stopped before it could set it back leaves it to
// the next one.
const PYTHON_BEFORE: &str = "\
(lambda os, new: (os.__dict__.setdefault('_before_run', dict(os.environ)), os.environ.update(new), None)[-1])(\
__import__('os'), VARIABLES)";
const PYTHON_AFTER: &str = "\
(lambda os, old: (os.environ.clear(), os.environ.update(old), None)[-1])(\
__import__('os'), __import__('os').__dict__.pop('_before_run'))";
const JAVASCRIPT_BEFORE: &str = "\
void ((env, key) => { globalThis[key] ??= { ...env }; Object.assign(env, VARIABLES); })\
(process.env, Symbol.for('cellar.beforeRun'))";
const JAVASCRIPT_AFTER: &str = "\
void ((env, key) => { for (const name of Object.keys(env)) delete env[name]; Object.assign(env, globalThis[key]); \
delete globalThis[key]; })(process.env, Symbol.for('cellar.beforeRun'))";

/// Streams a run until it has ended.
async fn follow(account: Arc<Account>, sandbox: Sandbox, run: RunHandle, shown: usize) -> Answer {
    let mut reader = run.own(0);
    let first = reader.next().await;
    if first.is_none() {
        // It was refused, and that is told with a status.
        run.result().await?;
    }
    let body = async_stream::stream! {
        let mut next = first;
        loop {
            let news = match next.take() {
                Some(Delivery::Event(event)) => told(&event.kind, shown),
                _ => None,
            };
            if let Some(line) = news {
                yield Ok::<Bytes, std::io::Error>(line);
            }
            match tokio::time::timeout(HEARTBEAT, reader.next()).await {
                Ok(Some(delivery)) => next = Some(delivery),
                Ok(None) => break,
                Err(_) => yield Ok(line(&json!({ "type": "keepalive" }))),
            }
        }
        let ended = run.result().await;
        let is_there = account.sandboxes.get(&sandbox.id).is_some_and(|sandbox| !sandbox.is_paused);
        match ended {
            // The client asks what became of the sandbox when a connection breaks off.
            _ if !is_there => yield Err(std::io::Error::other(dead(Some(&sandbox.id)).words())),
            Ok(_) => yield Ok(line(&json!({ "type": "end_of_execution" }))),
            Err(error) => {
                let problem = Problem::from(error);
                let error = json!({ "type": "error", "name": "Error", "value": problem.words(), "traceback": "" });
                yield Ok(line(&error));
            }
        }
    };
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    let response: Response = (StatusCode::OK, headers, Body::from_stream(body)).into_response();
    Ok(response)
}

/// Returns the line that a client receives for an event; none for events that clients do not know.
fn told(kind: &EventKind, shown: usize) -> Option<Bytes> {
    let stream = |name: &str, text: &str| {
        let timestamp = now_nanos();
        json!({ "type": name, "text": text, "timestamp": timestamp })
    };
    let value = match kind {
        EventKind::CellStarted { index, cell } if *index == shown => {
            json!({ "type": "number_of_executions", "execution_count": cell.0 })
        }
        EventKind::Stdout { index, text } if *index == shown => stream("stdout", text),
        EventKind::Stderr { index, text } if *index == shown => stream("stderr", text),
        EventKind::Background { text, is_stderr, .. } => stream(if *is_stderr { "stderr" } else { "stdout" }, text),
        EventKind::Fork { index, fork, kind } if *index == shown => stream("stderr", &fork_lines(fork, kind)?),
        EventKind::Display { index, data, is_value, .. } if *index == shown => results::result(data, *is_value),
        EventKind::UpdateDisplay { index, data, .. } if *index == shown => results::result(data, false),
        EventKind::CellFinished { index, outcome, .. } if *index == shown => {
            let failure = outcome.failure()?;
            let name = match failure.kind {
                FailureKind::Timeout => "TimeoutError",
                FailureKind::Interrupted if failure.name.is_empty() => "KeyboardInterrupt",
                FailureKind::Memory if failure.name.is_empty() => "MemoryError",
                _ if failure.name.is_empty() => failure.kind.as_str(),
                _ => &failure.name,
            };
            let traceback = match failure.traceback.is_empty() {
                true => format!("{name}: {}", failure.message),
                false => failure.traceback.clone(),
            };
            json!({ "type": "error", "name": name, "value": failure.message, "traceback": traceback })
        }
        _ => return None,
    };
    Some(line(&value))
}

fn now_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A line of JSON in ASCII: clients decode what comes piece by piece, and break lines where Unicode does.
fn line(value: &Value) -> Bytes {
    let text = value.to_string();
    let mut line = String::with_capacity(text.len().saturating_add(1));
    for character in text.chars() {
        if character.is_ascii() && character != '\x7f' {
            line.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                line.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    line.push('\n');
    Bytes::from(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_ascii_and_say_the_same() {
        let value = json!({"text": "é\u{2028}😀\u{85}\n\"\\"});
        let bytes = line(&value);
        assert!(bytes.is_ascii() && bytes.iter().filter(|byte| **byte == b'\n').count() == 1, "{bytes:?}");
        assert_eq!(serde_json::from_slice::<Value>(&bytes).expect("JSON"), value);
    }

    #[test]
    fn variables_are_set_around_the_cell() {
        let timeout = Duration::from_secs(1);
        let cells = Cells::new(Language::Python, "x", &[("A".to_owned(), "é\"\n".to_owned())], timeout);
        assert_eq!((cells.all.len(), cells.shown, &*cells.all[1].code), (3, 1, "x"));
        assert!(cells.all[0].code.contains(r#"{"A":"é\"\n"}"#), "{}", cells.all[0].code);
        assert_eq!(Cells::new(Language::Python, "x", &[], timeout).all.len(), 1);
    }
}
