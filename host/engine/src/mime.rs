//! MIME bundles: one displayed value in several representations.

use serde::{Deserialize, Serialize};

/// A table in a few records, with the types of its columns: Frictionless Data's Tabular Data Resource, as pandas has it.
pub const RESOURCE_TYPE: &str = "application/vnd.dataresource+json";

/// One representation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MimeData {
    /// For text types, `application/json` and its kin.
    Text(String),
    /// For binary types. Becomes base64 on the wire.
    Binary(Vec<u8>),
}

impl MimeData {
    /// Size in bytes.
    pub fn len(&self) -> usize {
        match self {
            MimeData::Text(text) => text.len(),
            MimeData::Binary(bytes) => bytes.len(),
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Representations of one value by MIME type, in the order in which the guest gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MimeBundle(pub Vec<(String, MimeData)>);

impl MimeBundle {
    /// The representation of this type.
    pub fn get(&self, mime_type: &str) -> Option<&MimeData> {
        self.0.iter().find(|(name, _)| name == mime_type).map(|(_, data)| data)
    }

    /// The text of this type, when it is there and is text.
    pub fn text(&self, mime_type: &str) -> Option<&str> {
        match self.get(mime_type)? {
            MimeData::Text(text) => Some(text),
            MimeData::Binary(_) => None,
        }
    }

    /// Bytes of all representations together, names included.
    pub fn size_bytes(&self) -> usize {
        self.0.iter().map(|(name, data)| name.len() + data.len()).sum()
    }
}
