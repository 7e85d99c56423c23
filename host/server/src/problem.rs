//! Refusals of requests, with a status and a stable code.

use std::{sync::Arc, time::Duration};

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use cellar_engine::{Error, artifacts::ArtifactError};
use cellar_files::FileError;
use cellar_hub::{HubError, QuotaError};
use cellar_wire::{ProblemJson, check::Invalid, faults};
use http::{HeaderValue, StatusCode, header};

/// Time after which a request that found no room may be tried again.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// A request that is refused.
#[derive(Debug)]
pub(crate) struct Problem {
    json: Box<ProblemJson>,
    status: StatusCode,
    retry_after: Option<Duration>,
}

/// Answer of a handler.
pub(crate) type Answer = Result<Response, Problem>;

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Problem {
        let title = status.canonical_reason().unwrap_or("Refused");
        Problem { json: Box::new(ProblemJson::new(status.as_u16(), title, code, detail)), status, retry_after: None }
    }

    /// Refusal of a thing that does not exist, or is another tenant's: nothing tells which.
    pub(crate) fn unknown(what: &str) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "unknown", format!("there is no such {what}"))
    }

    pub(crate) fn bad(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "request", detail)
    }

    /// A limit that was reached.
    pub(crate) fn limit(limit: &str, detail: impl Into<String>, retry_after: Duration) -> Problem {
        let mut problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "limit", detail).after(retry_after);
        problem.json.limit = Some(limit.to_owned());
        problem
    }

    /// There is no room for more, and time alone makes none.
    pub(crate) fn full(limit: &str, detail: impl Into<String>) -> Problem {
        let mut problem = Problem::new(StatusCode::INSUFFICIENT_STORAGE, "limit", detail);
        problem.json.limit = Some(limit.to_owned());
        problem
    }

    pub(crate) fn draining() -> Problem {
        let detail = "this server is about to stop, and takes no new work";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", detail).after(RETRY_SOON)
    }

    pub(crate) fn after(mut self, retry_after: Duration) -> Problem {
        self.retry_after = Some(retry_after);
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.json.hint = Some(hint.into());
        self
    }

    /// Failure of this server, which is no business of the caller: it is logged.
    pub(crate) fn internal(error: &dyn std::error::Error, code: &str) -> Problem {
        Problem::failed(StatusCode::INTERNAL_SERVER_ERROR, error, code)
    }

    fn failed(status: StatusCode, error: &dyn std::error::Error, code: &str) -> Problem {
        let mut causes = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            causes = format!("{causes}: {error}");
            cause = error.source();
        }
        tracing::error!(error = causes, "a request failed");
        Problem::new(status, code, "this server failed; its log says how")
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Time after which it may be tried again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Text of it, for a model.
    pub(crate) fn words(&self) -> String {
        let hint = self.json.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        format!("{}{hint}", self.json.detail)
    }

    /// As a line of a stream that was begun already.
    pub(crate) fn json(&self) -> &ProblemJson {
        &self.json
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.json).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, after.as_secs().max(1).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"cellar\""));
        }
        response
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Problem {
        let mut problem = Problem::new(StatusCode::BAD_REQUEST, Invalid::CODE, invalid.to_string());
        problem.json.problems = faults(&invalid);
        problem
    }
}

impl From<Arc<HubError>> for Problem {
    fn from(error: Arc<HubError>) -> Problem {
        of_hub(&error)
    }
}

impl From<HubError> for Problem {
    fn from(error: HubError) -> Problem {
        of_hub(&error)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        of_engine(&error)
    }
}

impl From<ArtifactError> for Problem {
    fn from(error: ArtifactError) -> Problem {
        of_artifact(&error)
    }
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Problem {
        let status = match error {
            FileError::NotFound => return Problem::unknown("file"),
            FileError::Access | FileError::NotPermitted | FileError::ReadOnly | FileError::NotCapable => {
                StatusCode::FORBIDDEN
            }
            FileError::Quota => StatusCode::INSUFFICIENT_STORAGE,
            FileError::Invalid | FileError::NameTooLong => StatusCode::BAD_REQUEST,
            FileError::FileTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            FileError::Io => return Problem::internal(&error, "file"),
            _ => StatusCode::CONFLICT,
        };
        Problem::new(status, "file", error.to_string())
    }
}

fn of_hub(error: &HubError) -> Problem {
    let status = match error {
        HubError::Engine(error) => return of_engine(error),
        HubError::Artifact(error) => return of_artifact(error),
        HubError::SessionUnknown(_) => return Problem::unknown("session"),
        HubError::RunUnknown(_) | HubError::RunForgotten { .. } => return Problem::unknown("run"),
        HubError::CallUnknown(_) => return Problem::unknown("call"),
        HubError::SessionOpen(_) | HubError::RunUnderWay(_) => StatusCode::CONFLICT,
        HubError::SessionsFull(_) => return Problem::limit("sessions", error.to_string(), RETRY_SOON),
        HubError::RunsFull(_) => return Problem::limit("runs", error.to_string(), RETRY_SOON),
        HubError::Quota(error) => return of_quota(error),
        _ => return Problem::internal(error, error.code()),
    };
    let problem = Problem::new(status, error.code(), error.to_string());
    match error.hint() {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

fn of_engine(error: &Error) -> Problem {
    let (status, is_soon) = match error {
        Error::SessionUnknown(_) => return Problem::unknown("session"),
        Error::StateUnknown(_) => return Problem::unknown("state"),
        Error::InputRequest(_) => return Problem::unknown("request for input"),
        Error::Request(_) | Error::SessionName(_) => (StatusCode::BAD_REQUEST, false),
        Error::Deadlock { .. }
        | Error::SessionClosed(_)
        | Error::SessionExists(_)
        | Error::SessionBusy(_)
        | Error::Snapshot(_)
        | Error::AgentDepth { .. }
        | Error::NestedProducer { .. }
        | Error::Look { .. } => (StatusCode::CONFLICT, false),
        Error::CellsWaiting { .. } => (StatusCode::TOO_MANY_REQUESTS, true),
        Error::KernelsExhausted => (StatusCode::SERVICE_UNAVAILABLE, true),
        Error::GuestMissing { guest, .. } => {
            // Its path is no business of the caller.
            let detail = format!("the guest `{guest}` is not there");
            let problem = Problem::new(StatusCode::NOT_IMPLEMENTED, error.code(), detail);
            return problem.hint("use another language, or ask whoever runs this server to build the guest");
        }
        Error::Store { .. } => {
            return Problem::failed(StatusCode::INSUFFICIENT_STORAGE, error, error.code());
        }
        _ => return Problem::internal(error, error.code()),
    };
    let problem = Problem::new(status, error.code(), error.to_string());
    if is_soon { problem.after(RETRY_SOON) } else { problem }
}

pub(crate) fn of_artifact(error: &ArtifactError) -> Problem {
    match error {
        ArtifactError::Unknown(_) | ArtifactError::Ambiguous(_) | ArtifactError::NotAnId(_) => {
            Problem::unknown("artifact")
        }
        error => Problem::internal(error, error.code()),
    }
}

/// A quota that is used up, as a client is told.
pub(crate) fn of_quota(error: &QuotaError) -> Problem {
    match error.retry_after {
        Some(wait) => Problem::limit(error.quota, error.message.clone(), wait),
        None => Problem::full(error.quota, error.message.clone())
            .hint("delete sessions, snapshots or files that are not needed"),
    }
}
