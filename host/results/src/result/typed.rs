//! Typed outputs of cells: tables, figures, texts and failures, and their pages of blocks for a model. Start with
//! [`CellResult::outputs`] and [`Output::to_llm`].

use std::{
    fmt,
    fs::File,
    io::{self, BufRead},
    sync::Arc,
};

use cellar_core::{
    mime::{MimeBundle, MimeData, RESOURCE_TYPE},
    outcome::Failure,
};
use cellar_tables::{Page, PageRequest};
use serde::Deserialize;

use super::{CellResult, RunResult};
use crate::{
    artifacts::{ARTIFACT_SCHEME, SessionArtifacts},
    pictures::{self, Fit, Fitted},
};

/// One output of a cell.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Output {
    /// A table, with the file that holds all of it.
    DataFrame(DataFrameObject),
    /// A picture, with its specification.
    Figure(FigureObject),
    /// Any text: printed text, a value, JSON, Markdown.
    Primitive(PrimitiveObject),
    /// The failure of the cell.
    Exception(ExceptionObject),
    /// An output that a handler of the host made of a display: see [`OutputTypes::register`].
    Registered(Arc<dyn TypedOutput>),
}

/// A type of output that the host adds.
pub trait TypedOutput: fmt::Debug + Send + Sync {
    /// Returns the name of the type.
    fn kind(&self) -> &str;
    /// Its blocks; see [`Output::to_llm`].
    fn to_llm(&self, view: &View) -> LlmPage;
}

/// A table that was displayed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DataFrameObject {
    /// All of it, as a Parquet file: `artifact://<id>`. `None` when it was not kept.
    pub path: Option<String>,
    /// Rows of the table.
    pub rows: u64,
    /// Number of columns, without those of the index.
    pub columns: u64,
    /// Rows that are not among the records.
    #[serde(rename = "rowsLeftOut")]
    pub rows_left_out: u64,
    /// Columns that the records have no field for.
    #[serde(rename = "columnsLeftOut")]
    pub columns_left_out: u64,
    /// The columns.
    pub schema: TableSchema,
    /// The first and the last rows, each a JSON object.
    #[serde(rename = "data")]
    pub records: Vec<serde_json::Value>,
    /// Reason why the table was not stored.
    pub notice: Option<String>,
    /// The rows that the cell's reader saw, as Markdown.
    #[serde(skip)]
    pub preview: String,
}

/// Columns of a table, those of the index first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TableSchema {
    /// Name and type of each column, as far as they are known.
    pub fields: Vec<TableField>,
    /// Names of the columns of the index.
    #[serde(rename = "primaryKey")]
    pub primary_key: Vec<String>,
}

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TableField {
    /// Name in the file.
    pub name: String,
    /// Name of the type in the library that made the table.
    pub dtype: String,
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureObject {
    /// Specification of the picture in JSON, such as a Vega-Lite specification.
    pub spec: Option<String>,
    /// MIME type and file, if the picture was drawn.
    pub image: Option<(String, Vec<u8>)>,
}

/// A text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimitiveObject {
    /// Text, as far as the result holds it.
    pub text: String,
    /// Id of the artifact with the whole text of the cell, where `text` is only a part of what was printed.
    pub kept: Option<String>,
}

/// Failure of a cell. Its traceback has the user's own frames only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceptionObject {
    /// The failure.
    pub failure: Failure,
}

/// Position and limits of one page of an output.
#[derive(Clone, Debug)]
pub struct View {
    /// Start of the page: a row of a table or a character of a text, from 0.
    pub from: u64,
    /// Maximum number of rows of a table.
    pub rows: u64,
    /// Maximum number of characters of a text, or bytes of a table's rows.
    pub characters: usize,
    /// Maximum number of characters of one value of a table.
    pub value_characters: usize,
    /// Store with the tables. Without it, only the part of a table that was displayed can be shown again.
    pub artifacts: Option<SessionArtifacts>,
}

impl Default for View {
    fn default() -> View {
        View { from: 0, rows: 50, characters: 16_384, value_characters: 500, artifacts: None }
    }
}

/// A page of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmPage {
    /// Blocks for the model.
    pub blocks: Vec<Block>,
    /// [`View::from`] of the next page, if there is one.
    pub next: Option<u64>,
}

/// A block of a model's input.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Text.
    Text(String),
    /// An image.
    Image {
        /// `image/png` and its kin.
        mime_type: String,
        /// The image's file.
        data: Vec<u8>,
    },
}

/// Limit on the total size in bytes of [`first_pages`]; the page that reaches it is still included.
pub const FIRST_PAGES_BYTES_MAX: usize = 4 << 20;

/// Returns the first page of each output. Once the limit is reached, pages are empty, and their next page is the first.
pub fn first_pages(outputs: &[Output], view: &View) -> Vec<LlmPage> {
    let view = View { from: 0, ..view.clone() };
    let mut room = FIRST_PAGES_BYTES_MAX;
    let page = |output: &Output| match room {
        0 => LlmPage { blocks: Vec::new(), next: Some(0) },
        _ => {
            let page = output.to_llm(&view);
            room = room.saturating_sub(page.blocks.iter().map(Block::bytes).sum());
            page
        }
    };
    outputs.iter().map(page).collect()
}

impl Block {
    fn bytes(&self) -> usize {
        match self {
            Block::Text(text) => text.len(),
            Block::Image { data, .. } => data.len(),
        }
    }
}

type Handler = dyn Fn(&MimeBundle) -> Option<Arc<dyn TypedOutput>> + Send + Sync;

/// Registry of output types: those of [`Output`], and those that the host adds.
#[derive(Clone, Default)]
pub struct OutputTypes {
    handlers: Vec<Arc<Handler>>,
}

impl fmt::Debug for OutputTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputTypes").field("handlers", &self.handlers.len()).finish()
    }
}

impl OutputTypes {
    /// Registers a type: a function that converts the displays that it supports to an output. The latest handler is asked
    /// first, and all handlers before the built-in types.
    pub fn register(&mut self, handler: impl Fn(&MimeBundle) -> Option<Arc<dyn TypedOutput>> + Send + Sync + 'static) {
        self.handlers.insert(0, Arc::new(handler));
    }

    /// Returns the typed output of a display, such as one that `Session::value` returned.
    pub fn output(&self, bundle: &MimeBundle) -> Output {
        if let Some(output) = self.handlers.iter().find_map(|handler| handler(bundle)) {
            return Output::Registered(output);
        }
        if let Some(table) = DataFrameObject::of(bundle) {
            return Output::DataFrame(table);
        }
        if let Some(figure) = FigureObject::of(bundle) {
            return Output::Figure(figure);
        }
        let text = bundle.visible_text().or_else(|| bundle.json()).or_else(|| bundle.text("text/plain"));
        Output::Primitive(PrimitiveObject { text: text.unwrap_or_default().to_owned(), kept: None })
    }
}

impl CellResult {
    /// Returns the output of the cell: printed texts and displays in order, and the failure last.
    pub fn outputs(&self, types: &OutputTypes) -> Vec<Output> {
        let mut outputs = Vec::new();
        let place = self.kept.as_ref().map(super::KeptText::place);
        let print = |outputs: &mut Vec<Output>, text: &super::Window| {
            let shown = text.shown(place.as_deref());
            let kept = self
                .kept
                .as_ref()
                .filter(|_| self.has_cut_value || shown.truncation.is_some())
                .map(|kept| kept.id.clone());
            if !shown.text.trim().is_empty() {
                outputs.push(Output::Primitive(PrimitiveObject { text: shown.text, kept }));
            }
        };
        for display in &self.displays {
            print(&mut outputs, &display.text_before);
            outputs.push(types.output(&display.bundle));
        }
        print(&mut outputs, &self.text);
        outputs.extend(self.failure.clone().map(|failure| Output::Exception(ExceptionObject { failure })));
        outputs
    }
}

impl RunResult {
    /// The [first pages](first_pages) of the outputs of all cells.
    pub fn to_llm(&self, types: &OutputTypes, view: &View) -> Vec<Block> {
        let outputs: Vec<Output> = self.cells.iter().flat_map(|cell| cell.outputs(types)).collect();
        let pages = first_pages(&outputs, view);
        let left_out = pages.iter().filter(|page| page.blocks.is_empty()).count();
        let more = (left_out > 0).then(|| Block::Text(format!("[{left_out} more outputs]")));
        pages.into_iter().flat_map(|page| page.blocks).chain(more).collect()
    }

    /// Returns the approximate size in memory, in bytes.
    pub fn size_bytes(&self) -> usize {
        let cell = |cell: &CellResult| {
            let texts = cell.displays.iter().map(|display| &display.text_before).chain([&cell.text]);
            let failure = cell
                .failure
                .as_ref()
                .map_or(0, |failure| failure.traceback.len().saturating_add(failure.message.len()));
            texts
                .map(super::Window::kept_bytes)
                .fold(cell.cell.code.len().saturating_add(failure), usize::saturating_add)
        };
        self.cells
            .iter()
            .map(cell)
            .chain([self.used.status_bytes])
            .fold(self.used.display_bytes.bytes(), usize::saturating_add)
    }
}

impl Output {
    /// Returns the name of the output's type.
    pub fn kind(&self) -> &str {
        match self {
            Output::DataFrame(_) => "dataframe",
            Output::Figure(_) => "figure",
            Output::Primitive(_) => "primitive",
            Output::Exception(_) => "exception",
            Output::Registered(output) => output.kind(),
        }
    }

    /// Returns a page of the output for a model: rows of a table as CSV, a part of a text, an image of a size that
    /// models take. It reads the file of a table, and a large image, so call it where blocking is acceptable.
    pub fn to_llm(&self, view: &View) -> LlmPage {
        match self {
            Output::DataFrame(table) => table.to_llm(view),
            Output::Figure(figure) => figure.to_llm(view),
            Output::Primitive(text) => text.to_llm(view),
            Output::Exception(ExceptionObject { failure }) if failure.traceback.trim().is_empty() => {
                page_of_text(&failure.summary(), view)
            }
            Output::Exception(exception) => page_of_text(exception.failure.traceback.trim_end(), view),
            Output::Registered(output) => output.to_llm(view),
        }
    }
}

impl PrimitiveObject {
    /// See [`Output::to_llm`]. Of a text that is kept whole, a page is one of that.
    pub fn to_llm(&self, view: &View) -> LlmPage {
        let kept = view.artifacts.as_ref().zip(self.kept.as_deref());
        let kept = kept.and_then(|(store, id)| page_of_file(store.read(id).ok()?, view).ok());
        kept.unwrap_or_else(|| page_of_text(&self.text, view))
    }
}

impl DataFrameObject {
    fn of(bundle: &MimeBundle) -> Option<DataFrameObject> {
        let table: DataFrameObject = serde_json::from_str(bundle.text(RESOURCE_TYPE)?).ok()?;
        let preview = bundle.markdown().or_else(|| bundle.text("text/plain")).unwrap_or_default().to_owned();
        Some(DataFrameObject { preview, ..table })
    }

    /// See [`Output::to_llm`].
    pub fn to_llm(&self, view: &View) -> LlmPage {
        let read = view.artifacts.as_ref().zip(self.path.as_deref()).map(|(store, path)| self.page(store, path, view));
        match read {
            Some(Ok(page)) => page,
            Some(Err(reason)) => {
                page_of_text(&format!("{}\n\n[its rows cannot be read: {reason}]", self.preview), view)
            }
            None => match self.notice.as_deref().filter(|_| self.path.is_none()) {
                Some(notice) => {
                    let remedy = "what is left out is shown by a part of it, such as `frame.iloc[100:200]`";
                    page_of_text(&format!("{}\n\n[{notice}; {remedy}]", self.preview), view)
                }
                None => page_of_text(&self.preview, view),
            },
        }
    }

    fn page(&self, store: &SessionArtifacts, path: &str, view: &View) -> Result<LlmPage, String> {
        let id = path.strip_prefix(ARTIFACT_SCHEME).unwrap_or(path);
        let file = store.read(id).map_err(|error| error.to_string())?;
        let value_chars = Some(view.value_characters);
        let request = PageRequest { skip: view.from, rows: view.rows.max(1), bytes: view.characters, value_chars };
        let page = Page::read(file, request).map_err(|error| error.to_string())?;
        let Page { header, text, rows, total, columns_left_out, .. } = page;
        let end = view.from.min(total).saturating_add(rows);
        let types: Vec<String> =
            self.schema.fields.iter().map(|field| format!("{} {}", field.name, field.dtype)).collect();
        let what = format!("{} × {}, {path}", counted(total, "row"), counted(self.columns, "column"));
        let types = cellar_core::text::prefix(&types.join(", "), view.characters as u64).to_owned();
        let mut blocks = vec![Block::Text(format!("DataFrame of {what}\n{types}"))];
        let more = match total.saturating_sub(end) {
            0 => String::new(),
            more => format!("[{}, from row {end}]", counted(more, "more row")),
        };
        let narrowed = match columns_left_out {
            0 => String::new(),
            count => format!("[{} on the right: select some to see them]\n", counted(count as u64, "more column")),
        };
        blocks.push(Block::Text(format!("{header}{text}{narrowed}{more}")));
        Ok(LlmPage { blocks, next: (end < total).then_some(end) })
    }
}

impl FigureObject {
    /// A picture, or what one is drawn from.
    fn of(bundle: &MimeBundle) -> Option<FigureObject> {
        let is_spec = |name: &str| name.starts_with("application/vnd.vega");
        let spec = bundle.0.iter().find(|(name, _)| is_spec(name)).and_then(|(name, _)| bundle.text(name));
        let image = bundle.image().and_then(|image| match image.data {
            MimeData::Binary(bytes) => Some((image.mime_type.to_owned(), bytes.clone())),
            // A vector image, which no model looks at, is its own specification.
            MimeData::Text(_) => None,
        });
        let spec = spec.or_else(|| image.is_none().then(|| bundle.text("image/svg+xml")).flatten()).map(str::to_owned);
        (spec.is_some() || image.is_some()).then_some(FigureObject { spec, image })
    }

    /// See [`Output::to_llm`].
    pub fn to_llm(&self, view: &View) -> LlmPage {
        match (&self.image, &self.spec) {
            (Some((mime_type, data)), _) => {
                let block = match pictures::fit(data, Fit::MODELS) {
                    Fitted::Smaller(small) => Block::Image { mime_type: small.mime_type.to_owned(), data: small.bytes },
                    Fitted::Unreadable if data.len() > Fit::MODELS.bytes => {
                        Block::Text("[an image left out: too large for models, and not to be read]".to_owned())
                    }
                    _ => Block::Image { mime_type: mime_type.clone(), data: data.clone() },
                };
                LlmPage { blocks: vec![block], next: None }
            }
            (None, spec) => page_of_text(spec.as_deref().unwrap_or_default(), view),
        }
    }
}

/// `1 row`, `2 rows`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Characters of a text in a file from [`View::from`] on. The file is read piece by piece, to its end.
fn page_of_file(file: File, view: &View) -> io::Result<LlmPage> {
    let end = view.from.saturating_add(view.characters.max(1) as u64);
    let (mut count, mut shown) = (0_u64, Vec::new());
    let mut reader = io::BufReader::new(file);
    loop {
        let piece = reader.fill_buf()?;
        if piece.is_empty() {
            break;
        }
        for byte in piece {
            // Every character is begun by a byte that continues none.
            count = count.saturating_add(u64::from(byte & 0xc0 != 0x80));
            if count > view.from && count <= end {
                shown.push(*byte);
            }
        }
        let length = piece.len();
        reader.consume(length);
    }
    let shown = String::from_utf8_lossy(&shown).into_owned();
    let more = count.saturating_sub(end);
    if more == 0 {
        return Ok(LlmPage { blocks: vec![Block::Text(shown)], next: None });
    }
    let shown = format!("{shown}\n[{}, from character {end}]", counted(more, "more character"));
    Ok(LlmPage { blocks: vec![Block::Text(shown)], next: Some(end) })
}

/// Characters of a text from [`View::from`] on.
fn page_of_text(text: &str, view: &View) -> LlmPage {
    let from = usize::try_from(view.from).unwrap_or(usize::MAX);
    let rest = text.char_indices().nth(from).map_or("", |(start, _)| &text[start..]);
    let Some((end, _)) = rest.char_indices().nth(view.characters.max(1)) else {
        return LlmPage { blocks: vec![Block::Text(rest.to_owned())], next: None };
    };
    let next = from.saturating_add(view.characters.max(1));
    let more = counted(rest[end..].chars().count() as u64, "more character");
    let shown = format!("{}\n[{more}, from character {next}]", &rest[..end]);
    LlmPage { blocks: vec![Block::Text(shown)], next: Some(next as u64) }
}

#[cfg(test)]
mod tests;
