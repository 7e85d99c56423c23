//! Queries about a session: its names, one value, completions, help.
//!
//! The guest answers them, and user code can influence the answers (`__repr__`, a getter, a proxy), so they are cut to size here, and
//! queries run under a deadline: see [`cellar_core::limits::LOOK_TIMEOUT`]. A query prints nothing and calls nothing.

use cellar_core::{
    limits::{COMPLETIONS_MAX, NAMES_MAX, PREVIEW_BYTES_MAX, TABLE_FACTOR},
    looks::{Completeness, Completion, Completions, Variable},
    mime::{MimeBundle, MimeData},
    text::prefix,
};
use cellar_tables::FRAME_TYPE;
use serde::{Deserialize, Serialize};

use super::bindings::{mime_bundle, types};

/// Query that the host sends to the guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    Variables,
    Value(String),
    Complete(String, u32),
    Inspect(String, u32),
    IsComplete(String),
}

/// Guest's answer to a [`Question`], cut to size.
#[derive(Debug)]
pub(crate) enum Answer {
    Variables(Vec<Variable>),
    Completions(Completions),
    /// Answer to [`Question::Value`] and to [`Question::Inspect`].
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
