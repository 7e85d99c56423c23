//! Requests of a tenant's process to the server: agents, rows of connectors, the remote store of artifacts.

use std::fs;

use super::{
    workers::{Two, ask, run_in, session, worker},
    *,
};
use crate::{
    guests::bridges::{Service, script},
    support::Held,
};

const TEXT: &str = r#"
secrets = ["./secret"]
[server]
isolate = "tenant"
[limits]
grace_ms = 100
[agents.task]
command = ["python3", "SCRIPTS/agent.py"]
[agents.helper]
command = ["python3", "SCRIPTS/agent.py"]
spawns = []
[connectors.lake]
kind = "files"
folder = "FOLDER/lake"
fetches.orders = { path = "orders.csv", filters = ["id >= :since"], parameters.since = { type = "integer", default = 0 } }
[connectors.feed]
kind = "command"
command = ["python3", "-c", "import json, os; print(json.dumps([{'key': os.environ['FEED_KEY'], 'n': 1}]))"]
environment = { FEED_KEY = "a-credential-of-the-feed" }
fetches.latest = {}
[tenants.red]
[tenants.blue]
config = "blue.toml"
"#;

/// Rows that take several pieces on their way.
const ROWS: usize = 40_000;

/// A server with two tenants, one of whom is granted things that the server has for him.
fn two(text: &str, folder: &Path) -> Two {
    fs::create_dir_all(folder.join("lake")).expect("a folder");
    let rows: String = (0..ROWS).map(|n| format!("{n},{}{n:08}\n", "x".repeat(60))).collect();
    fs::write(folder.join("lake/orders.csv"), format!("id,text\n{rows}")).expect("written");
    let two = Two::new(&text.replace("FOLDER", folder.to_str().expect("text")));
    let config = Path::new(&two.tenants.config).parent().expect("a folder");
    fs::write(config.join("secret"), "a-credential-of-some-length").expect("written");
    two
}

#[test]
fn an_agent_runs_cells_in_the_process_of_the_tenant_whose_cell_called_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let two = two(TEXT, folder.path());
    let (served, store) = (two.tenants.serve(), two.tenants.store.path());
    let red = session(&served, &two.red);
    let run = |code: &str| run_in(&served, &two.red, &red, code);
    assert_eq!(
        run("kept = 6\nprint(agent('run made = kept * 7; made', label='sum'), made, output('sum'))"),
        "42 42 42"
    );
    let javascript = cell("js", "print((await agent('object 41')) + 1)");
    let answer = ask(&served, &two.red, "POST", &format!("/v1/sessions/{red}/runs"), javascript);
    assert_eq!(answer.json()["content"][0]["text"], "{\"answer\":41}1", "{}", answer.text());
    // Who calls whom, and how deep, is known over there.
    assert_eq!(run("print(agent('spawn helper'))"), "{\"prompt\"");
    let refused = run("print(agent('spawn task', agent_type='helper'))");
    assert!(refused.contains("agent `task` may not be spawned by agent `helper`"), "{refused}");
    let deep = run("print(agent('deeper'))");
    assert!(deep.contains("would be nested 4 deep, at most 3 are allowed"), "{deep}");
    let malformed = run("print(agent('malformed'))");
    assert!(malformed.contains("language"), "{malformed}");
    // One that is stopped with its cell runs nothing any more.
    let mark = folder.path().join("mark");
    let held = Held::new(mark.with_extension("held"));
    let code = json!({"cells": [{"language": "py", "code": format!("agent({:?})", format!("sleep {}", mark.display())), "timeout": 1}]});
    let answer = ask(&served, &two.red, "POST", &format!("/v1/sessions/{red}/runs"), code);
    assert_eq!(answer.json()["details"]["cells"][0]["error"]["kind"], "timeout", "{}", answer.text());
    held.until_gone();
    assert!(!mark.exists(), "it outlived its cell");
    assert_eq!(run("print(agent('run kept'))"), "6");
    // What one is granted, the other is not.
    let blue = session(&served, &two.blue);
    let refused = run_in(&served, &two.blue, &blue, "try: agent('request')\nexcept Exception as error: print(error)");
    assert!(refused.contains("no agent named `task`"), "{refused}");
    assert!(worker(store, "red").is_some() && worker(store, "blue").is_some());
}

#[test]
fn the_bundled_agent_runs_cells_in_the_process_of_its_tenant() {
    let (service, folder) = (Service::start(), tempfile::tempdir().expect("a folder"));
    let model = format!("[llm]\nendpoint = \"{}\"\n[llm.tiers]\ndefault = \"medium\"\n[agents.helper]", service.1);
    let own = "[agents.task]\ncommand = [\"python3\", \"SCRIPTS/agent.py\"]\n[agents.helper]";
    let two = two(&TEXT.replace(own, &model), folder.path());
    let served = two.tenants.serve();
    let red = session(&served, &two.red);
    let steps = json!([{"eval": [{"language": "py", "code": "total = sum(rows)\ntotal"}]}, {"say": "the sum is LAST"}]);
    let code = format!("rows = [1, 2, 3]\nprint(agent({}), total)", script(&steps));
    assert_eq!(run_in(&served, &two.red, &red, &code), "the sum is 6 6");
}

#[test]
fn rows_come_from_the_server_without_its_credentials() {
    let folder = tempfile::tempdir().expect("a folder");
    let two = two(TEXT, folder.path());
    let served = two.tenants.serve();
    // Rows are dictionaries in the plain guest, and a frame in that for data.
    let opened = ask(&served, &two.red, "POST", "/v1/sessions", json!({"guest": "python"})).json();
    let red = opened["session"].as_str().expect("a name").to_owned();
    let run = |code: &str| run_in(&served, &two.red, &red, code);
    let code =
        "rows = lake.orders()\nprint(len(rows), rows[0]['id'], rows[-1]['text'][-8:], sum(row['id'] for row in rows))";
    assert_eq!(run(code), format!("{ROWS} 0 {:08} {}", ROWS - 1, ROWS * (ROWS - 1) / 2));
    assert_eq!(run(&format!("print(len(lake.orders(since={})))", ROWS - 3)), "3");
    assert_eq!(run("print(feed.latest())"), "[{'key': '***', 'n': 1}]");
    assert_eq!(run("print(sorted(connectors()))"), "['feed', 'lake']");
    let refused = run("try: lake.orders(since='x')\nexcept Exception as error: print(error)");
    assert!(refused.contains("`since` must be a whole number"), "{refused}");
    let refused = run("try: lake.orders(until=1)\nexcept Exception as error: print(error)");
    assert!(refused.contains("there is no parameter `until`"), "{refused}");
    let cells = cell("js", "const rows = await lake.orders({since: 10}); print(rows.length, rows[0].id)");
    let answer = ask(&served, &two.red, "POST", &format!("/v1/sessions/{red}/runs"), cells).json();
    assert_eq!(answer["content"][0]["text"], format!("{} 10", ROWS - 10), "{answer}");
    assert_eq!(answer["details"]["fetchLog"][0]["rowCount"], ROWS - 10, "{answer}");
    let blue = session(&served, &two.blue);
    assert_eq!(run_in(&served, &two.blue, &blue, "print(connectors())"), "{}");
}

#[test]
fn artifacts_of_a_process_that_reaches_nothing_are_kept_in_its_tenants_remote_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let remote = folder.path().join("remote");
    let text = format!("{TEXT}[artifacts]\nremote = \"file://{}\"\n", remote.display());
    let two = two(&text, folder.path());
    let (served, store) = (two.tenants.serve(), two.tenants.store.path());
    let red = session(&served, &two.red);
    // More than a piece.
    run_in(&served, &two.red, &red, "print('x' * 3_000_000)");
    let listed = ask(&served, &two.red, "GET", "/v1/artifacts", json!({})).json();
    let id = listed["artifacts"][0]["id"].as_str().expect("an id").to_owned();
    let is_it = |path: &Path| path.is_file() && path.file_name().is_some_and(|name| name == id.as_str());
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    eventually("it is sent", || found(&remote, &is_it).filter(|path| size(path) >= 3_000_000));
    // What the store has lost is fetched back.
    let own = found(&store.join(".tenants/red"), &is_it).expect("it is kept");
    eventually("it is sent and done with", || fs::remove_file(&own).is_ok().then_some(()));
    let answer = eventually("it is fetched back", || {
        let answer = ask(&served, &two.red, "GET", &format!("/v1/artifacts/{id}"), json!({}));
        (answer.status == 200).then_some(answer)
    });
    assert!(answer.body.len() >= 3_000_000 && answer.body.starts_with(b"xxx"), "{}", answer.body.len());
    assert_eq!(ask(&served, &two.blue, "GET", &format!("/v1/artifacts/{id}"), json!({})).status, 404);
}

/// The first file below a folder that is wanted.
fn found(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Option<std::path::PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter_map(|path| if path.is_dir() { found(&path, wanted) } else { wanted(&path).then_some(path) }).next()
}

#[test]
fn tenants_that_have_a_process_each_share_no_remote_store() {
    let text =
        "[server]\nisolate = \"tenant\"\n[artifacts]\nremote = \"s3://bucket/prefix\"\n[tenants.red]\n[tenants.blue]\n";
    let two = Two::new(text);
    let store = two.tenants.store.path().to_str().expect("text").to_owned();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", &store, "--config", &two.tenants.config];
    let ended = run(&mut cellar_with_guests(arguments));
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("the tenants `blue`, `red` have one together"), "{}", ended.stderr);
}
