//! A run's result as JSON: `{"content", "details", "isError"}`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_engine::{CellResult, Image, MimeData, RunResult, Truncation, WINDOW_BYTES, WINDOW_LINES};
use serde_json::{Map, Value, json};

use super::event::{FailureJson, UsageJson, milliseconds, mime_value, status_value};

/// The result of a run.
pub(crate) fn result_json(result: &RunResult) -> Value {
    let text = result.shown();
    let images: Vec<Value> = result.images().map(image_value).collect();
    let mut content = vec![json!({"type": "text", "text": text.text})];
    content.extend(images.iter().cloned().map(|mut image| {
        if let Value::Object(image) = &mut image {
            image.shift_insert(0, "type".to_owned(), "image".into());
        }
        image
    }));
    let languages: Vec<&str> = result.languages().into_iter().map(|language| language.code()).collect();
    let cells: Vec<Value> = result.cells.iter().enumerate().map(|(index, cell)| cell_value(index, cell)).collect();
    let mut details = json!({
        "cells": cells,
        "language": languages.first(),
        "languages": languages,
        "jsonOutputs": result.jsons().map(|text| mime_value("application/json", text)).collect::<Vec<_>>(),
        "images": images,
        "markdownOutputs": result.markdowns().collect::<Vec<_>>(),
        "statusEvents": result.cells.iter().flat_map(statuses).collect::<Vec<_>>(),
    });
    if let Some(members) = details.as_object_mut() {
        if result.statuses_left_out > 0 {
            let notice = format!("{} status events were left out", result.statuses_left_out);
            members.insert("notice".to_owned(), notice.into());
        }
        if let Some(truncation) = text.truncation {
            members.insert("meta".to_owned(), json!({"truncation": truncation_value(truncation)}));
        }
        if result.is_error {
            members.insert("isError".to_owned(), true.into());
        }
    }
    json!({"content": content, "details": details, "isError": result.is_error})
}

fn cell_value(index: usize, result: &CellResult) -> Value {
    let output = result.output();
    let mut value = json!({
        "index": index,
        "title": result.cell.title,
        "language": result.cell.language.code(),
        "code": result.cell.code,
        "status": result.status.as_str(),
        "output": output.text,
        "durationMs": result.duration.map(milliseconds),
        "exitCode": result.exit_code(),
        "statusEvents": statuses(result).collect::<Vec<_>>(),
        "hasMarkdown": result.has_markdown(),
        "usage": result.usage.map(UsageJson::from),
    });
    if let (Some(members), Some(failure)) = (value.as_object_mut(), &result.failure) {
        members.insert("error".to_owned(), json!(FailureJson::from(failure)));
    }
    value
}

fn statuses(result: &CellResult) -> impl Iterator<Item = Value> {
    result.statuses.iter().map(|status| status_value(&status.op, &status.fields))
}

fn image_value(image: Image<'_>) -> Value {
    let data = match image.data {
        MimeData::Binary(bytes) => STANDARD.encode(bytes),
        // A vector image is text; any other text in an image's place is base64 already.
        MimeData::Text(text) if image.mime_type == "image/svg+xml" => STANDARD.encode(text),
        MimeData::Text(text) => text.clone(),
    };
    Value::Object(Map::from_iter([("data".to_owned(), data.into()), ("mimeType".to_owned(), image.mime_type.into())]))
}

fn truncation_value(truncation: Truncation) -> Value {
    json!({
        "truncatedBy": truncation.by.as_str(),
        "totalBytes": truncation.total_bytes,
        "totalLines": truncation.total_lines,
        "outputBytes": truncation.output_bytes,
        "outputLines": truncation.output_lines,
        "maxBytes": WINDOW_BYTES,
        "maxLines": WINDOW_LINES,
    })
}
