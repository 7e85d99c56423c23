//! `cellar stdio`, driven by a client in another language, and by lines that are none.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::{cellar, cellar_with_guests, root};

/// Plays one case of `fixtures/wire/client.py`.
fn check(case: &str) {
    let cellar = cellar_with_guests(["--version"]);
    let mut python = Command::new("python3");
    python.arg(root().join("fixtures/wire/client.py")).arg(cellar.get_program()).arg(case).current_dir(root());
    python.envs(cellar.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("CELLAR_SESSION_SOCKET");
    let output = python.output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&format!("ok {case}")), "{said}");
}

#[test]
fn runs_and_events() {
    check("runs_and_events");
}

#[test]
fn runs_at_once_in_several_sessions() {
    check("runs_at_once_in_several_sessions");
}

#[test]
fn tools_of_the_caller() {
    check("tools_of_the_caller");
}

#[test]
fn a_cancelled_call() {
    check("a_cancelled_call");
}

#[test]
fn input() {
    check("input");
}

#[test]
fn cancel_reset_and_close() {
    check("cancel_reset_and_close");
}

#[test]
fn grants() {
    check("grants");
}

#[test]
fn a_caller_that_does_not_read() {
    check("a_caller_that_does_not_read");
}

#[test]
fn the_end_of_the_input() {
    check("the_end_of_the_input");
}

/// Each line of the fixture says what is sent and what must come back. A message may be given by its beginning, with …
#[test]
fn lines_that_are_refused_are_named_with_their_faults() {
    let cases = std::fs::read_to_string(root().join("fixtures/wire/refusals.ndjson")).expect("the fixture");
    let mut process = cellar(["stdio"]).stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("starts");
    let mut input = process.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(process.stdout.take().expect("a pipe"))
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON"));
    assert_eq!(answers.next().expect("hello")["type"], "hello");
    for (number, case) in (1_u64..).zip(cases.lines()) {
        let case: Value = serde_json::from_str(case).expect("a case");
        writeln!(input, "{}", case["send"].as_str().expect("a line")).expect("reads");
        let answer = answers.next().expect("an answer");
        let at = format!("line {number}: {answer}");
        assert_eq!(
            (&answer["type"], &answer["line"], &answer["id"]),
            (&"error".into(), &number.into(), &case["id"]),
            "{at}"
        );
        assert_eq!(answer["error"]["code"], case["code"], "{at}");
        let (found, expected) = (answer["error"]["message"].as_str(), case["message"].as_str().expect("a message"));
        let found = found.expect("a message");
        match expected.strip_suffix('…') {
            Some(start) => assert!(found.starts_with(start), "{at}"),
            None => assert_eq!(found, expected, "{at}"),
        }
    }
    drop(input);
    assert!(process.wait().expect("ends").success());
}
