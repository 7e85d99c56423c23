//! Agents: what is kept of them, who may call whom, services, and their end with the cell that called.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    Held, cellar, cellar_with_guests, config, result_of, result_of_run, root, run, run_with_input, text,
};

const TASK: &str = "[agents.task]\ncommand = [\"python3\", \"SCRIPTS/agent.py\"]\n";

/// Runs cells with the agents of a configuration, and returns the result.
fn result_with(agents: &str, language: &str, cells: &[&str]) -> Value {
    let (_folder, path) = config(agents);
    result_of(language, cells, &["--config", path.to_str().expect("text")])
}

fn text_with(agents: &str, language: &str, cells: &[&str]) -> String {
    text(&result_with(agents, language, cells)).to_owned()
}

fn message(result: &Value) -> &str {
    let cells = result["details"]["cells"].as_array().expect("cells");
    cells.last().expect("a cell")["error"]["message"].as_str().unwrap_or_else(|| panic!("no failure: {result}"))
}

#[test]
fn what_agents_say_is_kept_under_their_labels() {
    let python = "agent('run 6 * 7', label='sum'); agent('run 1', label='sum'); agent('run 6 * 7', label='sum')\n\
                  print(output('sum'), tool.read(path='agent://sum-2'), *output('sum', 'sum-3'))";
    let result = result_with(TASK, "py", &[python]);
    assert_eq!(text(&result), "42 1 42 42");
    let told: Vec<&Value> = result["details"]["statusEvents"].as_array().expect("events").iter().collect();
    let told: Vec<&&Value> = told.iter().filter(|status| status["op"] == "agent").collect();
    let ids: Vec<&Value> = told.iter().map(|status| &status["id"]).collect();
    assert_eq!(ids, ["agent://sum", "agent://sum-2", "agent://sum-3"]);
    assert_eq!((&told[0]["agent_type"], &told[0]["bytes"]), (&json!("task"), &json!(2)));
    let javascript = "await agent('object 1', {label: 'found it'}); print(await output('found it'))";
    assert_eq!(text_with(TASK, "js", &[javascript]), "{\"answer\":1}");
    let unknown = result_with(TASK, "py", &["output('nobody')"]);
    assert!(message(&unknown).contains("no artifact `agent://nobody` is stored"), "{}", message(&unknown));
}

#[test]
fn what_an_agent_without_a_label_says_is_kept_under_its_type() {
    let said = ["agent('run 6 * 7')", "agent('run 6 * 8')", "print(output('task'), output('task-2'))"];
    let result = result_with(TASK, "py", &said);
    assert_eq!(result["isError"], false, "{result}");
    assert!(result["content"].to_string().contains("42 48"), "{result}");
    let statuses = result["details"]["statusEvents"].as_array().expect("events");
    let ids: Vec<_> = statuses.iter().filter(|status| status["op"] == "agent").map(|status| &status["id"]).collect();
    assert_eq!(ids, ["agent://task", "agent://task-2"]);
}

#[test]
fn what_agents_said_outlives_the_run_in_the_store() {
    let (folder, path) = config(TASK);
    let store = folder.path().join("store");
    let mut command = cellar_with_guests(["eval", "-l", "py", "agent('run 6 * 7', label='sum')", "--session", "work"]);
    let ended = run(command.arg("--store").arg(&store).arg("--config").arg(&path));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let mut command = cellar(["artifact", "get", "agent://sum", "-", "--session", "work", "--store"]);
    let ended = run(command.arg(&store));
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "42"), "{}", ended.stderr);
    let listed = run(cellar(["artifact", "list", "--store"]).arg(&store));
    assert!(listed.stdout.contains("agent://sum"), "{}", listed.stdout);
    let mut again = cellar_with_guests(["eval", "-l", "js", "await output('sum')", "--session", "work", "--store"]);
    assert_eq!(run(again.arg(&store)).stdout.trim(), "42");
}

#[test]
fn an_agent_spawns_what_its_policy_allows() {
    let agents = format!(
        "{TASK}spawns = [\"task\", \"helper\"]\n\
         [agents.helper]\ncommand = [\"python3\", \"SCRIPTS/agent.py\"]\nspawns = []\n\
         [agents.top]\ncommand = [\"python3\", \"SCRIPTS/agent.py\"]\ndepth = 1\nmodel = \"large\"\n\
         [session]\nspawns = [\"task\", \"top\", \"helper\"]\n"
    );
    let check = |prompt: &str, agent_type: &str, expected: &str| {
        let cell = format!("print(agent({prompt:?}, agent_type={agent_type:?}))");
        assert_eq!(text_with(&agents, "py", &[&cell]), expected);
    };
    check("spawn helper", "task", "{\"prompt\"");
    check(
        "spawn task",
        "helper",
        "agent `task` may not be spawned by agent `helper`: the policy allows no agent (spawns under [agents.helper] in cellar.toml)",
    );
    check(
        "spawn top",
        "task",
        "agent `top` would be nested 2 deep, at most 1 by its policy (depth under [agents.top] in cellar.toml)",
    );
    let only_task = format!("{TASK}[agents.other]\nurl = \"http://127.0.0.1:9/\"\n[session]\nspawns = [\"task\"]\n");
    let refused = result_with(&only_task, "js", &["await agent('x', {agentType: 'other'})"]);
    let expected = "agent `other` may not be spawned by the session's own cells: the policy allows `task` (spawns under [session] in cellar.toml)";
    assert_eq!(message(&refused), expected);
    let told =
        text_with(&agents, "py", &["import json\nprint(json.loads(agent('request', agent_type='top'))['model'])"]);
    assert_eq!(told, "large");
}

#[test]
fn what_an_agent_left_running_is_held_to_its_policy() {
    let agents = format!("{TASK}spawns = []\n");
    let left = "import asyncio\nasync def later():\n    await asyncio.sleep(0.3)\n    return agent('request')\nleft = asyncio.create_task(later())";
    let cells = [&format!("_ = agent({:?})", format!("run {left}")) as &str, "await left"];
    let result = result_with(&agents, "py", &cells);
    assert!(message(&result).contains("agent `task` may not be spawned by agent `task`"), "{}", message(&result));
}

/// The service of `fixtures/bridges/agent_server.py`.
struct Service(Child, String);

impl Service {
    fn start(more: &str) -> Service {
        let script = root().join("fixtures/bridges/agent_server.py");
        let mut process = Command::new("python3").arg(script).stdout(Stdio::piped()).spawn().expect("python3 starts");
        let mut port = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut port).expect("a port");
        let config = format!(
            "[agents.task]\nurl = \"http://127.0.0.1:{}/run\"\nheaders_env = {{ Authorization = \"Bearer ${{AGENT_TOKEN}}\" }}\n{more}",
            port.trim()
        );
        Service(process, config)
    }

    fn result(&self, language: &str, code: &str) -> Value {
        let (_folder, path) = config(&self.1);
        let request = json!({"cells": [{"language": language, "code": code}]}).to_string();
        let mut command = cellar_with_guests(["run", "-", "--json", "--config"]);
        command.arg(&path as &Path).env("AGENT_TOKEN", "very-secret");
        let ended = run_with_input(&mut command, request.as_bytes());
        assert!(!ended.stdout.contains("very-secret") && !ended.stderr.contains("very-secret"), "{}", ended.stdout);
        serde_json::from_str(&ended.stdout).expect("a result")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_agent_may_be_a_service() {
    let service = Service::start("");
    let code = "import json\ntold = json.loads(agent('request', context='c', label='l', model='m'))\n\
                print([told[key] for key in ('context', 'label', 'model', 'schema', 'depth', 'authorization')], output('l') != '')";
    assert_eq!(text(&service.result("py", code)), "['c', 'l', 'm', None, 1, 18] True");
    let schema = "{type: 'object', properties: {answer: {type: 'integer'}}, required: ['answer']}";
    let code = format!("print((await agent('object', {{schema: {schema}}})).answer + 1)");
    assert_eq!(text(&service.result("js", &code)), "43");
    let check = |prompt: &str, expected: &str| {
        let result = service.result("py", &format!("agent({prompt:?})"));
        assert!(message(&result).contains(expected), "{}", message(&result));
    };
    check("fail", "agent `task` answered with HTTP status 500 Internal Server Error: your token is Bearer ***");
    check("words", "agent `task` answered with what is not JSON");
    check("nothing", "agent `task` sent no `output`");
    check("elsewhere", "agent `task` answered with HTTP status 307");
}

#[test]
fn a_service_that_is_not_there_or_too_slow_says_so() {
    let nobody = "[agents.task]\nurl = \"http://127.0.0.1:1/\"\n";
    let result = result_with(nobody, "py", &["agent('x')"]);
    assert!(message(&result).contains("agent `task` cannot be reached"), "{}", message(&result));
    let service = Service::start("timeout = 1\n");
    let result = service.result("py", "agent('hang')");
    assert!(message(&result).contains("agent `task` did not answer within 1 s"), "{}", message(&result));
    // The request was dropped, and its service can tell.
    assert_eq!(text(&service.result("py", "print(agent('dropped'))")), "somebody hung up");
    let unset = result_with(&service.1, "py", &["agent('x')"]);
    assert!(message(&unset).contains("the environment variable `AGENT_TOKEN` (headers_env) is not set"));
}

#[test]
fn agents_that_run_at_once_end_with_the_cell_that_called_them() {
    let (folder, path) = config(TASK);
    let marks: Vec<_> = (0..3).map(|n| folder.path().join(format!("mark-{n}"))).collect();
    for (language, code) in [
        ("py", "parallel([lambda p=p: agent('sleep ' + p) for p in paths], concurrency=3)"),
        ("js", "await parallel(paths.map((p) => () => agent('sleep ' + p)), {concurrency: 3})"),
    ] {
        let held: Vec<Held> = marks.iter().map(|mark| Held::new(mark.with_extension("held"))).collect();
        let paths = format!("paths = {}\n{code}", json!(marks));
        let request = json!({"cells": [{"language": language, "code": paths, "timeout": 1}]});
        let result = result_of_run(&request, &["--config", path.to_str().expect("text")]);
        assert_eq!(result["details"]["cells"][0]["error"]["kind"], "timeout", "{result}");
        for held in held {
            held.until_gone();
        }
    }
    assert!(!marks.iter().any(|mark| mark.exists()), "an agent outlived its cell");
}
