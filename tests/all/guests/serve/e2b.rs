//! The server, used by E2B's own SDKs as they come from PyPI and npm, and by one that sends what it likes.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{tenants::Tenants, *};

/// A server of two tenants, and a token of each.
struct Door {
    tenants: Tenants,
    served: Served,
    red: String,
    blue: String,
}

impl Door {
    fn open() -> Door {
        let tenants = Tenants::new("[session]\ncommands = true\n[tenants.red]\n[tenants.blue]\n");
        let [red, blue] = ["red", "blue"].map(|tenant| tenants.token(&["new", "--tenant", tenant]));
        Door { served: tenants.serve(), tenants, red, blue }
    }

    /// Runs a client, and returns what it says.
    fn client(&self, program: &str, arguments: &[&str]) -> String {
        let (program, runner) = match program {
            "python" => (root().join("target/e2b/python/bin/python"), Some("fixtures/e2b/run.py")),
            other => (other.into(), None),
        };
        let url = format!("http://{}/e2b", self.served.address);
        let output = Command::new(&program)
            .args(runner)
            .args(arguments)
            .current_dir(root())
            .envs([("E2B_API_URL", &url), ("E2B_SANDBOX_URL", &url), ("E2B_API_KEY", &self.red)])
            .env("CELLAR_OTHER_KEY", &self.blue)
            .output()
            .unwrap_or_else(|error| panic!("`{}`: {error}; run `make packages` first", program.display()));
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let failed: Vec<&str> = said.lines().filter(|line| !line.starts_with("ok ")).collect();
        assert!(output.status.success(), "{}: {}", output.status, failed.join("\n"));
        said
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.served.ask_as(&self.red, method, &format!("/e2b{path}"), headers, body)
    }

    fn create(&self, body: Value) -> Value {
        let answer = self.ask("POST", "/v2/sandboxes", &[], body.to_string().as_bytes());
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    }

    /// Runs code in a sandbox, and returns the text of its result.
    fn run(&self, id: &str, code: &str) -> Value {
        let body = json!({ "code": code }).to_string();
        let answer = self.ask("POST", "/execute", &[("E2b-Sandbox-Id", id)], body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let lines = answer.lines();
        assert_eq!(lines.last().expect("lines")["type"], "end_of_execution", "{lines:?}");
        let result = lines.iter().find(|line| line["is_main_result"] == true);
        result.map_or(Value::Null, |result| result["text"].clone())
    }
}

fn cases(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("ok ")).count()
}

#[test]
fn the_sync_sdk_of_python() {
    let said = Door::open().client("python", &["fixtures/e2b/client.py", "sync"]);
    assert!(cases(&said) >= 60, "{said}");
}

#[test]
fn the_async_sdk_of_python() {
    let said = Door::open().client("python", &["fixtures/e2b/client.py", "async"]);
    assert!(cases(&said) >= 60, "{said}");
}

#[test]
fn the_sdk_of_javascript() {
    let said = Door::open().client("node", &["fixtures/e2b/client.mjs", "target/e2b/javascript"]);
    assert!(cases(&said) >= 25, "{said}");
}

#[test]
fn an_agent_runs_its_code_in_sandboxes() {
    let said = Door::open().client("python", &["fixtures/e2b/smol.py"]);
    assert!(said.contains("ok agent"), "{said}");
}

/// The same agent by the protocol of Jupyter, as its executors speak it that start a gateway of their own.
#[test]
fn an_agent_runs_its_code_in_a_kernel() {
    let door = Door::open();
    let gateway = format!("http://{}/jupyter", door.served.address);
    let said = door.client("python", &["fixtures/e2b/smol.py", &gateway, &door.red]);
    assert!(said.contains("ok agent"), "{said}");
}

/// The examples of the manual, as they stand there.
#[test]
fn the_manual_is_right() {
    let page = std::fs::read_to_string(root().join("host/server/E2B.md")).expect("the manual");
    let door = Door::open();
    let mut count = 0;
    for block in page.split("```").skip(1).step_by(2) {
        let (language, code) = block.split_once('\n').expect("a language");
        let (program, script) = match language {
            "python" => ("python", "target/e2b/python/manual.py"),
            "javascript" => ("node", "target/e2b/javascript/manual.mjs"),
            _ => continue,
        };
        std::fs::write(root().join(script), code).expect("written");
        door.client(program, &[script]);
        count += 1;
    }
    assert!(count >= 3, "{count} examples");
}

/// Paused sandboxes are there after an hour, and after the server was stopped and started.
#[test]
fn sandboxes_outlive_the_server() {
    let door = Door::open();
    let paused = door.create(json!({"templateID": "python", "timeout": 60, "envVars": {"E": "e"}}));
    let running = door.create(json!({"timeout": 3600}));
    let ids = [&paused, &running].map(|sandbox| sandbox["sandboxID"].as_str().expect("an id").to_owned());
    ids.iter().for_each(|id| assert_eq!(door.run(id, "x = [1]; len(x)"), "1"));
    let named = [("E2b-Sandbox-Id", ids[1].as_str())];
    let context = door.ask("POST", "/contexts", &named, b"{}").json()["id"].as_str().expect("an id").to_owned();
    let in_context = |door: &Door, code: &str| {
        let body = json!({ "code": code, "context_id": context }).to_string();
        door.ask("POST", "/execute", &named, body.as_bytes()).text()
    };
    in_context(&door, "y = 'of the context'; open('f', 'w').write('kept')");
    assert_eq!(door.ask("POST", &format!("/sandboxes/{}/pause", ids[0]), &[], b"{}").status, 204);
    let Door { tenants, served, red, blue } = door;
    served.signal("-TERM");
    assert_eq!(served.ended(), Some(0));
    let record = tenants.store.path().join(".tenants/red/.sandboxes").join(&ids[0]);
    let mut kept: Value = serde_json::from_slice(&std::fs::read(&record).expect("kept")).expect("JSON");
    for time in ["startedAt", "endAt"] {
        kept[time] = (kept[time].as_u64().expect("a time") - 3_600_000).into();
    }
    std::fs::write(&record, kept.to_string()).expect("written");
    let door = Door { served: tenants.serve(), tenants, red, blue };
    assert_eq!(door.run(&ids[1], "x.append(2); x"), "[1, 2]");
    assert!(in_context(&door, "y + open('f').read()").contains("of the contextkept"));
    let dead = door.ask("GET", "/health", &[("E2b-Sandbox-Id", &ids[0])], b"");
    assert_eq!(dead.status, 502, "{}", dead.text());
    assert_eq!(door.ask("POST", &format!("/v2/sandboxes/{}/connect", ids[0]), &[], b"{}").status, 201);
    assert_eq!(door.run(&ids[0], "import os; x + [os.environ['E']]"), "[1, 'e']");
}

/// Makes and ends sandboxes and contexts until the server is gone, and counts what was answered.
fn hurry(door: &Door, answered: &AtomicUsize) {
    let id = |answer: &Answer, name: &str| answer.json()[name].as_str().expect("an id").to_owned();
    let mut last = None;
    loop {
        let sandbox = door.ask("POST", "/v2/sandboxes", &[], br#"{"templateID": "python", "timeout": 3600}"#);
        let sandbox = id(&sandbox, "sandboxID");
        answered.fetch_add(1, Ordering::SeqCst);
        let context = id(&door.ask("POST", "/contexts", &[("E2b-Sandbox-Id", &sandbox)], b"{}"), "id");
        answered.fetch_add(1, Ordering::SeqCst);
        door.ask("DELETE", &format!("/contexts/{context}"), &[("E2b-Sandbox-Id", &sandbox)], b"");
        answered.fetch_add(1, Ordering::SeqCst);
        if let Some(last) = last.replace(sandbox) {
            door.ask("DELETE", &format!("/sandboxes/{last}"), &[], b"");
            answered.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Whenever a server dies, each session that is kept belongs to a sandbox that its clients find.
#[test]
fn a_crash_leaves_no_session_that_nobody_finds() {
    let mut door = Door::open();
    for count in [1, 2, 3, 5, 8] {
        let answered = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let client = scope.spawn(|| hurry(&door, &answered));
            while answered.load(Ordering::SeqCst) < count {
                assert!(!client.is_finished(), "the client has ended before the server");
                std::thread::yield_now();
            }
            door.served.signal("-KILL");
            assert!(client.join().is_err(), "the server is gone");
        });
        let Door { tenants, served, red, blue } = door;
        drop(served);
        door = Door { served: tenants.serve(), tenants, red, blue };
        let names = |list: &Value, name: &str| -> BTreeSet<String> {
            let list = list.as_array().expect("a list").iter();
            list.map(|one| one[name].as_str().expect("a name").to_owned()).collect()
        };
        let strays = || {
            let sandboxes = names(&door.ask("GET", "/v2/sandboxes", &[], b"").json(), "sandboxID");
            let answer = door.served.ask_as(&door.red, "GET", "/v1/sessions", &[], b"").json();
            let mut sessions = names(&answer["sessions"], "session");
            for sandbox in &sandboxes {
                assert!(sessions.remove(sandbox), "{sandbox} has no session");
                let contexts = door.ask("GET", "/contexts", &[("E2b-Sandbox-Id", sandbox)], b"").json();
                sessions.retain(|session| !names(&contexts, "id").contains(session));
            }
            sessions
        };
        // Those that were broken off go when the server has begun.
        eventually("the strays go", || strays().is_empty().then_some(()));
    }
}

/// An access token is of use for as long as the token of the server by which it was had.
#[test]
fn access_ends_with_the_token_of_the_server() {
    let door = Door::open();
    let second = door.tenants.token(&["new", "--tenant", "red", "--name", "second"]);
    door.served.signal("-HUP");
    let body = b"{\"templateID\": \"python\"}";
    // The server takes up the file of tokens when it comes to it.
    let made = eventually("the token is taken up", || {
        let made = door.served.ask_as(&second, "POST", "/e2b/v2/sandboxes", &[], body);
        (made.status != 401).then_some(made)
    });
    let made = made.json();
    let headers = ["sandboxID", "envdAccessToken"].map(|name| made[name].as_str().expect("text").to_owned());
    let headers = [("E2b-Sandbox-Id", headers[0].as_str()), ("X-Access-Token", headers[1].as_str())];
    let health = || door.served.ask_as("", "GET", "/e2b/health", &headers, b"").status;
    assert_eq!(health(), 204);
    let id = second.split('_').nth(1).expect("an id");
    door.tenants.token(&["revoke", id]);
    door.served.signal("-HUP");
    eventually("the token is taken no more", || (health() == 401).then_some(()));
    // By the other token the sandbox is there as before.
    assert_eq!(door.run(headers[0].1, "1"), "1");
}

/// Sandboxes are found by their host where a proxy passes hosts on, and an address with a signature is good for one file.
#[test]
fn hosts_and_signed_addresses() {
    use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
    use sha2::{Digest, Sha256};

    let door = Door::open();
    let made = door.create(json!({}));
    let [id, token] = ["sandboxID", "envdAccessToken"].map(|name| made[name].as_str().expect("text").to_owned());
    door.run(&id, "open('a.txt', 'w').write('of the file')");
    let get = |path: &str| {
        let mut stream = door.served.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: 49983-{id}.example.com\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        Answer::read(stream)
    };
    assert_eq!(get("/files?path=a.txt").status, 401);
    let sign = |text: String| format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes())));
    let signed = |path: &str, signature: &str, end: &str| {
        let signature = signature.replace('+', "%2B").replace('/', "%2F");
        get(&format!("/files?path={path}&signature={signature}{end}"))
    };
    let good = sign(format!("a.txt:read::{token}"));
    assert_eq!(signed("a.txt", &good, "").text(), "of the file");
    assert_eq!(signed("b.txt", &good, "").status, 401);
    assert_eq!(signed("a.txt", &sign(format!("a.txt:write::{token}")), "").status, 401);
    let expired = sign(format!("a.txt:read::{token}:1"));
    assert_eq!(signed("a.txt", &expired, "&signature_expiration=1").status, 401);
    let lasting = sign(format!("a.txt:read::{token}:9999999999"));
    assert_eq!(signed("a.txt", &lasting, "&signature_expiration=9999999999").text(), "of the file");
    assert_eq!(signed("a.txt", &lasting, "&signature_expiration=9999999998").status, 401);
}

#[test]
fn whatever_is_sent_has_a_named_answer() {
    let door = Door::open();
    let made = door.create(json!({}));
    let id = made["sandboxID"].as_str().expect("an id");
    let named = [("E2b-Sandbox-Id", id)];
    let deep = "[".repeat(100_000);
    let many: serde_json::Map<String, Value> = (0..2_000).map(|n| (n.to_string(), "x".into())).collect();
    let long = "x".repeat(300_000);
    let bodies: Vec<(&str, &str, Value, u16)> = vec![
        ("POST", "/v2/sandboxes", json!([]), 400),
        ("POST", "/v2/sandboxes", json!({"templateID": 1}), 400),
        ("POST", "/v2/sandboxes", json!({"templateID": "../../etc"}), 404),
        ("POST", "/v2/sandboxes", json!({"timeout": -1}), 400),
        ("POST", "/v2/sandboxes", json!({"timeout": u64::MAX}), 400),
        ("POST", "/v2/sandboxes", json!({"metadata": many}), 400),
        ("POST", "/v2/sandboxes", json!({"metadata": {"a": long}}), 400),
        ("POST", "/v2/sandboxes", json!({"envVars": {"A=B": "x"}}), 400),
        ("POST", "/v2/sandboxes", json!({"envVars": {"A": "\0"}}), 400),
        ("POST", "/v2/sandboxes", json!({"autoPause": "yes"}), 400),
        ("POST", "/v2/sandboxes", json!({"volumeMounts": [{}]}), 501),
        ("POST", "/sandboxes/none/timeout", json!({"timeout": 1}), 404),
        ("POST", "/sandboxes/none/pause", json!({}), 404),
        ("POST", "/sandboxes/none/fork", json!({}), 404),
        ("POST", "/v2/sandboxes/none/connect", json!({}), 404),
        ("GET", "/v2/sandboxes?limit=0", json!(null), 400),
        ("GET", "/v2/sandboxes?nextToken=x", json!(null), 400),
        ("GET", "/v2/sandboxes?startedAfter=x", json!(null), 400),
        ("GET", "/v2/sandboxes?metadata=%25%25%25", json!(null), 200),
        ("POST", "/v3/templates", json!({}), 501),
        ("GET", "/nothing", json!(null), 404),
        ("POST", "/execute", json!({}), 400),
        ("POST", "/execute", json!({"code": 1}), 400),
        ("POST", "/execute", json!({"code": "1", "language": "x"}), 400),
        ("POST", "/execute", json!({"code": "1", "language": "python", "context_id": "python"}), 400),
        ("POST", "/execute", json!({"code": "1", "context_id": "../x"}), 404),
        ("POST", "/execute", json!({"code": "1", "env_vars": ["A"]}), 400),
        ("POST", "/contexts", json!({"cwd": "/none\0"}), 400),
        ("POST", "/contexts", json!({"cwd": 1}), 400),
        ("DELETE", "/contexts/none", json!(null), 404),
        ("GET", "/files", json!(null), 400),
        ("GET", "/files?path=%00", json!(null), 400),
        ("GET", "/files?path=/workspace/../../etc/passwd", json!(null), 404),
        ("POST", "/files", json!(null), 400),
        ("POST", "/filesystem.Filesystem/Stat", json!({"path": [1]}), 400),
        ("POST", "/filesystem.Filesystem/ListDir", json!({"path": "/", "depth": -1}), 400),
        ("POST", "/filesystem.Filesystem/ListDir", json!({"path": "/", "depth": u32::MAX}), 200),
        ("POST", "/filesystem.Filesystem/Remove", json!({"path": "/"}), 400),
        ("POST", "/filesystem.Filesystem/Move", json!({"source": "/home/user", "destination": "x"}), 400),
        ("POST", "/filesystem.Filesystem/GetWatcherEvents", json!({"watcherId": "x"}), 404),
        ("POST", "/filesystem.Filesystem/Nothing", json!({}), 404),
        ("POST", "/process.Process/List", json!([]), 400),
        ("POST", "/process.Process/Nothing", json!({}), 404),
        ("POST", "/process.Process/SendInput", json!({}), 400),
        ("POST", "/process.Process/SendInput", json!({"process": {"pid": -1}}), 400),
        ("POST", "/process.Process/SendSignal", json!({"process": {"pid": 1}}), 404),
        ("POST", "/process.Process/CloseStdin", json!({"process": {"tag": "x"}}), 404),
        ("PATCH", "/execute", json!({}), 404),
    ];
    for (method, path, body, status) in bodies {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = door.ask(method, path, &named, body.as_bytes());
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        assert!(status == 200 || !answer.body.is_empty(), "{method} {path} says nothing");
    }
    for (path, body) in [("/v2/sandboxes", "{"), ("/execute", &deep), ("/filesystem.Filesystem/Stat", "\u{0}")] {
        assert_eq!(door.ask("POST", path, &named, body.as_bytes()).status, 400, "{path}");
    }
    let form = [named[0], ("Content-Type", "multipart/form-data; boundary=x")];
    for body in ["", "--x", "--x\r\n\r\n", "--x\r\na\r\n\r\nno end", "--x\r\n\r\ndata\r\n--x--"] {
        assert_eq!(door.ask("POST", "/files", &form, body.as_bytes()).status, 400, "{body:?}");
    }
    let gzip = [named[0], ("Content-Encoding", "gzip")];
    assert_eq!(door.ask("POST", "/files?path=a", &gzip, b"no gzip").status, 400);
    for odd in ["", "none", "../x", &long[..5_000]] {
        let answer = door.ask("GET", "/health", &[("E2b-Sandbox-Id", odd)], b"");
        assert!(matches!(answer.status, 400 | 502), "{odd:.20}: {}", answer.text());
    }
    let watch = door.ask("POST", "/filesystem.Filesystem/WatchDir", &named, b"\xff\xff\xff\xff\xff");
    assert!(watch.text().contains("invalid_argument"), "{}", watch.text());
    assert_eq!(door.run(id, "6 * 7"), "42");
}
