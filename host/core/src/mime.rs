//! MIME bundles: one displayed value in several representations.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Characters that a result shows of the print of a value.
pub const VALUE_CHARACTERS_MAX: usize = 4_000;

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

    /// The image of a bundle: a raster one where there is one.
    pub fn image(&self) -> Option<Image<'_>> {
        let images = || self.0.iter().filter(|(mime_type, _)| mime_type.starts_with("image/"));
        let (mime_type, data) = images().find(|(mime_type, _)| mime_type != "image/svg+xml").or(images().next())?;
        Some(Image { mime_type, data })
    }

    /// The JSON text of a bundle. Of the types derived from JSON only those count that no image stands for.
    pub fn json(&self) -> Option<&str> {
        self.text("application/json").or_else(|| {
            let is_derived = |name: &str| name.starts_with("application/") && name.ends_with("+json");
            let (name, _) = self.0.iter().find(|(name, _)| is_derived(name))?;
            self.image().is_none().then(|| self.text(name)).flatten()
        })
    }

    /// The Markdown of a bundle.
    pub fn markdown(&self) -> Option<&str> {
        self.text("text/markdown")
    }

    /// What a bundle adds to the text of a result: its Markdown, else the value as its language prints it, unless an
    /// image stands for it, or that print only names a type and JSON says more. A formula whose plain text only names
    /// its type is shown as it was written.
    pub fn visible_text(&self) -> Option<&str> {
        if let Some(markdown) = self.markdown() {
            return Some(markdown);
        }
        if self.image().is_some() {
            return None;
        }
        // `<Chart object>` only names a type, and says less than what else there is.
        let is_name = |text: &&str| text.starts_with('<') && text.ends_with('>');
        let plain = self.text("text/plain");
        match plain.filter(is_name) {
            Some(_) if self.json().is_some() => None,
            Some(name) => self.text("text/latex").or(Some(name)),
            None => plain.or(self.text("text/latex")).or_else(|| self.only_text()),
        }
    }

    /// The text of a bundle that has nothing else for a reader of texts: HTML, CSV, whatever it is, as it was written.
    fn only_text(&self) -> Option<&str> {
        let (name, _) = self.0.iter().find(|(name, _)| name.starts_with("text/"))?;
        self.json().is_none().then(|| self.text(name)).flatten()
    }

    /// [`visible_text`](MimeBundle::visible_text) as a result shows it: of a value's print the first
    /// [`VALUE_CHARACTERS_MAX`] characters, and how many more there are. Markdown is written to be read, and shown whole.
    pub fn shown_text(&self) -> Option<Cow<'_, str>> {
        let text = self.visible_text()?;
        if self.markdown().is_some() {
            return Some(text.into());
        }
        Some(match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
            None => text.into(),
            Some((end, _)) => {
                let more = text[end..].chars().count();
                format!("{}… ({more} more characters of this value are not shown)", &text[..end]).into()
            }
        })
    }

    /// Whether there is more to it than plain text.
    pub fn is_structured(&self) -> bool {
        self.0.iter().any(|(mime_type, _)| mime_type != "text/plain")
    }
}

/// An image that a cell displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// `image/png` and its kin.
    pub mime_type: &'a str,
    /// Its file; text for a vector image, or where a cell gave base64.
    pub data: &'a MimeData,
}
