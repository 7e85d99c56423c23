//! Output of a run as a model is given it, one page of each output at a time.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_core::mime::MimeBundle;
use cellar_results::result::{Block, LlmPage, Output, OutputTypes, RunResult, View, first_pages};
use schemars::JsonSchema;
use serde::Serialize;

/// What `cellar run --llm` prints.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputsJson {
    /// What the cells printed and displayed, in order, and why one failed.
    outputs: Vec<OutputJson>,
    /// Whether a cell failed or the run was cancelled.
    is_error: bool,
}

/// A page of an output.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputJson {
    /// Its number among the outputs of the run, from 0.
    output: usize,
    /// Index of its cell in the run.
    index: usize,
    #[serde(flatten)]
    page: PageJson,
}

/// What a model is given of a value at once.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PageJson {
    /// `dataframe`, `figure`, `primitive` or `exception`.
    kind: String,
    /// The file with all of a table: `artifact://` and its id.
    path: Option<String>,
    /// What a model reads; nothing when there was no room for it among the others.
    blocks: Vec<BlockJson>,
    /// Where its next page begins: a row of a table, a character of a text, from 0; null behind the last.
    next: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum BlockJson {
    Text { text: String },
    ImageUrl { image_url: ImageUrlJson },
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
struct ImageUrlJson {
    /// `data:image/png;base64,` and the image.
    url: String,
}

impl OutputsJson {
    /// The first page of each output.
    pub fn of(result: &RunResult, view: &View) -> OutputsJson {
        OutputsJson { outputs: first_outputs(result, view), is_error: result.is_error }
    }
}

/// The first page of each output.
pub fn first_outputs(result: &RunResult, view: &View) -> Vec<OutputJson> {
    let (cells, outputs): (Vec<usize>, Vec<Output>) = outputs(result).into_iter().unzip();
    let pages = first_pages(&outputs, view);
    let json = |(number, ((index, output), page))| OutputJson::new(number, index, output, page);
    cells.into_iter().zip(&outputs).zip(pages).enumerate().map(json).collect()
}

/// A page of one output, by its number; without such an output, how many there are.
pub fn output_page(result: &RunResult, number: usize, view: &View) -> Result<OutputJson, usize> {
    let outputs = outputs(result);
    let (index, output) = outputs.get(number).ok_or(outputs.len())?;
    Ok(OutputJson::new(number, *index, output, output.to_llm(view)))
}

/// A page of a value that a session was asked for.
pub fn value_page(value: &MimeBundle, view: &View) -> PageJson {
    let output = OutputTypes::default().output(value);
    PageJson::new(&output, output.to_llm(view))
}

/// The outputs of all cells, each with the index of its cell.
fn outputs(result: &RunResult) -> Vec<(usize, Output)> {
    let types = OutputTypes::default();
    let of_cell = |(index, cell): (usize, &cellar_results::result::CellResult)| {
        cell.outputs(&types).into_iter().map(move |output| (index, output)).collect::<Vec<_>>()
    };
    result.cells.iter().enumerate().flat_map(of_cell).collect()
}

impl OutputJson {
    fn new(output: usize, index: usize, of: &Output, page: LlmPage) -> OutputJson {
        OutputJson { output, index, page: PageJson::new(of, page) }
    }
}

impl PageJson {
    fn new(of: &Output, page: LlmPage) -> PageJson {
        let path = if let Output::DataFrame(table) = of { table.path.clone() } else { None };
        let blocks = page.blocks.into_iter().map(BlockJson::from).collect();
        PageJson { kind: of.kind().to_owned(), path, blocks, next: page.next }
    }
}

impl From<Block> for BlockJson {
    fn from(block: Block) -> BlockJson {
        match block {
            Block::Text(text) => BlockJson::Text { text },
            Block::Image { mime_type, data } => {
                let url = format!("data:{mime_type};base64,{}", STANDARD.encode(data));
                BlockJson::ImageUrl { image_url: ImageUrlJson { url } }
            }
        }
    }
}
