//! Callers that answer for tools, over HTTP.

use super::*;

fn tools() -> Value {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    json!([{"name": "add", "description": "adds", "schema": schema}, {"name": "never"}])
}

#[test]
fn a_stream_tells_of_calls_and_they_are_answered() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({"tools": tools()}));
    let shown = served.get(&format!("/v1/sessions/{session}")).json();
    assert_eq!(shown["tools"], json!(["add", "never"]));
    let answer = |stream: TcpStream, path: &dyn Fn(&Value) -> String, body: Value| {
        let lines = BufReader::new(stream).lines();
        let mut told = Vec::new();
        for line in lines {
            // The sizes of chunks stand between the lines.
            let line = serde_json::from_str::<Value>(&line.expect("a line"));
            let Some(line) = line.ok().filter(Value::is_object) else { continue };
            if line["type"] == "call" {
                check_shape("answer", &line);
                assert_eq!(line["arguments"], json!({"a": 1}));
                let answer = served.post(&path(&line), body.clone());
                assert_eq!(answer.status, 204, "{}", answer.text());
                assert_eq!(served.post(&path(&line), body.clone()).status, 404, "it is answered already");
            }
            told.push(line);
        }
        told
    };
    let ndjson = [("Accept", "application/x-ndjson")];
    let begin = |path: &str, body: Value| {
        let mut stream = served.connect();
        served.send(&mut stream, &served.token, "POST", path, &ndjson, body.to_string().as_bytes());
        stream
    };
    let runs = format!("/v1/sessions/{session}/runs");
    let in_session = |line: &Value| {
        assert_eq!(line["session"], session);
        format!("/v1/sessions/{session}/calls/{}", line["call"].as_str().expect("a name"))
    };
    let told = answer(begin(&runs, cell("py", "tool.add(a=1) + 1")), &in_session, json!({"result": 41}));
    let last = told.last().expect("a result");
    assert_eq!(last["result"]["content"][0]["text"], "42", "{last}");
    let failed = answer(begin(&runs, cell("js", "await tool.add({ a: 1 })")), &in_session, json!({"error": "no more"}));
    let last = failed.last().expect("a result");
    assert_eq!(last["result"]["details"]["cells"][0]["error"]["message"], "tool `add` failed: no more", "{last}");
    // Arguments are held to the schema before anybody is asked.
    let wrong = answer(begin(&runs, cell("py", "tool.add(b=1)")), &in_session, json!({"result": 0}));
    assert!(wrong.iter().all(|line| line["type"] != "call"), "{wrong:?}");
    // A session of its own has tools as well.
    let own = |line: &Value| {
        let session = line["session"].as_str().expect("a name");
        format!("/v1/sessions/{session}/calls/{}", line["call"].as_str().expect("a name"))
    };
    let mut body = cell("py", "tool.add(a=1)");
    body["tools"] = tools();
    let told = answer(begin("/v1/eval", body), &own, json!({"result": {"deep": [1]}}));
    assert_eq!(told.last().expect("a result")["result"]["content"][0]["text"], "{'deep': [1]}");
    let faults = served.post("/v1/sessions", json!({"tools": [{"nam": "x"}]}));
    assert_eq!(faults.json()["problems"][0]["path"], "$.tools[0].nam", "{}", faults.text());
}

#[test]
fn whoever_looks_at_a_run_finds_its_calls() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({"tools": tools()}));
    let begin = |code: &str| {
        let body = cell("py", code).to_string();
        let runs = format!("/v1/sessions/{session}/runs");
        let begun = served.ask("POST", &runs, &[("Prefer", "respond-async")], body.as_bytes());
        assert_eq!(begun.status, 202, "{}", begun.text());
        format!("/v1/runs/{}", begun.json()["run"].as_str().expect("an id"))
    };
    let code = "import asyncio\nawait asyncio.gather(tool.add.aio(a=1), tool.add.aio(a=2))";
    let run = begin(code);
    let mut answered = Vec::new();
    let done = loop {
        let shown = served.get(&format!("{run}?wait=60")).json();
        if shown["status"] != "running" {
            break shown;
        }
        for call in shown["calls"].as_array().expect("calls") {
            let a = call["arguments"]["a"].as_u64().expect("a number");
            let place = format!("{run}/calls/{}", call["call"].as_str().expect("a name"));
            assert_eq!(served.post(&place, json!({"result": a * 10})).status, 204);
            answered.push(a);
        }
    };
    answered.sort_unstable();
    assert_eq!((&done["result"]["content"][0]["text"], answered), (&"[10, 20]".into(), vec![1, 2]), "{done}");
    // A call whose run is cancelled waits for nobody, and a stream that has told of it says so.
    let run = begin("tool.never()");
    let mut stream = served.connect();
    served.send(&mut stream, &served.token, "GET", &format!("{run}/events"), &[], b"");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    let call = lines.find_map(|line| serde_json::from_str::<Value>(&line).ok().filter(|line| line["type"] == "call"));
    let call = call.expect("a call")["call"].clone();
    assert_eq!(served.post(&format!("{run}/cancel"), json!({})).status, 204);
    let rest: Vec<Value> = lines.filter_map(|line| serde_json::from_str(&line).ok()).collect();
    assert!(rest.contains(&json!({"type": "call_cancelled", "call": call})), "{rest:?}");
    let late = served.post(&format!("{run}/calls/{}", call.as_str().expect("a name")), json!({"result": 1}));
    assert_eq!((late.status, late.problem().as_str()), (404, "unknown"));
    // Others than the tenant find nothing, and what is no answer is refused.
    let bad = served.post(&format!("{run}/calls/call-x"), json!({"result": 1, "error": "both"}));
    assert_eq!((bad.status, bad.problem().as_str()), (400, "invalid"));
}

#[test]
fn a_session_has_its_tools_when_it_comes_back() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({"tools": tools()}));
    served.run(&session, "py", "x = 1");
    served.signal("-TERM");
    assert_eq!(served.ended(), Some(0));
    let served = Served::start(store.path(), &[]);
    assert_eq!(
        served.run(&session, "py", "sorted(name for name in dir(tool) if name in ('add', 'never')) + [x]"),
        "['add', 'never', 1]"
    );
}
