//! The states of served sessions.

use super::*;
use crate::support::config;

/// A server that keeps states, in its store.
fn served(store: &Path) -> (tempfile::TempDir, Served) {
    let (folder, path) = config("[session]\nhistory = 10\n");
    let served = Served::start(store, &["--config", path.to_str().expect("text")]);
    (folder, served)
}

#[test]
fn a_session_goes_back_and_branches_with_its_files_over_http() {
    let store = tempfile::tempdir().expect("a folder");
    let (_folder, served) = served(store.path());
    let session = served.session(json!({}));
    let states = format!("/v1/sessions/{session}/states");
    served.run(&session, "py", "x = 1; open('f', 'w').write('one')");
    served.run(&session, "js", "globalThis.n = 5; await write('g', 'js')");
    served.run(&session, "py", "x = 2; open('f', 'w').write('two')");
    let list = served.get(&states).json();
    check_shape("states", &list);
    let numbers: Vec<(&Value, &Value)> =
        list["states"].as_array().expect("states").iter().map(|state| (&state["state"], &state["parent"])).collect();
    let expected = [(json!(1), Value::Null), (json!(2), json!(1)), (json!(3), json!(2))];
    assert_eq!(numbers, expected.iter().map(|(state, parent)| (state, parent)).collect::<Vec<_>>());

    let diff = served.get(&format!("{states}/2/diff/3")).json();
    check_shape("state-diff", &diff);
    assert_eq!(diff["files"], json!([{"path": "/workspace/f", "change": "changed"}]));
    assert_eq!(diff["names"], json!([{"language": "py", "name": "x", "change": "changed"}]));

    assert_eq!(served.post(&format!("{states}/2/back"), json!(null)).json()["state"], 2);
    assert_eq!(served.run(&session, "py", "x, open('f').read(), open('g').read()"), "(1, 'one', 'js')");
    let branch = served.post(&format!("{states}/3/branch"), json!({"session": "other"}));
    assert_eq!((branch.status, &branch.json()["session"]), (201, &json!("other")));
    assert_eq!(served.run("other", "py", "x, open('f').read()"), "(2, 'two')");
    assert_eq!(served.run("other", "js", "n"), "5");

    let change = |body: Value| served.ask("PATCH", &format!("{states}/1"), &[], body.to_string().as_bytes());
    assert_eq!(change(json!({"name": "first", "pinned": true})).json()["name"], "first");
    assert_eq!(change(json!({"name": null})).json()["pinned"], true);
    assert_eq!(change(json!({"name": "7"})).status, 400);
    assert_eq!(served.ask("DELETE", &format!("{states}/2"), &[], b"").status, 204);
    assert_eq!(served.post(&format!("{states}/2/back"), json!(null)).problem(), "unknown");
    assert_eq!(served.get(&states).json()["states"][1]["parent"], 1);
}

#[test]
fn states_outlive_a_server_that_is_killed() {
    let store = tempfile::tempdir().expect("a folder");
    let (_folder, first) = served(store.path());
    let session = first.session(json!({"session": "kept"}));
    first.run(&session, "py", "x = 1; open('f', 'w').write('one')");
    first.run(&session, "py", "x = 2; open('f', 'w').write('two')");
    let states = format!("/v1/sessions/{session}/states");
    assert_eq!(first.get(&states).json()["states"].as_array().map(Vec::len), Some(2));
    first.signal("-9");
    first.ended();
    let (_folder, second) = served(store.path());
    assert_eq!(second.post(&format!("{states}/1/back"), json!(null)).status, 200);
    assert_eq!(second.run(&session, "py", "x, open('f').read()"), "(1, 'one')");
    assert_eq!(second.get(&states).json()["current"], 3);
}

#[test]
fn a_server_keeps_no_states_unless_it_is_told_to() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    served.run(&session, "py", "x = 1");
    let refused = served.get(&format!("/v1/sessions/{session}/states"));
    assert_eq!(refused.status, 400);
    assert!(refused.json()["detail"].as_str().expect("text").contains("history"), "{}", refused.text());
}
