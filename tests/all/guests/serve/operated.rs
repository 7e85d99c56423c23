//! Instruments of operators, and how a server starts.

use super::{tenants::Tenants, *};

#[test]
fn metrics_tell_what_cells_came_to_how_long_it_took_and_who_waits() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &["--timeout", "1"]);
    for (language, code) in [("py", "1"), ("py", "1 / 0"), ("js", "for (;;) {}")] {
        assert_eq!(served.post("/v1/eval", cell(language, code)).status, 200);
    }
    let session = served.session(json!({}));
    served.run(&session, "py", "1");
    assert_eq!(served.post(&format!("/v1/sessions/{session}/hibernate"), json!({})).status, 204);
    let told = served.get("/metrics").text();
    let value = |line: &str| -> f64 {
        let found = told.lines().find_map(|found| found.strip_prefix(line));
        found.unwrap_or_else(|| panic!("{line}: {told}")).trim().parse().expect("a number")
    };
    for (language, outcome, count) in [("py", "complete", 2.0), ("py", "raised", 1.0), ("js", "timeout", 1.0)] {
        let labels = format!("tenant=\"own\",language=\"{language}\",outcome=\"{outcome}\"");
        assert!((value(&format!("cellar_cell_duration_seconds_count{{{labels}}}")) - count).abs() < 0.1, "{outcome}");
        assert!((value(&format!("cellar_cell_duration_seconds_bucket{{{labels},le=\"+Inf\"}}")) - count).abs() < 0.1);
    }
    let timeouts = "cellar_cell_duration_seconds_bucket{tenant=\"own\",language=\"js\",outcome=\"timeout\",le=\"0.5\"}";
    assert!(value(timeouts) < 0.1, "it took a second");
    assert!(value("cellar_request_duration_seconds_count{route=\"/v1/eval\"}") > 2.9);
    assert!(value("process_resident_memory_bytes ") > 1e6 && value("process_open_fds ") > 3.0);
    assert!(value("process_start_time_seconds ") > 1.7e9 && value("process_cpu_seconds_total ") > 0.0);
    let build = format!("cellar_build_info{{version=\"{}\"}} ", env!("CARGO_PKG_VERSION"));
    assert!((value(&build) - 1.0).abs() < 0.1 && value("cellar_kernels_waiting{tenant=\"own\"} ") < 0.1);
    assert!(
        value("cellar_sessions_sleeping{tenant=\"own\"} ") >= 0.0
            && value("cellar_kernels_awake{tenant=\"own\"} ") >= 0.0
    );
    // A line of the text for each family that is told of, once.
    let families: Vec<&str> = told.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let mut once = families.clone();
    once.dedup();
    assert_eq!(families, once);
}

#[test]
fn a_second_server_on_the_same_sessions_is_refused_in_words() {
    let store = tempfile::tempdir().expect("a folder");
    let folder = store.path().to_str().expect("text");
    let first = Served::start(store.path(), &[]);
    let second = run(&mut cellar_with_guests(["serve", "--listen", "0", "--store", folder]));
    let said = format!("another server keeps its sessions in `{folder}`");
    assert!(second.code == 2 && second.stderr.contains(&said), "{} {}", second.code, second.stderr);
    assert!(second.stderr.contains("stop it first, or name another folder with --store"), "{}", second.stderr);
    // Other commands go on beside it, and the next server takes over from one that was killed.
    assert_eq!(run(&mut cellar_with_guests(["eval", "-l", "js", "1", "--session", "x", "--store", folder])).code, 0);
    first.signal("-KILL");
    first.ended();
    assert_eq!(Served::start(store.path(), &[]).get("/healthz").status, 200);
}

#[test]
fn a_token_is_good_and_gone_without_a_word_to_the_server() {
    let tenants = Tenants::new("[tenants.red]\n[tenants.blue]\n");
    let served = tenants.serve();
    let red = tenants.token(&["new", "--tenant", "red", "--name", "late"]);
    let status = || served.ask_as(&red, "GET", "/v1/tenant", &[], b"").status;
    eventually("the token is taken", || (status() == 200).then_some(()));
    tenants.token(&["revoke", red.split('_').nth(1).expect("an id")]);
    eventually("the token is not taken any more", || (status() == 401).then_some(()));
}

#[test]
fn an_address_that_is_none_is_refused_with_examples() {
    let odd = run(&mut cellar_with_guests(["serve", "--listen", "everywhere"]));
    assert!(odd.code == 2 && odd.stderr.contains("such as 8700"), "{}", odd.stderr);
}

/// Returns what a server whose address is a port alone writes with this configuration while it starts, answers a request and stops.
fn log_of(text: &str, lines: usize) -> (String, String) {
    let (_folder, path) = config(text);
    let store = tempfile::tempdir().expect("a folder");
    let arguments = [
        "serve",
        "--listen",
        "0",
        "--config",
        path.to_str().expect("text"),
        "--store",
        store.path().to_str().expect("text"),
    ];
    let mut process = cellar_with_guests(arguments).stderr(Stdio::piped()).spawn().expect("starts");
    let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
    let mut begun = String::new();
    for _ in 0..lines {
        output.read_line(&mut begun).expect("a line");
    }
    let address = begun.split("127.0.0.1:").nth(1).expect("an address");
    let port: String = address.chars().take_while(char::is_ascii_digit).collect();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("sent");
    stream.read_to_string(&mut String::new()).expect("answered");
    let sent = Command::new("kill").args(["-TERM", &process.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    let mut errors = String::new();
    process.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("text");
    process.wait().expect("it ends");
    (begun, errors)
}

#[test]
fn the_start_each_request_and_the_end_are_logged_as_text_and_as_json() {
    let (_, text) = log_of("", 3);
    for word in ["serving", "method=GET", "status=200", "took_ms=", "stopping", "stopped"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let (begun, lines) = log_of("[server]\nlogs = \"json\"\n", 1);
    let begun: Value = serde_json::from_str(&begun).expect("JSON");
    assert!(begun["message"] == "serving" && begun["token"].as_str().is_some_and(|token| token.starts_with("cel_")));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON alone")).collect();
    let messages: Vec<&str> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
    assert_eq!(messages.first(), Some(&"serving"));
    assert_eq!((messages.contains(&"request"), messages.last()), (true, Some(&"stopped")), "{messages:?}");
}
