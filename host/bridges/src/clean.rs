//! Answers, errors and descriptions of tools on their way to a cell, from which credentials are taken.

use cellar_engine::bridges::{CallError, Response, ToolSpec};
use cellar_secrets::{hide, hide_bytes, hide_json, hide_text};

/// The answer of a call without credentials. Costs one pass over it.
pub(crate) fn clean(result: Result<Response, CallError>) -> Result<Response, CallError> {
    // THREAT: T08
    match result {
        Ok(Response::Json(text)) => Ok(Response::Json(hide_json(text))),
        Ok(Response::Text(text)) => Ok(Response::Text(hide_text(text))),
        Ok(Response::Http(mut response)) => {
            response.url = hide_text(response.url);
            for (name, value) in &mut response.headers {
                *name = hide_text(std::mem::take(name));
                // Characters stand for bytes.
                *value = hide_text(std::mem::take(value));
            }
            response.body = hide_bytes(response.body);
            Ok(Response::Http(response))
        }
        // Rows are searched as they come from their source.
        Ok(Response::Table(table)) => Ok(Response::Table(table)),
        // Sessions answer so themselves, and no bridge does.
        Ok(
            response @ (Response::Lent(_)
            | Response::Disk(_)
            | Response::Written(_)
            | Response::Dataset(_)
            | Response::Process(_)
            | Response::Channel(_)
            | Response::Rows(_)
            | Response::Done),
        ) => Ok(response),
        Err(error) => Err(clean_error(error)),
    }
}

/// An error without credentials.
pub(crate) fn clean_error(error: CallError) -> CallError {
    CallError { message: hide(&error.message).into_owned(), ..error }
}

/// The description of a tool without credentials.
pub(crate) fn clean_tool(spec: ToolSpec) -> ToolSpec {
    ToolSpec {
        name: hide_text(spec.name),
        description: hide_text(spec.description),
        schema: spec.schema.map(hide_json),
    }
}

#[cfg(test)]
mod tests {
    use cellar_engine::bridges::{CallErrorKind, HttpResponse};
    use cellar_secrets::learn;

    use super::*;

    #[test]
    fn answers_and_errors_are_cleaned() {
        learn("only-known-to-this-test");
        let headers = vec![("x-only-known-to-this-test".to_owned(), "only-known-to-this-test".to_owned())];
        let body = b"\xff only-known-to-this-test \xfe".to_vec();
        let url = "https://a/?only-known-to-this-test".to_owned();
        let answer = clean(Ok(Response::Http(HttpResponse { status: 200, url, headers, body })));
        let headers = vec![("x-***".to_owned(), "***".to_owned())];
        let body = b"\xff *** \xfe".to_vec();
        let url = "https://a/?***".to_owned();
        assert_eq!(answer, Ok(Response::Http(HttpResponse { status: 200, url, headers, body })));
        let error = CallError::new(CallErrorKind::Failed, "said only-known-to-this-test");
        assert_eq!(clean(Err(error)).expect_err("an error").message, "said ***");
    }
}
