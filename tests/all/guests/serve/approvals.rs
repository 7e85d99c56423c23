//! Calls that wait for a person, over HTTP.

use super::{tenants::Tenants, *};

const TEXT: &str = r#"
[tenants.red]
[tenants.blue]
[tools.add]
command = ["python3", "SCRIPTS/add.py"]
confirm = true
"#;

#[test]
fn those_who_may_decide_do_and_others_may_not() {
    let tenants = Tenants::new(&TEXT.replace("SCRIPTS", &root().join("fixtures/bridges").display().to_string()));
    let token =
        |tenant: &str, scope: &str| tenants.token(&["new", "--tenant", tenant, "--scope", scope, "--name", scope]);
    let (run, decide, other) = (token("red", "run"), token("red", "approve"), token("blue", "approve"));
    let read = token("red", "read");
    let served = tenants.serve();
    let ask = |token: &str, method: &str, path: &str, body: Value| {
        served.ask_as(token, method, path, &[], body.to_string().as_bytes())
    };
    let session = ask(&run, "POST", "/v1/sessions", json!({})).json()["session"].as_str().expect("a name").to_owned();
    let runs = format!("/v1/sessions/{session}/runs");
    let waiting = || {
        eventually("no call waits", || {
            let listed = ask(&read, "GET", "/v1/calls", json!({})).json();
            check_shape("calls", &listed);
            Some(listed["calls"].get(0)?["call"].as_str()?.to_owned())
        })
    };
    for (body, expected) in [
        (json!({"decision": "approve"}), "3"),
        (json!({"decision": "approve", "arguments": {"a": 4, "b": 5}, "by": "ada"}), "9"),
        (json!({"decision": "reject", "reason": "too much"}), "was rejected: too much"),
    ] {
        let mut stream = served.connect();
        let ndjson = [("Accept", "application/x-ndjson")];
        let cells = cell("py", "tool.add(a=1, b=2)").to_string();
        served.send(&mut stream, &run, "POST", &runs, &ndjson, cells.as_bytes());
        let place = format!("/v1/calls/{}", waiting());
        assert_eq!(ask(&run, "POST", &place, body.clone()).status, 403, "who runs code does not decide");
        assert_eq!(ask(&other, "POST", &place, body.clone()).status, 404, "another tenant sees none");
        let bad = ask(&decide, "POST", &place, json!({"decision": "maybe"}));
        assert!(bad.status == 400 && bad.text().contains("$.decision"), "{}", bad.text());
        assert_eq!(ask(&decide, "POST", &place, body).status, 204);
        let lines = Answer::read(stream).lines();
        let waits: Vec<&Value> = lines.iter().filter(|line| line["status"]["op"] == "call_waits").collect();
        assert!(waits.len() == 1 && waits[0]["status"]["name"] == "add", "{lines:?}");
        let told = lines.last().expect("a result").to_string();
        assert!(told.contains(expected), "{told}");
        assert_eq!(ask(&decide, "POST", &place, json!({"decision": "approve"})).status, 404, "it is over");
    }
}
