//! What a result shows of a displayed value.

use crate::mime::{MimeBundle, MimeData};

/// An image that a cell displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// `image/png` and its kin.
    pub mime_type: &'a str,
    /// Its file; text for a vector image, or where a cell gave base64.
    pub data: &'a MimeData,
}

impl MimeBundle {
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

    /// What a bundle adds to the text of a result: its Markdown, else its plain text unless that only repeats an
    /// image or a JSON value. A formula whose plain text only names its type is shown as it was written.
    pub fn visible_text(&self) -> Option<&str> {
        if let Some(markdown) = self.markdown() {
            return Some(markdown);
        }
        if self.image().is_some() || self.json().is_some() {
            return None;
        }
        let is_name = |text: &str| text.starts_with('<') && text.ends_with('>');
        match (self.text("text/plain"), self.text("text/latex")) {
            (Some(plain), Some(latex)) if is_name(plain) => Some(latex),
            (plain, latex) => plain.or(latex),
        }
    }

    /// Whether there is more to it than plain text.
    pub(super) fn is_structured(&self) -> bool {
        self.0.iter().any(|(mime_type, _)| mime_type != "text/plain")
    }
}
