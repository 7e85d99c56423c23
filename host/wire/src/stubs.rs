//! Signatures of what cells may call, for models.

use cellar_core::cell::Language;
use schemars::JsonSchema;
use serde::Serialize;

/// Text that tells a model what cells may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StubsJson {
    /// The language that it is in.
    language: &'static str,
    /// How many tools, primitives and fetches there are.
    count: usize,
    /// A `.pyi` or a `.d.ts`; where they are many, how cells search for them.
    text: String,
}

impl StubsJson {
    /// Creates the document.
    pub fn new(language: Language, count: usize, text: String) -> StubsJson {
        StubsJson { language: language.code(), count, text }
    }
}
