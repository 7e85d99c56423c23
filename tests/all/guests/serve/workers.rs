//! A process for each tenant: what it may not do, what its loss costs, and that everything else is as without it.

use std::fs;

use tokio_tungstenite::tungstenite::Message;

use super::{tenants::Tenants, *};

/// Has a server be isolated as `CELLAR_SERVE_ISOLATE` says, where its configuration says nothing: so that all that is asked of
/// servers here can be asked of those whose tenants have a process each.
pub(super) fn isolated(arguments: &mut Vec<String>) -> Option<tempfile::NamedTempFile> {
    let isolate = std::env::var("CELLAR_SERVE_ISOLATE").ok()?;
    let place = arguments.iter().position(|argument| argument == "--config").map(|place| place + 1);
    let given = place.map(|place| std::path::PathBuf::from(&arguments[place]));
    let text = given.as_ref().map(|path| std::fs::read_to_string(path).expect("a configuration")).unwrap_or_default();
    if text.contains("isolate") {
        return None;
    }
    let line = format!("[server]\nisolate = \"{isolate}\"\n");
    let text =
        if text.contains("[server]") { text.replacen("[server]\n", &line, 1) } else { format!("{text}\n{line}") };
    // Beside the one that was given, as its paths are relative.
    let folder = given.and_then(|path| Some(path.parent()?.to_owned())).unwrap_or_else(std::env::temp_dir);
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile_in(folder).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    let path = file.path().to_str().expect("text").to_owned();
    match place {
        Some(place) => arguments[place] = path,
        None => arguments.extend(["--config".to_owned(), path]),
    }
    Some(file)
}

const TEXT: &str = r#"
[server]
isolate = "tenant"
[tools.add]
command = ["python3", "SCRIPTS/add.py"]
[tenants.red]
[tenants.blue]
"#;

/// Two tenants with their tokens.
pub(super) struct Two {
    pub(super) tenants: Tenants,
    pub(super) red: String,
    pub(super) blue: String,
}

impl Two {
    pub(super) fn new(text: &str) -> Two {
        let scripts = root().join("fixtures/bridges");
        let tenants = Tenants::new(&text.replace("SCRIPTS", scripts.to_str().expect("text")));
        let (red, blue) = (tenants.token(&["new", "--tenant", "red"]), tenants.token(&["new", "--tenant", "blue"]));
        Two { tenants, red, blue }
    }
}

pub(super) fn ask(served: &Served, token: &str, method: &str, path: &str, body: Value) -> Answer {
    served.ask_as(token, method, path, &[], body.to_string().as_bytes())
}

pub(super) fn session(served: &Served, token: &str) -> String {
    let answer = ask(served, token, "POST", "/v1/sessions", json!({}));
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["session"].as_str().expect("a name").to_owned()
}

pub(super) fn run_in(served: &Served, token: &str, session: &str, code: &str) -> String {
    let answer = ask(served, token, "POST", &format!("/v1/sessions/{session}/runs"), cell("py", code));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["content"][0]["text"].as_str().expect("text").to_owned()
}

/// The number of the process of a tenant of the server with this store, if it runs.
pub(super) fn worker(store: &Path, tenant: &str) -> Option<u32> {
    let store = store.to_str().expect("text");
    fs::read_dir("/proc").expect("processes").flatten().find_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<String> =
            command.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let is_it = words.iter().any(|word| word == store)
            && words.windows(2).any(|pair| pair[0] == "--worker" && pair[1] == tenant);
        // One that has ended, and was not waited for yet, has no command.
        is_it.then_some(id)
    })
}

fn kill(process: u32) {
    signal(process, "-KILL");
}

fn signal(process: u32, signal: &str) {
    let sent = Command::new("kill").args([signal, &process.to_string()]).status().expect("kill");
    assert!(sent.success());
}

/// Tells whether all threads of a process have stopped.
fn is_stopped(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("threads").flatten();
    // The state follows the name, which may hold anything, and is in parentheses.
    let has_stopped = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
    threads.map(|thread| fs::read_to_string(thread.path().join("stat"))).all(|stat| stat.is_ok_and(has_stopped))
}

#[test]
fn each_tenant_has_a_process_of_its_own_that_reaches_nothing_and_whose_cells_reach_what_is_granted() {
    let two = Two::new(TEXT);
    let (served, store) = (two.tenants.serve(), two.tenants.store.path());
    assert!(worker(store, "red").is_none(), "nobody has asked yet");
    let red = session(&served, &two.red);
    let process = worker(store, "red").expect("it runs");
    assert!(worker(store, "blue").is_none(), "nobody has asked for it");
    assert_eq!(run_in(&served, &two.red, &red, "x = 20\nprint(tool.add(a=x, b=22))"), "42");
    assert_eq!(ask(&served, &two.blue, "GET", &format!("/v1/sessions/{red}"), json!({})).status, 404);
    assert_ne!(worker(store, "blue"), Some(process));
    let told = ask(&served, &two.red, "GET", "/v1/tenant", json!({})).json();
    assert_eq!((&told["tenant"], &told["isolation"]["ownProcess"]), (&json!("red"), &json!(true)), "{told}");
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    // Of the environment it has nothing that may have credentials.
    let environment = fs::read_to_string(format!("/proc/{process}/environ")).expect("its own user's");
    assert!(!environment.contains("PATH="), "{environment}");
    served.signal("-TERM");
    assert_eq!(served.ended(), Some(0));
    assert!(fs::metadata(format!("/proc/{process}")).is_err(), "it ends with the server");
}

#[test]
fn a_worker_that_is_lost_costs_the_cells_that_run_in_it_and_nothing_else() {
    let two = Two::new(TEXT);
    let (served, store) = (two.tenants.serve(), two.tenants.store.path());
    let (red, blue) = (session(&served, &two.red), session(&served, &two.blue));
    assert_eq!(run_in(&served, &two.red, &red, "kept = 41\nprint(kept)"), "41");
    let process = worker(store, "red").expect("it runs");
    let others = worker(store, "blue").expect("it runs");
    let endless = "print('begun', flush=True)\nwhile True: pass";
    // One who streams, one who waits for the result, and a neighbour.
    let mut streaming = served.connect();
    let path = format!("/v1/sessions/{red}/runs");
    let accept = [("Accept", "application/x-ndjson")];
    served.send(&mut streaming, &two.red, "POST", &path, &accept, cell("py", endless).to_string().as_bytes());
    let mut reader = BufReader::new(streaming);
    eventually("it begins", || {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).expect("a line"), 0, "it ended");
        line.contains("begun").then_some(())
    });
    let waiting = session(&served, &two.red);
    let mut result = served.connect();
    let body = cell("py", "while True: pass").to_string();
    served.send(&mut result, &two.red, "POST", &format!("/v1/sessions/{waiting}/runs"), &[], body.as_bytes());
    eventually("both run", || {
        let told = ask(&served, &two.red, "GET", "/v1/tenant", json!({})).json();
        (told["runsUnderWay"] == 2).then_some(())
    });
    let mut neighbour = served.connect();
    let body = cell("py", "import time\ntime.sleep(3)\nprint('undisturbed')").to_string();
    served.send(&mut neighbour, &two.blue, "POST", &format!("/v1/sessions/{blue}/runs"), &[], body.as_bytes());
    kill(process);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("the stream ends as it should");
    assert!(rest.contains(r#""code":"worker_lost""#), "{rest}");
    let answer = Answer::read(result);
    assert_eq!((answer.status, answer.json()["code"].as_str()), (503, Some("worker_lost")), "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
    // The session is back in another process, with what was acknowledged, for who asks again as long as he is told to.
    let (path, code) = (format!("/v1/sessions/{red}/runs"), cell("py", "print(kept + 1)"));
    let back = eventually("the session is back", || {
        let answer = ask(&served, &two.red, "POST", &path, code.clone());
        (answer.status != 503).then_some(answer)
    });
    assert_eq!(back.json()["content"][0]["text"], "42", "{}", back.text());
    assert_ne!(worker(store, "red").expect("it runs again"), process);
    let answer = Answer::read(neighbour);
    assert!(answer.text().contains("undisturbed"), "{}", answer.text());
    assert_eq!(worker(store, "blue"), Some(others));
}

#[test]
fn a_worker_that_nobody_needs_goes_and_its_sessions_come_back() {
    let text = TEXT.replace("isolate = \"tenant\"", "isolate = \"tenant\"\nworker_idle = 1\nworkers = 1");
    let two = Two::new(&text);
    let (served, store) = (two.tenants.serve(), two.tenants.store.path());
    let red = session(&served, &two.red);
    assert_eq!(run_in(&served, &two.red, &red, "kept = 1\nprint(kept)"), "1");
    eventually("it goes", || worker(store, "red").is_none().then_some(()));
    assert_eq!(run_in(&served, &two.red, &red, "print(kept + 1)"), "2");
    // There is room for one: the one that is idle gives way to the other.
    let blue = session(&served, &two.blue);
    assert_eq!(run_in(&served, &two.blue, &blue, "print('blue')"), "blue");
    assert_eq!(run_in(&served, &two.red, &red, "print(kept + 2)"), "3");
}

#[test]
fn a_session_whose_time_is_over_is_removed_though_its_tenant_has_no_process() {
    let two = Two::new(&TEXT.replace("isolate = \"tenant\"", "isolate = \"tenant\"\nworker_idle = 1"));
    let (served, store) = (two.tenants.serve(), two.tenants.store.path());
    let passing = session(&served, &two.red);
    let staying = session(&served, &two.red);
    assert_eq!(run_in(&served, &two.red, &passing, "kept = 1\nprint(kept)"), "1");
    assert_eq!(run_in(&served, &two.red, &staying, "kept = 2\nprint(kept)"), "2");
    let ends = now() + 8;
    let place = format!("/v1/sessions/{passing}");
    assert_eq!(ask(&served, &two.red, "PATCH", &place, json!({"expiresAt": ends})).status, 200);
    let is_kept = |session: &str| {
        let mut folders = vec![store.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_name() == session {
                    return true;
                }
                folders.push(entry.path());
            }
        }
        false
    };
    eventually("it goes", || worker(store, "red").is_none().then_some(()));
    assert!(is_kept(&passing) || now() >= ends, "its time is not over");
    // Nobody asks for anything.
    eventually("it is removed", || (!is_kept(&passing)).then_some(()));
    assert_eq!(run_in(&served, &two.red, &staying, "print(kept)"), "2");
}

#[test]
fn a_worker_that_holds_more_memory_than_it_may_ends_alone() {
    let two = Two::new(&TEXT.replace("isolate = \"tenant\"", "isolate = \"tenant\"\nworker_memory_mib = 400"));
    let (served, store) = (two.tenants.serve(), two.tenants.store.path());
    let (red, blue) = (session(&served, &two.red), session(&served, &two.blue));
    assert_eq!(run_in(&served, &two.red, &red, "kept = 1\nprint(kept)"), "1");
    assert_eq!(run_in(&served, &two.blue, &blue, "print('blue')"), "blue");
    let (process, others) = (worker(store, "red").expect("it runs"), worker(store, "blue").expect("it runs"));
    // Each within the limits of its session, and together more than there is for the worker.
    let greedy = "import time\nheld = [bytearray(b'x' * (50 << 20)) for _ in range(4)]\ntime.sleep(1000)";
    let begun: Vec<_> = [session(&served, &two.red), session(&served, &two.red)]
        .iter()
        .map(|session| {
            let mut connection = served.connect();
            let (path, body) = (format!("/v1/sessions/{session}/runs"), cell("py", greedy).to_string());
            served.send(&mut connection, &two.red, "POST", &path, &[], body.as_bytes());
            connection
        })
        .collect();
    for connection in begun {
        let answer = Answer::read(connection);
        assert_eq!((answer.status, answer.json()["code"].as_str()), (503, Some("worker_lost")), "{}", answer.text());
    }
    let (path, code) = (format!("/v1/sessions/{red}/runs"), cell("py", "print(kept + 1)"));
    let back = eventually("the session is back", || {
        let answer = ask(&served, &two.red, "POST", &path, code.clone());
        (answer.status != 503).then_some(answer)
    });
    assert_eq!(back.json()["content"][0]["text"], "2", "{}", back.text());
    assert_ne!(worker(store, "red"), Some(process));
    assert_eq!(worker(store, "blue"), Some(others));
}

#[test]
fn a_client_of_lines_is_told_that_its_worker_was_lost() {
    let two = Two::new(TEXT);
    let (served, store) = (two.tenants.serve(), two.tenants.store.path());
    let mut socket = served.socket(&two.red, "/v1/stdio").expect("a WebSocket");
    let cells = json!([{"language": "py", "code": "print('begun', flush=True)\nwhile True: pass"}]);
    socket.send(Message::text(json!({"type": "run", "id": "r", "cells": cells}).to_string())).expect("it reads");
    let mut read = || socket.read().expect("a message");
    while !matches!(read(), Message::Text(text) if text.contains("begun")) {}
    kill(worker(store, "red").expect("it runs"));
    let closed = std::iter::repeat_with(read).find_map(|message| match message {
        Message::Close(closed) => Some(closed.expect("a reason")),
        _ => None,
    });
    let closed = closed.expect("an end");
    assert_eq!((u16::from(closed.code), closed.reason.as_str()), (1011, "worker_lost"));
}

#[test]
fn what_models_may_say_is_told_to_tenants_operators_and_those_who_watch() {
    let text = TEXT.replace("[tenants.red]", "[tenants.red]\nmodel_tokens_per_day = 1000");
    let two = Two::new(&text);
    let operator = two.tenants.token(&["new", "--tenant", "blue", "--scope", "admin", "--scope", "metrics"]);
    let served = two.tenants.serve();
    let expected = |quotas: &Value| {
        let quota = &quotas["model_tokens_per_day"];
        assert_eq!((&quota["limit"], &quota["used"]), (&json!(1_000), &json!(0)), "{quotas}");
        assert!(quota["resetsAt"].is_u64(), "{quotas}");
    };
    expected(&ask(&served, &two.red, "GET", "/v1/tenant", json!({})).json()["quotas"]);
    // Whoever asks has no word in it.
    let forged = [("Cellar-Quotas-In-Front", r#"{"model_tokens_per_day": {"limit": 1}}"#)];
    expected(&served.ask_as(&two.red, "GET", "/v1/tenant", &forged, b"").json()["quotas"]);
    assert_eq!(served.ask_as(&two.blue, "GET", "/v1/tenant", &forged, b"").json()["quotas"], json!({}));
    expected(&ask(&served, &operator, "GET", "/v1/admin/tenants/red", json!({})).json()["quotas"]);
    let metrics = ask(&served, &operator, "GET", "/metrics", json!({})).text().to_owned();
    let line = |line: &str| assert_eq!(metrics.lines().filter(|found| *found == line).count(), 1, "{line}\n{metrics}");
    line("cellar_quota_limit{tenant=\"red\",quota=\"model_tokens_per_day\"} 1000");
    line("cellar_quota_used{tenant=\"red\",quota=\"model_tokens_per_day\"} 0");
    line("cellar_sessions_open{tenant=\"red\"} 0");
    line("# TYPE cellar_quota_limit gauge");
    line("# TYPE cellar_sessions_open gauge");
}

#[test]
fn whoever_runs_the_server_sees_and_steers_all_tenants() {
    let two = Two::new(TEXT);
    let operator = two.tenants.token(&["new", "--tenant", "blue", "--scope", "admin"]);
    let (served, store) = (two.tenants.serve(), two.tenants.store.path());
    let admin = |method: &str, path: &str| ask(&served, &operator, method, &format!("/v1/admin/{path}"), json!({}));
    assert_eq!(ask(&served, &two.red, "GET", "/v1/admin/tenants", json!({})).status, 403);
    let red = session(&served, &two.red);
    assert_eq!(run_in(&served, &two.red, &red, "print(1)"), "1");
    let told = admin("GET", "tenants").json();
    let of =
        |name: &str| told["tenants"].as_array().expect("tenants").iter().find(|one| one["tenant"] == name).cloned();
    assert_eq!(of("red").expect("it is listed")["sessionsOpen"], 1, "{told}");
    assert_eq!(of("blue").expect("it is listed")["sessionsOpen"], 0, "{told}");
    assert!(worker(store, "blue").is_none(), "nobody was started to be looked at");
    let told = admin("GET", "tenants/red").json();
    assert_eq!((&told["sessionsStored"], &told["sessions"][0]["session"]), (&json!(1), &json!(red)), "{told}");
    assert!(told["requestsByStatus"]["200"].as_u64().is_some_and(|count| count >= 1), "{told}");
    assert_eq!(admin("GET", "tenants/green").status, 404);
    // A token that was made meanwhile holds from the next reading of the file on, in the worker as well.
    let new = two.tenants.token(&["new", "--tenant", "red"]);
    assert_eq!(admin("POST", "reload").status, 204);
    assert_eq!(run_in(&served, &new, &red, "print(2)"), "2");
    assert_eq!(admin("POST", "drain").status, 204);
    let path = format!("/v1/sessions/{red}/runs");
    eventually("work is refused", || {
        (ask(&served, &two.red, "POST", &path, cell("py", "3")).status == 503).then_some(())
    });
    assert_eq!(admin("DELETE", "drain").status, 204);
    eventually("work is taken", || {
        (ask(&served, &two.red, "POST", &path, cell("py", "3")).status == 200).then_some(())
    });
}

#[test]
fn a_request_that_changes_nothing_is_passed_on_again_when_its_worker_dies_of_it() {
    let two = Two::new(TEXT);
    let store = two.tenants.store.path();
    let log = [("CELLAR_LOG", "cellar_server::workers=debug")];
    let mut served = Served::start_with(store, &["--config", &two.tenants.config], Stdio::piped(), &log);
    let mut log = BufReader::new(served.process.stderr.take().expect("a pipe")).lines();
    let mut until =
        |word: &str| log.find(|line| line.as_ref().is_ok_and(|line| line.contains(word))).expect("it is logged");
    let red = session(&served, &two.red);
    let process = worker(store, "red").expect("it runs");
    // It takes the request, and answers nothing any more, when its threads have stopped: the signal is only sent by then.
    signal(process, "-STOP");
    eventually("it stops", || is_stopped(process).then_some(()));
    let mut waiting = served.connect();
    served.send(&mut waiting, &two.red, "GET", &format!("/v1/sessions/{red}"), &[], b"");
    until("GET").expect("text");
    kill(process);
    let answer = Answer::read(waiting);
    assert_eq!((answer.status, &answer.json()["session"]), (200, &json!(red)), "{}", answer.text());
    until("is passed on again").expect("text");
    assert_ne!(worker(store, "red").expect("it runs again"), process);
}
