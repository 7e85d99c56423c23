//! JSON Schema of every shape, derived from the types.

use std::fmt;

use cellar_core::audit::AuditEntry;
use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use super::{
    ArtifactJson, CollectedJson, DatasetJson, DoctorJson, EventJson, Line, OriginsJson, OutputsJson, PulledJson,
    PushedJson, ResultJson, StateDiffJson, StatesJson, StoredSessionJson, VerifiedJson, WaitingCallsJson,
    request::RunJson,
    stdio::{Answer, RequestJson},
};

/// A shape that Cellar reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Input of `cellar run`.
    Run,
    /// A line of `cellar run --events`.
    Event,
    /// Output of `cellar run --json`.
    Result,
    /// Output of `cellar run --llm`.
    Outputs,
    /// A line that a session's socket answers with.
    Line,
    /// A line that `cellar stdio` reads.
    Request,
    /// A line that `cellar stdio` writes.
    Answer,
    /// Output of `cellar doctor --json`.
    Doctor,
    /// Output of `cellar session list --json`.
    Sessions,
    /// Output of `cellar session log --json`.
    States,
    /// Output of `cellar session diff --json`.
    StateDiff,
    /// Output of `cellar artifact list --json`.
    Artifacts,
    /// Output of `cellar artifact put --json`.
    Artifact,
    /// Output of `cellar artifact gc --json`.
    Collected,
    /// Output of `cellar artifact verify --json`.
    Verified,
    /// Output of `cellar artifact push --json`.
    Pushed,
    /// Output of `cellar artifact pull --json`.
    Pulled,
    /// Output of `cellar dataset list --json` and `cellar dataset show --json`.
    Datasets,
    /// Output of `cellar dataset publish --json`.
    Dataset,
    /// Output of `cellar session origin --json`.
    Origins,
    /// Output of `cellar calls list --json`.
    Calls,
    /// A line of an audit log.
    Audit,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Shape {
    /// Every shape.
    pub const ALL: [Shape; 22] = [
        Shape::Run,
        Shape::Event,
        Shape::Result,
        Shape::Outputs,
        Shape::Line,
        Shape::Request,
        Shape::Answer,
        Shape::Doctor,
        Shape::Sessions,
        Shape::States,
        Shape::StateDiff,
        Shape::Artifacts,
        Shape::Artifact,
        Shape::Collected,
        Shape::Verified,
        Shape::Pushed,
        Shape::Pulled,
        Shape::Datasets,
        Shape::Dataset,
        Shape::Origins,
        Shape::Calls,
        Shape::Audit,
    ];

    /// Returns the name of the shape.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Run => "run",
            Shape::Event => "event",
            Shape::Result => "result",
            Shape::Outputs => "outputs",
            Shape::Line => "line",
            Shape::Request => "request",
            Shape::Answer => "answer",
            Shape::Doctor => "doctor",
            Shape::Sessions => "sessions",
            Shape::States => "states",
            Shape::StateDiff => "state-diff",
            Shape::Artifacts => "artifacts",
            Shape::Artifact => "artifact",
            Shape::Collected => "collected",
            Shape::Verified => "verified",
            Shape::Pushed => "pushed",
            Shape::Pulled => "pulled",
            Shape::Datasets => "datasets",
            Shape::Dataset => "dataset",
            Shape::Origins => "origins",
            Shape::Calls => "calls",
            Shape::Audit => "audit",
        }
    }

    /// The shape of this name.
    pub fn from_name(name: &str) -> Option<Shape> {
        Shape::ALL.into_iter().find(|shape| shape.name() == name)
    }

    /// Returns a short description of the shape.
    pub fn about(self) -> &'static str {
        match self {
            Shape::Run => "What `cellar run` takes",
            Shape::Event => "A line of `cellar run --events`",
            Shape::Result => "What `cellar run --json` prints",
            Shape::Outputs => "What `cellar run --llm` prints",
            Shape::Line => "A line that a session's socket answers with",
            Shape::Request => "A line that `cellar stdio` reads",
            Shape::Answer => "A line that `cellar stdio` writes",
            Shape::Doctor => "What `cellar doctor --json` prints",
            Shape::Sessions => "What `cellar session list --json` prints",
            Shape::States => "What `cellar session log --json` prints",
            Shape::StateDiff => "What `cellar session diff --json` prints",
            Shape::Artifacts => "What `cellar artifact list --json` prints",
            Shape::Artifact => "What `cellar artifact put --json` prints",
            Shape::Collected => "What `cellar artifact gc --json` prints",
            Shape::Verified => "What `cellar artifact verify --json` prints",
            Shape::Pushed => "What `cellar artifact push --json` prints",
            Shape::Pulled => "What `cellar artifact pull --json` prints",
            Shape::Datasets => "What `cellar dataset list --json` and `cellar dataset show --json` print",
            Shape::Dataset => "What `cellar dataset publish --json` prints",
            Shape::Origins => "What `cellar session origin --json` prints",
            Shape::Calls => "What `cellar calls list --json` prints",
            Shape::Audit => "A line of an audit log",
        }
    }

    /// Its schema, by JSON Schema 2020-12.
    pub fn schema(self) -> Schema {
        let mut schema = match self {
            Shape::Run => read::<RunJson>(),
            Shape::Request => read::<RequestJson>(),
            Shape::Answer => written::<Answer>(),
            Shape::Event => written::<EventJson>(),
            Shape::Result => written::<ResultJson>(),
            Shape::Outputs => written::<OutputsJson>(),
            Shape::Line => written::<Line>(),
            Shape::Doctor => written::<DoctorJson>(),
            Shape::Sessions => written::<Vec<StoredSessionJson>>(),
            Shape::States => written::<StatesJson>(),
            Shape::StateDiff => written::<StateDiffJson>(),
            Shape::Artifacts => written::<Vec<ArtifactJson>>(),
            Shape::Artifact => written::<ArtifactJson>(),
            Shape::Collected => written::<CollectedJson>(),
            Shape::Verified => written::<VerifiedJson>(),
            Shape::Pushed => written::<PushedJson>(),
            Shape::Pulled => written::<PulledJson>(),
            Shape::Datasets => written::<Vec<DatasetJson>>(),
            Shape::Dataset => written::<DatasetJson>(),
            Shape::Origins => written::<OriginsJson>(),
            Shape::Calls => written::<WaitingCallsJson>(),
            Shape::Audit => written::<AuditEntry>(),
        };
        // The names of types are no business of whoever reads the schema.
        schema.insert("title".to_owned(), format!("cellar {self}").into());
        schema
    }

    /// The schemas of all shapes by their names.
    pub fn all() -> serde_json::Map<String, serde_json::Value> {
        Shape::ALL.into_iter().map(|shape| (shape.to_string(), shape.schema().to_value())).collect()
    }
}

/// The schema of what is read.
fn read<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<T>()
}

/// The schema of what is written.
fn written<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use serde_json::Value;

    use super::*;

    fn fixture(path: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)).expect(path)
    }

    fn faults(shape: Shape, text: &str) -> Vec<String> {
        let value: Value = serde_json::from_str(text).expect("JSON");
        let validator = jsonschema::validator_for(&shape.schema().to_value()).expect("a schema");
        validator.iter_errors(&value).map(|error| error.to_string()).collect()
    }

    /// With `CELLAR_BLESS=1` the file is rewritten.
    #[test]
    fn the_schemas_are_those_that_are_checked_in() {
        let found = serde_json::to_string_pretty(&Shape::all()).expect("JSON") + "\n";
        if std::env::var_os("CELLAR_BLESS").is_some() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/wire/schema.json");
            fs::write(path, &found).expect("written");
        }
        assert_eq!(found, fixture("wire/schema.json"), "`make bless` accepts them");
    }

    #[test]
    fn the_samples_fit_their_schemas() {
        assert_eq!(faults(Shape::Run, &fixture("wire/run.json")), [""; 0]);
        assert_eq!(faults(Shape::Result, &fixture("wire/result.json")), [""; 0]);
        for line in fixture("wire/events.ndjson").lines() {
            assert_eq!(faults(Shape::Event, line), [""; 0], "{line}");
            assert_eq!(faults(Shape::Line, line), [""; 0], "{line}");
        }
    }

    #[test]
    fn a_schema_refuses_what_the_reader_refuses() {
        for name in [
            "20-cells-null",
            "21-cells-empty",
            "24-unknown-field",
            "31-no-language",
            "34-language-capitals",
            "35-language-unknown",
            "36-language-probe",
            "39-no-code",
            "41-code-lines",
            "44-title-number",
            "47-timeout-zero",
            "48-timeout-too-long",
            "56-reset-string",
            "59-unknown-cell-field",
            "64-too-many-cells",
        ] {
            assert_ne!(faults(Shape::Run, &fixture(&format!("malformed/{name}.json"))), [""; 0], "{name}");
        }
    }

    #[test]
    fn an_event_that_is_none_is_refused() {
        for text in [r#"{"seq":0}"#, r#"{"seq":0,"type":"odd"}"#, r#"{"seq":-1,"type":"run_finished","isError":true}"#]
        {
            assert_ne!(faults(Shape::Event, text), [""; 0], "{text}");
        }
    }
}
