//! Queries about the session: completions, help, whether a text is a whole cell.

use cellar_engine::{Error, Language, Session, looks::Completeness};
use cellar_wire::bundle_value;
use serde_json::{Value, json};

use crate::message::{Content, Fault};

/// Returns the error reply for a query that the session cannot answer.
fn refused(error: &Error) -> Value {
    json!({"status": "error", "ename": error.code(), "evalue": error.to_string(), "traceback": []})
}

/// Answers a `complete_request`.
///
/// # Errors
/// The request is not valid.
pub(crate) async fn complete(session: &Session, language: Language, request: &Content) -> Result<Value, Fault> {
    let code = request.text("code")?;
    let found = match session.complete(language, code, request.cursor(code)?).await {
        Ok(found) => found,
        Err(error) => return Ok(refused(&error)),
    };
    let kinds: Vec<Value> = found
        .items
        .iter()
        .map(|item| json!({"start": found.start, "end": found.end, "text": item.text, "type": item.kind}))
        .collect();
    let matches: Vec<&str> = found.items.iter().map(|item| item.text.as_str()).collect();
    Ok(json!({
        "status": "ok",
        "matches": matches,
        "cursor_start": found.start,
        "cursor_end": found.end,
        "metadata": {"_jupyter_types_experimental": kinds},
    }))
}

/// Answers an `inspect_request`.
///
/// # Errors
/// The request is not valid.
pub(crate) async fn inspect(session: &Session, language: Language, request: &Content) -> Result<Value, Fault> {
    let code = request.text("code")?;
    Ok(match session.inspect(language, code, request.cursor(code)?).await {
        Ok(help) => {
            let data = help.as_ref().map(bundle_value).unwrap_or_default();
            json!({"status": "ok", "found": help.is_some(), "data": data, "metadata": {}})
        }
        Err(error) => refused(&error),
    })
}

/// Answers an `is_complete_request`.
///
/// # Errors
/// The request is not valid.
pub(crate) async fn is_complete(session: &Session, language: Language, request: &Content) -> Result<Value, Fault> {
    let code = request.text("code")?;
    if crate::magic::is_magic(code) {
        return Ok(json!({"status": "complete"}));
    }
    Ok(match session.is_complete(language, code).await {
        Ok(Completeness::Complete) => json!({"status": "complete"}),
        Ok(Completeness::Incomplete(indent)) => json!({"status": "incomplete", "indent": indent}),
        Ok(Completeness::Invalid) => json!({"status": "invalid"}),
        // A prompt that gets no answer shall not wait for more lines.
        Err(_) => json!({"status": "unknown"}),
    })
}
