//! Kept sessions and runs: their lifetime, their lists, and the tenants that can read them.

use super::{tenants::Tenants, *};

#[test]
fn what_is_idle_loses_nothing_and_what_expires_goes() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({"idleAfter": 1}));
    let usual = served.session(json!({}));
    let shown = |session: &str| served.get(&format!("/v1/sessions/{session}"));
    assert_eq!((&shown(&session).json()["idleAfter"], &shown(&session).json()["expiresAt"]), (&json!(1), &Value::Null));
    assert_eq!(shown(&usual).json()["idleAfter"], 300);
    served.run(&session, "py", "rows = iter(range(10)); next(rows)");
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(served.run(&session, "py", "next(rows)"), "1");
    let change = |session: &str, body: Value| {
        served.ask("PATCH", &format!("/v1/sessions/{session}"), &[], body.to_string().as_bytes())
    };
    let later = now() + 3_600;
    assert_eq!(change(&session, json!({"expiresAt": later})).json()["expiresAt"], later);
    // What is not named stays.
    assert_eq!(change(&session, json!({"idleAfter": 60})).json()["expiresAt"], later);
    assert_eq!(change(&session, json!({"expiresAt": null})).json()["expiresAt"], Value::Null);
    for body in [json!({"expiresAt": 1}), json!({"idleAfter": 0}), json!({"expires": 1})] {
        assert_eq!(change(&session, body.clone()).status, 400, "{body}");
    }
    assert_eq!(change("nobody", json!({"idleAfter": 1})).status, 404);
    assert_eq!(served.post("/v1/sessions", json!({"expiresAt": 1})).status, 400);
    let passing = served.session(json!({"expiresAt": now() + 3_600}));
    served.run(&passing, "py", "x = 1");
    assert_eq!(change(&passing, json!({"expiresAt": now() + 2})).status, 200);
    eventually("its time is over", || (shown(&passing).status == 404).then_some(()));
    // It is gone for whoever uses it as well, and its name is free again before long.
    assert_eq!(served.post(&format!("/v1/sessions/{passing}/runs"), cell("py", "x")).status, 404);
    let again = || served.post("/v1/sessions", json!({"session": passing})).status;
    eventually("its name is free", || (again() == 201).then_some(()));
    assert_eq!(served.run(&passing, "py", "'x' in globals()"), "False");
    assert_eq!(served.run(&session, "py", "next(rows)"), "2");
}

#[test]
fn more_sessions_are_kept_than_are_open() {
    let tenants = Tenants::new("[tenants.red]\nsessions = 3\n");
    let red = tenants.token(&["new", "--tenant", "red"]);
    let mut served = tenants.serve();
    served.token = red;
    let sessions: Vec<String> = (0..8).map(|_| served.session(json!({}))).collect();
    for (number, session) in sessions.iter().enumerate() {
        served.run(session, "py", &format!("x = {number}"));
    }
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(served.run(session, "py", "x"), number.to_string());
    }
    // Forks and runs of their own find room as well.
    let fork = served.post(&format!("/v1/sessions/{}/fork", sessions[7]), json!({}));
    assert_eq!(fork.status, 201, "{}", fork.text());
    assert_eq!(served.run(fork.json()["session"].as_str().expect("a name"), "py", "x"), "7");
    assert_eq!(served.post("/v1/eval", cell("py", "1 + 1")).json()["content"][0]["text"], "2");
    let open = served.get("/v1/sessions").json()["sessions"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|session| session["isOpen"] == true)
        .count();
    assert!(open <= 3, "{open}");
}

#[test]
fn lists_come_in_pages() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    for name in ["c", "a", "b"] {
        served.session(json!({"session": name}));
    }
    let mut names = Vec::new();
    let mut place = "/v1/sessions?limit=2".to_owned();
    loop {
        let page = served.get(&place).json();
        let listed = page["sessions"].as_array().expect("a list");
        assert!(listed.len() <= 2);
        names.extend(listed.iter().map(|session| session["session"].as_str().expect("a name").to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        place = format!("/v1/sessions?limit=2&after={next}");
    }
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(served.get("/v1/sessions?limit=0").status, 400);
    // A snapshot is made once for a key, and listed by its id.
    let keyed = || {
        served.ask("POST", "/v1/sessions/a/snapshots", &[("Idempotency-Key", "once")], b"").json()["snapshot"].clone()
    };
    assert_eq!(keyed(), keyed());
    let page = served.get("/v1/snapshots?limit=1").json();
    assert_eq!((page["snapshots"].as_array().expect("a list").len(), &page["next"]), (1, &Value::Null), "{page}");
}

#[test]
fn outputs_are_read_page_by_page() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    let runs = format!("/v1/sessions/{session}/runs");
    let begun = served.post(&runs, cell("py", "print('ab' * 100)\n1 / 0"));
    let run = begun.header("location").expect("a place").to_owned();
    let all = served.get(&format!("{run}/outputs?characters=10")).json();
    assert_eq!(all["outputs"][0]["next"], 10, "{all}");
    let page = served.get(&format!("{run}/outputs/0?from=190&characters=10")).json();
    let text = page["outputs"][0]["blocks"][0]["text"].as_str().expect("text");
    assert!(text.starts_with("ababababab\n[1 more character"), "{page}");
    assert_eq!(all["outputs"][1]["kind"], "exception", "{all}");
    for (place, status) in [("outputs/9", 404), ("outputs/x", 404), ("outputs?from=1", 400), ("outputs?rows=0", 400)] {
        assert_eq!(served.get(&format!("{run}/{place}")).status, status, "{place}");
    }
    assert_eq!(served.get("/v1/runs/none/outputs").status, 404);
}

#[test]
fn an_operator_sees_tenants_and_drains() {
    let tenants = Tenants::new("[tenants.red]\nrequests_per_second = 1000\n[tenants.blue]\n");
    let red = tenants.token(&["new", "--tenant", "red"]);
    let operator = tenants.token(&["new", "--tenant", "blue", "--scope", "admin"]);
    let mut served = tenants.serve();
    served.token = red.clone();
    let session = served.session(json!({}));
    let ask = |token: &str, method: &str, path: &str| served.ask_as(token, method, path, &[], b"");
    for path in ["/v1/admin/tenants", "/v1/admin/tenants/red"] {
        assert_eq!(ask(&red, "GET", path).status, 403, "{path}");
    }
    let listed = ask(&operator, "GET", "/v1/admin/tenants").json();
    assert_eq!(listed["tenants"][1]["tenant"], "red", "{listed}");
    assert_eq!(listed["tenants"][1]["sessionsOpen"], 1, "{listed}");
    let shown = ask(&operator, "GET", "/v1/admin/tenants/red").json();
    assert_eq!(shown["sessions"][0]["session"], session, "{shown}");
    assert_eq!(ask(&operator, "GET", "/v1/admin/tenants/green").status, 404);
    // An operator is no tenant.
    assert_eq!(ask(&operator, "GET", "/v1/sessions").status, 403);
    let counted = served.get("/v1/tenant");
    assert_eq!(counted.header("ratelimit-policy"), Some("\"requests\";q=1000;w=1"));
    assert!(counted.header("ratelimit").is_some_and(|rate| rate.starts_with("\"requests\";r=")), "{}", counted.head);
    assert_eq!(ask(&operator, "POST", "/v1/admin/drain").status, 204);
    let refused = served.post("/v1/sessions", json!({}));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(served.get("/readyz").status, 503);
    assert_eq!(served.get(&format!("/v1/sessions/{session}")).status, 200, "what is there is still read");
    assert_eq!(ask(&operator, "DELETE", "/v1/admin/drain").status, 204);
    assert_eq!(served.run(&session, "py", "1 + 1"), "2");
    // Tokens are read again, so that one that was revoked is of no use.
    let id = red.split('_').nth(1).expect("an id");
    tenants.token(&["revoke", id]);
    assert_eq!(ask(&operator, "POST", "/v1/admin/reload").status, 204);
    assert_eq!(served.get("/v1/tenant").status, 401);
}
