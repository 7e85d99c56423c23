use std::{path::PathBuf, time::Duration};

use serde_json::json;

use super::*;
use crate::options::{Command, Program};
use cellar_engine::{CellId, bridges::Response};

fn shell(script: &str) -> Command {
    Command {
        argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
        folder: PathBuf::from("/"),
        environment: vec![("GIVEN".to_owned(), "given".to_owned())],
        inherit: vec!["CARGO_MANIFEST_DIR".to_owned()],
        timeout: Duration::from_secs(10),
    }
}

async fn run(script: &str, input: &[u8]) -> Result<String, CallError> {
    let output = command::run(&shell(script), "tool `t`", input.to_vec(), &[("EXTRA", "extra")]).await?;
    Ok(String::from_utf8(output).expect("text"))
}

async fn tool(script: &str, schema: Option<serde_json::Value>, arguments: &str) -> Result<Response, CallError> {
    let tool = Tool { program: Program::Command(shell(script)), description: String::new(), schema, confirm: None };
    Arc::new(program_tool("t", tool)).call(arguments.to_owned(), CellId(1)).await
}

fn error(kind: CallErrorKind, message: &str) -> CallError {
    CallError::new(kind, message)
}

#[tokio::test]
async fn input_goes_in_and_output_comes_out() {
    let large = vec![b'x'; 1 << 20];
    assert_eq!(run("cat", &large).await.map(|output| output.len()), Ok(1 << 20));
    assert_eq!(run("exec <&-; echo 1", &large).await, Ok("1\n".to_owned()));
}

#[tokio::test]
async fn the_environment_is_what_was_granted() {
    let output = run("env | sed 's/=.*//' | sort | tr '\\n' ' '", b"").await.expect("ran");
    let expected = ["CARGO_MANIFEST_DIR", "EXTRA", "GIVEN", "HOME", "LANG", "PATH", "PWD"];
    let surplus: Vec<_> = output.split(' ').filter(|name| !expected.contains(name) && name.len() > 1).collect();
    assert_eq!(surplus, Vec::<&str>::new(), "{output}");
    assert!(output.contains("EXTRA GIVEN "), "{output}");
}

#[tokio::test]
async fn a_failed_command_says_its_status_and_its_last_words() {
    let script = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $n >&2; done; exit 3";
    let lines: Vec<String> = (3..=12).map(|n| format!("line {n}")).collect();
    let message = format!("tool `t` failed with exit status 3:\n{}", lines.join("\n"));
    assert_eq!(run(script, b"").await, Err(error(CallErrorKind::Failed, &message)));
    assert_eq!(run("kill -9 $$", b"").await, Err(error(CallErrorKind::Failed, "tool `t` was killed by signal 9")));
}

#[tokio::test]
async fn a_command_that_is_not_there_says_so() {
    let command = Command { argv: vec!["./no-such-program".to_owned()], ..shell("") };
    let result = command::run(&command, "tool `t`", Vec::new(), &[]).await;
    let message = "tool `t` cannot be started: No such file or directory (os error 2)";
    assert_eq!(result, Err(error(CallErrorKind::Failed, message)));
}

#[tokio::test]
async fn too_much_output_stops_a_command() {
    let message = "tool `t` printed more than 16 MiB and was stopped";
    assert_eq!(run("cat /dev/zero", b"").await, Err(error(CallErrorKind::Limit, message)));
}

/// A named pipe that a command and its child hold open, and a thread that reads until nobody does.
fn held() -> (tempfile::TempDir, String, std::thread::JoinHandle<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("held");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let script = format!("exec 3>{}; echo begun >&3; sleep 1000 & sleep 1000", pipe.display());
    (folder, script, std::thread::spawn(move || std::fs::read_to_string(pipe).expect("text")))
}

#[tokio::test]
async fn a_deadline_stops_a_command_and_all_it_started() {
    let (_folder, script, reader) = held();
    let command = Command { timeout: Duration::from_secs(3), ..shell(&script) };
    let result = command::run(&command, "tool `t`", Vec::new(), &[]).await;
    assert_eq!(result, Err(error(CallErrorKind::Limit, "tool `t` did not end within 3 s and was stopped")));
    // The reader goes on for as long as a child outlives the deadline.
    assert_eq!(reader.join().expect("no panic"), "begun\n");
}

#[tokio::test]
async fn a_dropped_call_leaves_nothing_running() {
    let (_folder, script, reader) = held();
    let command = shell(&script);
    let call = command::run(&command, "tool `t`", Vec::new(), &[]);
    assert!(tokio::time::timeout(Duration::from_secs(3), call).await.is_err());
    assert_eq!(reader.join().expect("no panic"), "begun\n");
}

#[tokio::test]
async fn a_background_process_does_not_hold_up_the_answer() {
    // The command would not end within its time.
    assert_eq!(run("sleep 1000 & echo done", b"").await, Ok("done\n".to_owned()));
}

#[tokio::test]
async fn a_tool_answers_with_one_json_value() {
    assert_eq!(tool("cat", None, r#"{"a": 1.0}"#).await, Ok(Response::Json(r#"{"a":1}"#.to_owned())));
    let nothing = "tool `t` printed nothing; its result must be a JSON value on standard output";
    assert_eq!(tool("true", None, "{}").await, Err(error(CallErrorKind::Failed, nothing)));
    let debug = "tool `t` printed what is not one JSON value (expected value at line 1 column 1): \"debug: 1\"";
    assert_eq!(tool("echo debug: 1", None, "{}").await, Err(error(CallErrorKind::Failed, debug)));
    let bytes = "tool `t` printed bytes that are not UTF-8";
    assert_eq!(tool("printf '\\377'", None, "{}").await, Err(error(CallErrorKind::Failed, bytes)));
}

#[tokio::test]
async fn arguments_are_checked_before_a_tool_starts() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": false
    });
    assert!(tool("cat", Some(schema.clone()), r#"{"a": 1}"#).await.is_ok());
    let refused = tool("echo started >&2; exit 1", Some(schema), r#"{"a": "x", "b": 2}"#).await;
    let error = refused.expect_err("refused");
    assert_eq!(error.kind, CallErrorKind::Invalid);
    let faults = "`/a`: expected integer, found \"x\"; `/b`: unknown field, known are `a`";
    assert_eq!(error.message, format!("tool `t`: the arguments do not fit its schema: {faults}"));
}

#[test]
fn schemas_for_answers_must_describe_objects() {
    let fault = |text| schema::Schema::of_object(text).expect_err("refused");
    assert!(fault("{").starts_with("it is not JSON: "));
    assert_eq!(fault("[]"), "it must be a JSON object");
    assert_eq!(fault(r#"{"type": "array"}"#), "it must describe an object: `\"type\": \"object\"`");
    assert!(schema::Schema::of_object(r#"{"properties": {}}"#).is_ok());
}

#[test]
fn schemas_from_cells_are_quick_to_check() {
    let of = |schema: serde_json::Value| Schema::of_object(&schema.to_string()).map(drop);
    let shared = json!({"$ref": "#/$defs/a"});
    assert_eq!(of(json!({"properties": {"x": shared, "y": shared}, "$defs": {"a": {"type": "string"}}})), Ok(()));
    let doubling = (0..30).map(|i| {
        let next = json!({"$ref": format!("#/$defs/a{}", i + 1)});
        (format!("a{i}"), json!({"allOf": [next, next]}))
    });
    let mut definitions: serde_json::Map<_, _> = doubling.collect();
    definitions.insert("a30".to_owned(), json!(true));
    let exploding = of(json!({"$ref": "#/$defs/a0", "$defs": definitions}));
    assert_eq!(exploding, Err("it is too large with its references written out".to_owned()));
    for schema in [json!({"$ref": "#"}), json!({"$ref": "#/$defs/a", "$defs": {"a": {"items": shared}}})] {
        assert!(of(schema).is_err_and(|fault| fault.contains("leads back to itself")));
    }
    assert!(of(json!({"$ref": "file:///etc/passwd"})).is_err_and(|fault| fault.contains("leads nowhere")));
}
