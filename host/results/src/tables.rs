//! Tables that cells display, stored as Parquet files among the session's artifacts.
//!
//! A guest hands over a table as an additional representation of a displayed value: buffers of columns, which only the host
//! reads. The display's Tabular Data Resource refers to the stored table, and so does its Markdown if it shows only a part
//! of the rows. Read [`Tables::keep`] first.

use std::{fmt::Write as _, sync::Arc};

use cellar_core::{
    mime::{MimeBundle, MimeData, RESOURCE_TYPE},
    text::describe,
};
use cellar_tables::{FRAME_TYPE, PARQUET_TYPE, Table, TableError};
use serde_json::{Map, Value};

use crate::artifacts::{
    Artifact, ArtifactError, ArtifactKeys, ArtifactStore, ArtifactWriter, Description, SessionArtifacts,
};

/// Destination of a session's tables.
#[derive(Clone, Debug)]
pub struct Tables {
    session: String,
    keys: Arc<ArtifactKeys>,
    store: Option<ArtifactStore>,
}

/// Reason why a table was not stored.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error("it is text where bytes were expected")]
    Text,
}

impl Tables {
    /// Creates the destination. `store` is the session's own; without one, tables go to the temporary store.
    pub fn new(session: &str, keys: Arc<ArtifactKeys>, store: Option<ArtifactStore>) -> Tables {
        Tables { session: session.to_owned(), keys, store }
    }

    /// Returns the session's artifacts, including its tables. Blocks on the disk when it opens the temporary store for the
    /// first time.
    ///
    /// # Errors
    /// The temporary store cannot be created.
    pub fn artifacts(&self) -> Result<SessionArtifacts, ArtifactError> {
        let store = match &self.store {
            Some(store) => store.clone(),
            None => ArtifactStore::shared_temporary()?,
        };
        Ok(store.for_session(&self.session, Arc::clone(&self.keys)))
    }

    /// Stores a table that was [taken](take) from a display, and adds its location to the display, or the reason why it was
    /// not stored. Works on another thread.
    pub async fn keep(self, frame: MimeData, bundle: &mut MimeBundle) {
        let kept = match tokio::task::spawn_blocking(move || self.store(&frame)).await {
            Ok(kept) => kept.map_err(|refusal| describe(&refusal)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = &kept {
            tracing::warn!(reason, "a table was not kept");
        }
        note(bundle, kept.as_ref().map_err(String::as_str));
    }

    fn store(&self, frame: &MimeData) -> Result<Artifact, Refusal> {
        let MimeData::Binary(bytes) = frame else { return Err(Refusal::Text) };
        let table = Table::parse(bytes)?;
        let mut out = Pieces::new(self.artifacts()?.writer()?);
        let written = table.write_parquet(&mut out).map_err(Refusal::from);
        let title = format!("table of {} rows and {} columns", table.rows(), table.columns());
        out.finish(written, Description { mime_type: PARQUET_TYPE, title: Some(&title) })
    }
}

/// Adapter of an artifact's writer to [`std::io::Write`].
#[derive(Debug)]
pub struct Pieces {
    writer: ArtifactWriter,
    /// Error of the store, which the `Write` interface cannot return.
    refused: Option<ArtifactError>,
}

impl Pieces {
    /// Creates the adapter.
    pub fn new(writer: ArtifactWriter) -> Pieces {
        Pieces { writer, refused: None }
    }

    /// Finishes the artifact. `written` is the result of the library that wrote to it.
    ///
    /// # Errors
    /// The error of the store, or else the error of the library.
    pub fn finish<E: From<ArtifactError>>(
        self,
        written: Result<(), E>,
        description: Description<'_>,
    ) -> Result<Artifact, E> {
        if let Some(error) = self.refused {
            return Err(error.into());
        }
        written?;
        Ok(self.writer.finish(description)?)
    }
}

impl std::io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.writer.write(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                let message = error.to_string();
                self.refused.get_or_insert(error);
                Err(std::io::Error::other(message))
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Takes the table out of a display.
pub fn take(bundle: &mut MimeBundle) -> Option<MimeData> {
    let place = bundle.0.iter().position(|(name, _)| name == FRAME_TYPE)?;
    let (_, frame) = bundle.0.remove(place);
    // One is enough for anybody.
    bundle.0.retain(|(name, _)| name != FRAME_TYPE);
    Some(frame)
}

/// Says in the Markdown of a display why its table is not kept, if the guest has said so in its Tabular Data Resource.
pub fn tell_of_absent(bundle: &mut MimeBundle) {
    let Some(resource) = bundle.text(RESOURCE_TYPE) else { return };
    let Ok(Value::Object(resource)) = serde_json::from_str(resource) else { return };
    let Some(reason) = resource.get("notice").and_then(Value::as_str) else { return };
    if let Some(reason) = reason.strip_prefix(NOT_KEPT) {
        note_in_words(bundle, reason);
    }
}

/// Beginning of the notice of a table that is not kept.
const NOT_KEPT: &str = "not kept as a file: ";

fn note_in_words(bundle: &mut MimeBundle, reason: &str) {
    for (name, data) in &mut bundle.0 {
        if let (true, MimeData::Text(text)) = (name == "text/markdown", data)
            && is_with_footer(text)
        {
            let _ = write!(text, " ({NOT_KEPT}{reason})");
        }
    }
}

/// Returns true if the last line is no row of the table: it says how large the whole is.
fn is_with_footer(text: &str) -> bool {
    !text.ends_with('|') && text.starts_with('|')
}

/// Adds the location of the stored table to a display, or the reason why it was not stored.
fn note(bundle: &mut MimeBundle, kept: Result<&Artifact, &str>) {
    for (name, data) in &mut bundle.0 {
        let MimeData::Text(text) = data else { continue };
        match (name.as_str(), kept) {
            (RESOURCE_TYPE, _) => {
                if let Ok(mut resource) = serde_json::from_str::<Map<String, Value>>(text) {
                    describe_in(&mut resource, kept);
                    *text = Value::from(resource).to_string();
                }
            }
            ("text/markdown", Ok(artifact)) if is_with_footer(text) => {
                let _ = write!(text, ": {}", artifact.uri());
            }
            _ => {}
        }
    }
    if let Err(reason) = kept {
        note_in_words(bundle, reason);
    }
}

fn describe_in(resource: &mut Map<String, Value>, kept: Result<&Artifact, &str>) {
    match kept {
        Ok(artifact) => {
            resource.insert("path".to_owned(), artifact.uri().into());
            resource.insert("format".to_owned(), "parquet".into());
            resource.insert("mediatype".to_owned(), PARQUET_TYPE.into());
            resource.insert("bytes".to_owned(), artifact.size_bytes.into());
        }
        Err(reason) => {
            resource.insert("notice".to_owned(), format!("{NOT_KEPT}{reason}").into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifacts::ArtifactQuota;

    fn frame() -> Vec<u8> {
        let head = r#"{"rows":2,"index":{"kind":"range","name":null,"start":0,"stop":2,"step":1},"columns":
            [{"name":"a","dtype":"int16","type":{"kind":"integer","bits":16,"signed":true}}]}"#;
        let mut bytes = u32::try_from(head.len()).expect("short").to_le_bytes().to_vec();
        bytes.extend(head.as_bytes());
        bytes.extend([1, 0, 2, 0]);
        bytes
    }

    fn display(frame: MimeData) -> MimeBundle {
        let text = |name: &str, text: &str| (name.to_owned(), MimeData::Text(text.to_owned()));
        MimeBundle(vec![
            text("text/markdown", "| a |\n| --- |\n\n2 rows × 1 column"),
            text(RESOURCE_TYPE, r#"{"rows":2}"#),
            (FRAME_TYPE.to_owned(), frame),
        ])
    }

    fn kept(frame: MimeData, quota: ArtifactQuota) -> (MimeBundle, Vec<Artifact>) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = ArtifactStore::open(folder.path().join("store"), quota).expect("a store");
        let mut bundle = display(frame);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let taken = take(&mut bundle).expect("a table");
        runtime.block_on(Tables::new("s", Arc::default(), Some(store.clone())).keep(taken, &mut bundle));
        (bundle, store.list().expect("a list"))
    }

    #[test]
    fn a_table_is_an_artifact_and_its_display_says_so() {
        let (bundle, artifacts) = kept(MimeData::Binary(frame()), ArtifactQuota::default());
        let [artifact] = artifacts.as_slice() else { panic!("{artifacts:?}") };
        assert_eq!((artifact.mime_type.as_str(), artifact.sessions.as_slice()), (PARQUET_TYPE, &["s".to_owned()][..]));
        assert_eq!(artifact.title.as_deref(), Some("table of 2 rows and 1 columns"));
        let (uri, size) = (artifact.uri(), artifact.size_bytes);
        assert_eq!(bundle.text("text/markdown"), Some(format!("| a |\n| --- |\n\n2 rows × 1 column: {uri}").as_str()));
        let resource =
            format!(r#"{{"rows":2,"path":"{uri}","format":"parquet","mediatype":"{PARQUET_TYPE}","bytes":{size}}}"#);
        assert_eq!(bundle.text(RESOURCE_TYPE), Some(resource.as_str()));
        assert!(bundle.get(FRAME_TYPE).is_none());
    }

    #[test]
    fn a_display_has_one_table_and_a_note_where_rows_are_left_out() {
        let mut bundle = display(MimeData::Binary(frame()));
        bundle.0.push((FRAME_TYPE.to_owned(), MimeData::Text("another".to_owned())));
        assert_eq!(take(&mut bundle), Some(MimeData::Binary(frame())));
        assert!(bundle.get(FRAME_TYPE).is_none());
        let artifact = |store: ArtifactStore| {
            store.put("s", b"rows", Description { mime_type: PARQUET_TYPE, title: None }).expect("stored")
        };
        let folder = tempfile::tempdir().expect("a folder");
        let kept =
            artifact(ArtifactStore::open(folder.path().join("store"), ArtifactQuota::default()).expect("a store"));
        for whole in ["| a |\n| --- |\n| 1 |", "Series of 0 rows"] {
            let mut bundle = MimeBundle(vec![("text/markdown".to_owned(), MimeData::Text(whole.to_owned()))]);
            note(&mut bundle, Ok(&kept));
            assert_eq!(bundle.text("text/markdown"), Some(whole));
        }
    }

    #[test]
    fn what_cannot_be_kept_is_told() {
        let notice = |frame: MimeData, quota| {
            let (bundle, artifacts) = kept(frame, quota);
            assert!(artifacts.is_empty());
            let shown = bundle.text("text/markdown").expect("Markdown");
            assert!(shown.starts_with("| a |\n| --- |\n\n2 rows × 1 column (not kept as a file: "), "{shown}");
            bundle.text(RESOURCE_TYPE).expect("a resource").to_owned()
        };
        let quota = ArtifactQuota::default();
        let mut short = frame();
        short.pop();
        let found = notice(MimeData::Binary(short), quota);
        assert!(found.contains("not kept as a file: the table ends within column `a`"), "{found}");
        assert!(notice(MimeData::Text("lies".to_owned()), quota).contains("text where bytes were expected"));
        let small = ArtifactQuota { artifact_bytes: 10, ..quota };
        let found = notice(MimeData::Binary(frame()), small);
        assert!(found.contains("an artifact has at most 10 bytes, this one has more"), "{found}");
    }
}
