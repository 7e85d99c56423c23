use std::{fs, path::Path};

use cellar_engine::{
    GuestName, Language,
    bridges::{CallError, CallErrorKind},
    files::MountError,
};
use cellar_isolation::IsolationError;
use cellar_packages::PackageError;

use super::*;

fn path() -> PathBuf {
    PathBuf::from("/guests/python")
}

fn not_found() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "not there")
}

/// One error of each kind, in the order of the codes.
fn errors() -> Vec<CliError> {
    let text = |text: &str| text.to_owned();
    let language = Language::Python;
    let engine = [
        Error::AgentDepth { depth: 4, max: 3 },
        Error::NestedProducer { producer: text("notebooks/a.py") },
        Error::Bake { name: text("python"), doing: text("compiling"), source: not_found().into() },
        Error::Call(CallError::new(CallErrorKind::Denied, "no language model is granted")),
        Error::CellsWaiting { language, count: 256 },
        Error::Deadlock { language, bridge: "agent", cell: 3 },
        Error::Engine(not_found().into()),
        Error::GuestBroken { path: path(), source: not_found().into() },
        Error::GuestImport { path: path(), import: text("wasi:cli/environment") },
        Error::GuestMissing { guest: GuestName::PythonData, path: path() },
        Error::GuestVersion { path: path(), found: text("0.0.9"), wanted: text("0.12.0") },
        Error::GuestsUnknown,
        Error::InputRequest(text("r-1")),
        Error::Kernel { language, source: not_found().into() },
        Error::KernelsExhausted,
        Error::Mount(MountError::Open { host: path(), guest: text("/data"), source: not_found() }),
        Error::NotBaked { name: text("python"), reason: text("wasmtime changed") },
        Error::Request(text("a run has no cells")),
        Error::SessionClosed(text("s-1")),
        Error::Threads { language, count: 2 },
        Error::Workspace(not_found()),
    ];
    let invalid = Invalid { what: text("the run"), problems: vec![text("$: expected an object")], more: 0 };
    let refused = Refusal { code: text("invalid"), message: text("the run is not valid"), hint: None };
    let own = [
        CliError::Invalid(invalid),
        CliError::Refused(refused),
        CliError::usage("cannot set `A`", "say --env NAME=VALUE"),
        CliError::Read { path: path(), source: not_found() },
        CliError::Save { path: path(), source: not_found() },
        CliError::Output(not_found()),
        CliError::Socket { path: path(), source: not_found() },
        CliError::Folder { what: "cache", flag: "--cache" },
        CliError::BrokeOff,
        CliError::Serve(ServeError::Listen { address: ([127, 0, 0, 1], 8700).into(), source: not_found() }),
        CliError::Serve(ServeError::Confine(ConfineError::Layer(IsolationError::Missing("landlock")))),
        CliError::Kernel(KernelError::Bind { address: text("127.0.0.1:8701"), source: not_found() }),
        CliError::Token(TokenError::Unknown(text("4k2v"))),
        CliError::Package(PackageError::Unknown { name: text("npm:lodash"), folder: path() }),
        CliError::Package(PackageError::Outdated {
            name: text("pydantic"),
            version: text("1.10.26"),
            newest: text("2.12.5"),
        }),
        CliError::Package(PackageError::Native { name: text("numpy"), found: text("numpy-2-cp313.whl") }),
        CliError::Start(not_found()),
    ];
    let artifact = [
        ArtifactError::Ambiguous(text("ba7816")),
        ArtifactError::Io { doing: "open", path: path(), source: not_found() },
        ArtifactError::NotAnId(text("abc")),
        ArtifactError::Damaged(text("ba7816bf8f01cfea414140de5dae2223")),
        ArtifactError::NoRemote,
        ArtifactError::Remote { doing: "reach", source: not_found() },
        ArtifactError::TooLarge { max: 100 },
        ArtifactError::Unknown(text("ba7816")),
    ];
    let own = artifact.into_iter().map(CliError::Artifact).chain(own);
    engine.into_iter().map(CliError::Engine).chain(own).collect()
}

/// With `CELLAR_BLESS=1` the table is rewritten.
#[test]
fn every_error_has_its_line_in_the_table() {
    let line = |error: CliError| {
        let message = error.to_string().replace('\n', "\n        ");
        let hint = error.hint().map(|hint| format!("        hint: {hint}\n")).unwrap_or_default();
        format!("{} (exit {})\n        {message}\n{hint}", error.code(), error.exit_code())
    };
    let table: String = errors().into_iter().map(line).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/errors.txt");
    if std::env::var_os("CELLAR_BLESS").is_some() {
        fs::write(&path, &table).expect("written");
    }
    assert_eq!(table, fs::read_to_string(&path).unwrap_or_default());
}

#[test]
fn a_message_never_repeats_its_cause() {
    for error in errors() {
        let Some(cause) = error.source() else { continue };
        assert!(!error.to_string().contains(&cause.to_string()), "{error}");
    }
}
