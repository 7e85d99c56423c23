//! The API description: valid by others' judgement, and true of what the server does.

use std::collections::BTreeMap;

use super::*;

#[test]
fn the_description_is_valid() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let described = served.ask_as("", "GET", "/openapi.json", &[], b"");
    assert_eq!(described.status, 200, "no token is needed");
    let kept = std::fs::read_to_string(root().join("fixtures/openapi/openapi.json")).expect("the description");
    assert_eq!(described.json(), serde_json::from_str::<Value>(&kept).expect("JSON"), "`make bless` accepts it");
    let python = root().join("target/openapi/bin/python");
    let program = "import json, sys\nfrom openapi_spec_validator import OpenAPIV31SpecValidator, validate\n\
                   validate(json.load(open('fixtures/openapi/openapi.json')), cls=OpenAPIV31SpecValidator)";
    let checked = Command::new(&python).args(["-c", program]).current_dir(root()).output();
    let checked = checked.unwrap_or_else(|error| panic!("`{}`: {error}; run `make packages` first", python.display()));
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Things to ask about, by the names that paths have for them.
fn things(served: &Served, path: &str) -> BTreeMap<&'static str, String> {
    let session = served.session(json!({"tools": [{"name": "add"}], "input": true}));
    let runs = format!("/v1/sessions/{session}/runs");
    let ended = served.post(&runs, cell("py", "x = 1\nprint('y' * 100_000)"));
    let id = |place: &Answer| place.header("location").expect("a place").rsplit('/').next().expect("an id").to_owned();
    let mut things = BTreeMap::from([
        ("session", session.clone()),
        ("run", id(&ended)),
        ("name", "x".to_owned()),
        ("output", "0".to_owned()),
        ("path", "table.csv".to_owned()),
        ("tenant", "own".to_owned()),
        ("state", "1".to_owned()),
        ("other", "1".to_owned()),
    ]);
    served.ask("PUT", &format!("/v1/sessions/{session}/files/table.csv"), &[], b"a,b\n");
    let snapshot = served.post(&format!("/v1/sessions/{session}/snapshots"), json!({}));
    things.insert("snapshot", id(&snapshot));
    let artifacts = served.get("/v1/artifacts").json();
    let published = served.ask("POST", "/v1/datasets/prices", &[], &datasets::parquet(2));
    assert_eq!(published.status, 201, "{}", published.text());
    things.insert("dataset", "prices".to_owned());
    things.insert("artifact", artifacts["artifacts"][0]["id"].as_str().expect("an id").to_owned());
    let waits = |code: &str| {
        let body = cell("py", code).to_string();
        id(&served.ask("POST", &runs, &[("Prefer", "respond-async")], body.as_bytes()))
    };
    if path.starts_with("/v1/calls") {
        waits("tool.pay(a=1, b=2)");
        let call = eventually("no call waits", || {
            served.get("/v1/calls").json()["calls"].as_array()?.iter().find(|call| call["session"] == session).cloned()
        });
        things.insert("call", call["call"].as_str().expect("an id").to_owned());
    } else if path.contains("/calls") {
        things.insert("run", waits("tool.add(a=1, b=2)"));
        let calls = served.get(&format!("/v1/sessions/{session}/calls?wait=60")).json();
        things.insert("call", calls["calls"][0]["call"].as_str().expect("a call").to_owned());
    }
    if path.ends_with("/input") {
        let run = waits("input()");
        let mut stream = served.connect();
        served.send(&mut stream, &served.token, "GET", &format!("/v1/runs/{run}/events"), &[], b"");
        let asked = BufReader::new(stream).lines().find_map(|line| {
            let line: Value = serde_json::from_str(&line.expect("a line")).ok()?;
            Some(line["request_id"].as_str()?.to_owned())
        });
        things.insert("run", run);
        things.insert("request", asked.expect("a request for input"));
    }
    things
}

#[test]
fn every_example_does_what_is_said_of_it() {
    let store = tempfile::tempdir().expect("a folder");
    let granted = "[session]\nhistory = 10\ncommands = true\n[tools.pay]\ncommand = [\"python3\", \"SCRIPTS/add.py\"]\nconfirm = true\n";
    let (_folder, config) = config(granted);
    let served = Served::start(store.path(), &["--config", config.to_str().expect("text")]);
    let described = served.get("/openapi.json").json();
    let validator = |schema: &Value| {
        let mut schema = schema.clone();
        schema["components"] = described["components"].clone();
        jsonschema::validator_for(&schema).expect("a schema")
    };
    let mut count = 0;
    for (path, operations) in described["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let things = things(&served, path);
            let fill = |text: &str| {
                things.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
            };
            let place = fill(path);
            let bodies = operation["requestBody"]["content"].as_object();
            let (kind, example) = bodies
                .and_then(|bodies| bodies.iter().find(|(_, body)| body.get("example").is_some()))
                .map_or(("", Value::Null), |(kind, body)| (kind.as_str(), body["example"].clone()));
            let body = match &example {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                example => fill(&example.to_string()),
            };
            let headers = [("Content-Type", kind)];
            // A Parquet file is no text that an example could be.
            let is_table = method == "post" && path == "/v1/datasets/{dataset}";
            let body = if is_table { datasets::parquet(1) } else { body.into_bytes() };
            let answer = served.ask(&method.to_uppercase(), &place, &headers, &body);
            let what = format!("{method} {place}: {} {}", answer.status, answer.text());
            let responses = operation["responses"].as_object().expect("answers");
            if responses.contains_key("101") {
                // It wants a WebSocket, which `lines.rs` has.
                assert_eq!(answer.status, 426, "{what}");
                continue;
            }
            let response = responses.get(&answer.status.to_string()).unwrap_or_else(|| panic!("{what}"));
            let kind = answer.header("content-type").unwrap_or_default();
            let kind = kind.split(';').next().unwrap_or_default();
            match response["content"].as_object() {
                None => assert_eq!(answer.text(), "", "{what}"),
                Some(content) => {
                    let content = content.get(kind).unwrap_or_else(|| panic!("{kind} is not described: {what}"));
                    if kind == "application/json" {
                        let found = answer.json();
                        let faults: Vec<String> =
                            validator(&content["schema"]).iter_errors(&found).map(|fault| fault.to_string()).collect();
                        assert!(faults.is_empty(), "{faults:?}: {what}");
                    }
                    if kind == "application/x-ndjson" {
                        let validator = validator(&content["x-item-schema"]);
                        answer.lines().iter().for_each(|line| assert!(validator.is_valid(line), "{line}: {what}"));
                    }
                }
            }
            if place.ends_with("/drain") && method == "post" {
                assert_eq!(served.ask("DELETE", &place, &[], b"").status, 204);
            }
            count += 1;
        }
    }
    assert!(count > 35, "{count}");
}

/// Clients that generators make of the description have every operation, and compile.
#[test]
fn generators_of_clients_read_the_description() {
    let folder = tempfile::tempdir().expect("a folder");
    let description = root().join("fixtures/openapi/openapi.json");
    let described: Value =
        serde_json::from_slice(&std::fs::read(&description).expect("the description")).expect("JSON");
    let count = |operations: &Value| operations.as_object().expect("operations").len();
    let operations: usize = described["paths"].as_object().expect("paths").values().map(count).sum();
    let python = root().join("target/openapi/bin");
    let modules = root().join("target/node/node_modules");
    let place = |name: &str| folder.path().join(name).display().to_string();
    let ran = |command: &mut Command| {
        let ended = run(command.current_dir(folder.path()));
        assert_eq!(ended.code, 0, "{command:?}: {}{}", ended.stdout, ended.stderr);
    };
    let path = format!("{}:{}", python.display(), std::env::var("PATH").unwrap_or_default());
    let mut generator = Command::new(python.join("openapi-python-client"));
    let generator = generator.args(["generate", "--meta", "none", "--output-path", &place("client"), "--path"]);
    ran(generator.arg(&description).env("PATH", path));
    let made = walk(&folder.path().join("client/api"));
    let made = made.iter().filter(|file| file.ends_with(".py") && !file.ends_with("__init__.py")).count();
    assert_eq!(made, operations, "openapi-python-client leaves operations out");
    ran(Command::new(python.join("python")).args(["-m", "compileall", "-q", "client"]));
    let node = |script: &str| {
        let mut command = Command::new(crate::support::node());
        command.arg(modules.join(script));
        command
    };
    ran(node("openapi-typescript/bin/cli.js").arg(&description).args(["-o", &place("types.d.ts")]));
    ran(node("@hey-api/openapi-ts/bin/run.js").arg("-i").arg(&description).args(["-o", &place("hey")]));
    let calls = std::fs::read_to_string(folder.path().join("hey/sdk.gen.ts")).expect("the client");
    assert_eq!(calls.matches("export const ").count(), operations, "hey-api leaves operations out");
    let strict = ["--strict", "--noEmit", "--skipLibCheck", "--target", "es2022", "--module", "esnext"];
    let resolved = ["--moduleResolution", "bundler", "types.d.ts", "hey/index.ts"];
    ran(node("typescript/bin/tsc").args(strict).args(["--lib", "es2022,dom,dom.iterable"]).args(resolved));
}

/// Paths of all files below a folder.
fn walk(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: std::path::PathBuf| if path.is_dir() { walk(&path) } else { vec![path.display().to_string()] };
    entries.flat_map(below).collect()
}
