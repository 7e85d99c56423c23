//! A run's result as JSON: `{"content", "details", "isError"}`.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_core::{event::KeptText, mime::MimeData};
use cellar_results::result::{
    CellResult, Image, RunResult, TOKENS_MAX, TruncatedBy, Truncation, WINDOW_BYTES, WINDOW_LINES,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use super::event::{FailureJson, FetchJson, KeptJson, OriginJson, UsageJson, milliseconds, mime_value, status_map};

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResultJson {
    /// One text with the combined output, then the images.
    content: Vec<ContentJson>,
    details: DetailsJson,
    /// Whether a cell failed or the run was cancelled.
    is_error: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ContentJson {
    Text { text: String },
    Image(ImageJson),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ImageJson {
    /// The image file in base64.
    data: String,
    mime_type: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DetailsJson {
    cells: Vec<CellResultJson>,
    /// The language of the first cell.
    language: Option<String>,
    /// Languages in the order of their first use.
    languages: Vec<String>,
    /// What was displayed as JSON.
    json_outputs: Vec<Value>,
    images: Vec<ImageJson>,
    /// What was displayed as Markdown.
    markdown_outputs: Vec<String>,
    /// What helpers and the engine did, of all cells.
    status_events: Vec<Map<String, Value>>,
    /// What was fetched from connectors, in order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    fetch_log: Vec<FetchJson>,
    /// Where the names come from that a run with a producer has bound.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    origins: BTreeMap<String, OriginJson>,
    /// What else there is to know, in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    notice: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    meta: Option<MetaJson>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    is_error: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MetaJson {
    truncation: TruncationJson,
}

/// What was left out of the combined text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TruncationJson {
    /// The bound that was passed first: `bytes`, `lines` or `tokens`.
    truncated_by: String,
    total_bytes: u64,
    total_lines: u64,
    output_bytes: u64,
    output_lines: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    max_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    max_lines: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    max_tokens: Option<usize>,
    /// Where all of the text is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    artifact: Option<KeptJson>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CellResultJson {
    index: usize,
    title: Option<String>,
    language: String,
    code: String,
    /// `pending`, `running`, `complete` or `error`.
    status: String,
    /// Its text, without its traceback.
    output: String,
    duration_ms: Option<Number>,
    /// 0, or 1 on error; null for a cell that did not run.
    exit_code: Option<i32>,
    status_events: Vec<Map<String, Value>>,
    has_markdown: bool,
    usage: Option<UsageJson>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<FailureJson>,
    /// Values whose text says less than they have, because their printer or the result has shortened it.
    #[serde(skip_serializing_if = "is_none", default)]
    values_shortened: usize,
    /// Where all of its text is, when `output` has some of it only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    artifact: Option<KeptJson>,
}

impl From<&RunResult> for ResultJson {
    fn from(result: &RunResult) -> ResultJson {
        let text = result.shown();
        let images: Vec<ImageJson> = result.images().map(ImageJson::from).collect();
        let mut content = vec![ContentJson::Text { text: text.text }];
        // No interface of a model takes a vector image; one that could be drawn is here as a PNG.
        content
            .extend(images.iter().filter(|image| image.mime_type != "image/svg+xml").cloned().map(ContentJson::Image));
        let languages: Vec<String> =
            result.languages().into_iter().map(|language| language.code().to_owned()).collect();
        let truncation = text.truncation.map(|cut| truncation(cut, result.kept_text()));
        let details = DetailsJson {
            cells: result.cells.iter().enumerate().map(|(index, cell)| cell_result(index, cell)).collect(),
            language: languages.first().cloned(),
            languages,
            json_outputs: result.jsons().map(|text| mime_value("application/json", text)).collect(),
            images,
            markdown_outputs: result.markdowns().map(str::to_owned).collect(),
            status_events: result.cells.iter().flat_map(statuses).collect(),
            fetch_log: result.fetches().map(FetchJson::from).collect(),
            origins: result.origins.iter().map(|(name, origin)| (name.clone(), OriginJson::from(&**origin))).collect(),
            notice: notice(result, truncation.is_some()),
            meta: truncation.map(|truncation| MetaJson { truncation }),
            is_error: result.is_error.then_some(true),
        };
        ResultJson { content, details, is_error: result.is_error }
    }
}

/// Returns notices for the reader besides the text, one a line; `None` if there are none.
fn notice(result: &RunResult, is_cut: bool) -> Option<String> {
    let kept = result.kept_text().filter(|_| is_cut).map(|kept| format!("the output was cut; {}", kept.place()));
    let left_out = result.statuses_left_out;
    let statuses = (left_out > 0).then(|| format!("{left_out} status events were left out"));
    let left_out = result.fetches_left_out;
    let fetches = (left_out > 0).then(|| format!("{left_out} fetches were left out of the fetch log"));
    let smaller = result.images_smaller;
    let images = (smaller > 0).then(|| format!("{smaller} images were made smaller: models take no larger ones"));
    let notices: Vec<String> = kept.into_iter().chain(statuses).chain(fetches).chain(images).collect();
    (!notices.is_empty()).then(|| notices.join("\n"))
}

fn cell_result(index: usize, result: &CellResult) -> CellResultJson {
    CellResultJson {
        index,
        title: result.cell.title.clone(),
        language: result.cell.language.code().to_owned(),
        code: result.cell.code.to_string(),
        status: result.status.as_str().to_owned(),
        output: result.output().text,
        duration_ms: result.duration.map(milliseconds),
        exit_code: result.exit_code(),
        status_events: statuses(result).collect(),
        has_markdown: result.has_markdown(),
        usage: result.usage.map(UsageJson::from),
        error: result.failure.as_ref().map(FailureJson::from),
        values_shortened: result.values_shortened,
        artifact: result.kept.as_ref().map(KeptJson::from),
    }
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

fn statuses(result: &CellResult) -> impl Iterator<Item = Map<String, Value>> {
    result.statuses.iter().map(|status| status_map(&status.op, &status.fields))
}

impl From<Image<'_>> for ImageJson {
    fn from(image: Image<'_>) -> ImageJson {
        let data = match image.data {
            MimeData::Binary(bytes) => STANDARD.encode(bytes),
            // A vector image is text; any other text in an image's place is base64 already.
            MimeData::Text(text) if image.mime_type == "image/svg+xml" => STANDARD.encode(text),
            MimeData::Text(text) => text.clone(),
        };
        ImageJson { data, mime_type: image.mime_type.to_owned() }
    }
}

fn truncation(cut: Truncation, kept: Option<&KeptText>) -> TruncationJson {
    let is_window = cut.by != TruncatedBy::Tokens;
    TruncationJson {
        truncated_by: cut.by.as_str().to_owned(),
        total_bytes: cut.total_bytes,
        total_lines: cut.total_lines,
        output_bytes: cut.output_bytes,
        output_lines: cut.output_lines,
        max_bytes: is_window.then_some(WINDOW_BYTES),
        max_lines: is_window.then_some(WINDOW_LINES),
        max_tokens: (!is_window).then_some(TOKENS_MAX),
        artifact: kept.map(KeptJson::from),
    }
}
