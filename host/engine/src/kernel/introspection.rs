//! Looking into a session: its names, one value, completions, help.
//!
//! The answers are the guest's, and the user's code may have a say in them (`__repr__`, a getter, a proxy), so they are
//! cut to size here and asked for under a deadline: see [`cellar_core::limits::LOOK_TIMEOUT`]. A look prints nothing and
//! calls nothing.

use cellar_core::{
    limits::{COMPLETIONS_MAX, NAMES_MAX, PREVIEW_BYTES_MAX, TABLE_FACTOR},
    mime::{MimeBundle, MimeData},
    text::prefix,
};
use cellar_tables::FRAME_TYPE;
use serde::{Deserialize, Serialize};

use crate::kernel::bindings::{mime_bundle, types};

/// A name that cells have bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// What the language calls its type.
    pub type_name: String,
    /// Length, or bytes where it is an array of numbers; `None` for what has neither.
    pub size: Option<u64>,
    /// The beginning of its text.
    pub preview: String,
}

/// Completions at a cursor. Positions count characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// Where the text begins that an item replaces.
    pub start: u32,
    /// Where it ends.
    pub end: u32,
    /// What may stand there, best first.
    pub items: Vec<Completion>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What to put in.
    pub text: String,
    /// `function`, `class`, `module`, `keyword`, `property`, `variable`.
    pub kind: String,
}

/// Whether a text is a whole cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// It is.
    Complete,
    /// It goes on, and its next line is indented with this.
    Incomplete(String),
    /// No text behind it makes a cell of it.
    Invalid,
}

/// What a host asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    Variables,
    Value(String),
    Complete(String, u32),
    Inspect(String, u32),
    IsComplete(String),
}

/// What the guest says.
#[derive(Debug)]
pub(crate) enum Answer {
    Variables(Vec<Variable>),
    Completions(Completions),
    /// For a value and for help.
    Bundle(Option<MimeBundle>),
    Completeness(Completeness),
}

fn cut(text: &str) -> String {
    prefix(text, PREVIEW_BYTES_MAX).to_owned()
}

impl Answer {
    pub(crate) fn variables(list: Vec<types::Variable>) -> Answer {
        let variable = |variable: types::Variable| Variable {
            name: cut(&variable.name),
            type_name: cut(&variable.type_name),
            size: variable.size,
            preview: cut(&variable.preview),
        };
        Answer::Variables(list.into_iter().take(NAMES_MAX).map(variable).collect())
    }

    /// `length` is that of the code, in characters: no position lies beyond.
    pub(crate) fn completions(list: types::CompletionList, length: u32) -> Answer {
        let item = |item: types::CompletionItem| Completion { text: cut(&item.text), kind: cut(&item.kind) };
        let end = list.end.min(length);
        Answer::Completions(Completions {
            start: list.start.min(end),
            end,
            items: list.items.into_iter().take(COMPLETIONS_MAX).map(item).collect(),
        })
    }

    pub(crate) fn completeness(found: types::Completeness) -> Answer {
        Answer::Completeness(match found {
            types::Completeness::Complete => Completeness::Complete,
            types::Completeness::Incomplete(indent) => Completeness::Incomplete(cut(&indent)),
            types::Completeness::Invalid => Completeness::Invalid,
        })
    }

    pub(crate) fn bundle(bundle: Option<types::MimeBundle>, bytes_max: usize) -> Result<Answer, String> {
        let bundle = bundle.map(mime_bundle);
        let table = |bundle: &MimeBundle| bundle.get(FRAME_TYPE).map_or(0, MimeData::len);
        let sizes = bundle.as_ref().map_or((0, 0), |bundle| (bundle.size_bytes(), table(bundle)));
        match sizes {
            (size, table)
                if size.saturating_sub(table) > bytes_max || table > bytes_max.saturating_mul(TABLE_FACTOR) =>
            {
                Err(format!("the answer has {size} bytes, at most {bytes_max} are allowed"))
            }
            _ => Ok(Answer::Bundle(bundle)),
        }
    }
}
