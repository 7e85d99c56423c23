//! A process for each tenant: what it may not do, what its loss costs, and that everything else is as without it.

use std::{
    fs,
    time::{Duration, Instant},
};

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
struct Two {
    tenants: Tenants,
    red: String,
    blue: String,
}

impl Two {
    fn new(text: &str) -> Two {
        let scripts = root().join("fixtures/bridges");
        let tenants = Tenants::new(&text.replace("SCRIPTS", scripts.to_str().expect("text")));
        let (red, blue) = (tenants.token(&["new", "--tenant", "red"]), tenants.token(&["new", "--tenant", "blue"]));
        Two { tenants, red, blue }
    }
}

fn ask(served: &Served, token: &str, method: &str, path: &str, body: Value) -> Answer {
    served.ask_as(token, method, path, &[], body.to_string().as_bytes())
}

fn session(served: &Served, token: &str) -> String {
    let answer = ask(served, token, "POST", "/v1/sessions", json!({}));
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["session"].as_str().expect("a name").to_owned()
}

fn run_in(served: &Served, token: &str, session: &str, code: &str) -> String {
    let answer = ask(served, token, "POST", &format!("/v1/sessions/{session}/runs"), cell("py", code));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["content"][0]["text"].as_str().expect("text").to_owned()
}

/// The number of the process of a tenant of the server with this store, if it runs.
fn worker(store: &Path, tenant: &str) -> Option<u32> {
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
    let sent = Command::new("kill").args(["-9", &process.to_string()]).status().expect("kill");
    assert!(sent.success());
}

/// Waits for what comes soon.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
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
fn what_a_worker_cannot_have_is_refused_at_the_start() {
    let two = Two::new(&format!("{TEXT}\n[agents.helper]\ncommand = [\"true\"]\n"));
    let store = two.tenants.store.path().to_str().expect("text").to_owned();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", &store, "--config", &two.tenants.config];
    let ended = run(&mut cellar_with_guests(arguments));
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("[agents]") && ended.stderr.contains("tenant `red`"), "{}", ended.stderr);
}
