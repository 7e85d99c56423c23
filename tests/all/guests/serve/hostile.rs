//! Clients that mean harm, or know no better.

use super::*;

#[test]
fn requests_that_are_none_are_refused_and_others_are_unaffected() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    served.run(&session, "py", "x = 'mine'");
    let authorization = format!("Authorization: Bearer {}\r\n", served.token);
    let send = |request: &[u8]| {
        let mut stream = served.connect();
        // What is refused early is not read to its end.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_owned()
    };
    let head =
        |rest: &str| format!("POST /v1/eval HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}{rest}\r\n");
    // A gigabyte is refused by what it says of itself, and when it says nothing.
    assert!(send(head("Content-Length: 1073741824\r\n").as_bytes()).contains(" 413 "), "a large body");
    let mut endless = head("Transfer-Encoding: chunked\r\n").into_bytes();
    let chunk = vec![b' '; 1 << 20];
    for _ in 0..66 {
        endless.extend_from_slice(b"100000\r\n");
        endless.extend_from_slice(&chunk);
        endless.extend_from_slice(b"\r\n");
    }
    let answer = send(&endless);
    assert!(answer.is_empty() || answer.contains(" 413 "), "{answer}");
    let many: String = (0..100_000).map(|n| format!("X-{n}: y\r\n")).collect();
    let answer = send(head(&many).as_bytes());
    assert!(answer.is_empty() || answer.contains(" 431 "), "{answer}");
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(200_000));
    let answer = send(long.as_bytes());
    assert!(answer.is_empty() || answer.contains(" 414 ") || answer.contains(" 431 "), "{answer}");
    // TLS where none is: whatever it is answered, those who come next are served.
    send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    for lengths in ["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n"]
    {
        let smuggled = format!("{}0\r\n\r\nGET /v1/tenant HTTP/1.1\r\nHost: x\r\n\r\n", head(lengths));
        let answer = send(smuggled.as_bytes());
        assert!(answer.contains(" 400 "), "{lengths}: {answer}");
    }
    // Bodies that are no requests.
    let deep = [vec![b'['; 1 << 20], vec![b']'; 1 << 20]].concat();
    let bodies: [&[u8]; 6] =
        [&deep, b"{\"cells\": [\"\xff\xfe\"]}", b"{", b"null", b"\0", b"{\"cells\": [], \"cells\": []}"];
    for body in bodies {
        let answer = served.ask("POST", "/v1/eval", &[], body);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "invalid"), "{:?}", &body[..body.len().min(20)]);
    }
    for key in ["", &"k".repeat(300), "\u{7f}"] {
        let answer = served.ask("POST", "/v1/sessions", &[("Idempotency-Key", key)], b"{}");
        assert_eq!(answer.status, 400, "{key:?}: {}", answer.text());
    }
    assert_eq!(served.run(&session, "py", "x"), "'mine'");
}

#[test]
fn who_is_refused_before_it_has_written_all_finds_its_connection_open() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let body = vec![b'x'; 8 << 20];
    let refused = "/v1/sessions/none/files/x";
    for (path, status) in [(refused, " 404 "), ("/v1/eval", " 401 ")] {
        let mut stream = served.connect();
        let authorization = format!("Authorization: Bearer {}\r\n", served.token);
        let known = if status == " 404 " { authorization.as_str() } else { "" };
        let length = body.len();
        let head = format!("PUT {path} HTTP/1.1\r\nHost: x\r\n{known}Content-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads the head");
        let mut answer = BufReader::new(stream.try_clone().expect("a handle"));
        let mut line = String::new();
        answer.read_line(&mut line).expect("an answer, before there is a body");
        assert!(line.contains(status), "{path}: {line}");
        stream.write_all(&body).expect("it reads the body");
        let next = format!("GET /v1/tenant HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}\r\n");
        stream.write_all(next.as_bytes()).expect("it reads the next head");
        let mut rest = String::new();
        answer.read_to_string(&mut rest).expect("an answer, and its end");
        assert!(rest.contains("HTTP/1.1 200 OK"), "{path}: {rest}");
    }
}

#[test]
fn paths_lead_nowhere_else() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    let files = format!("/v1/sessions/{session}/files");
    served.run(
        &session,
        "py",
        "import os\nfor target in ['/etc/passwd', '../../..', '/proc/self/environ']:\n    try: os.symlink(target, 'link')\n    except OSError as error: print(error)",
    );
    let tricks = [
        "../../../../etc/passwd",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "link",
        "link/etc/passwd",
        "a%00b",
        "a%ff",
        "....//....//etc/passwd",
        "..%5c..%5cetc%5cpasswd",
        &"a/".repeat(5_000),
        &"b".repeat(5_000),
    ];
    for trick in tricks {
        for method in ["GET", "DELETE"] {
            let answer = served.ask(method, &format!("{files}/{trick}"), &[], b"");
            let is_refused = matches!(answer.status, 400 | 403 | 404 | 409);
            let is_link = method == "DELETE" && trick == "link" && answer.status == 204;
            assert!(is_refused || is_link, "{method} {trick}: {} {}", answer.status, answer.text());
            assert!(!answer.text().contains("root:"), "{trick}");
        }
    }
    for trick in ["..%2f..%2fescaped", "%2ftmp%2fescaped", "a%00b"] {
        let answer = served.ask("PUT", &format!("{files}/{trick}"), &[], b"x");
        assert_eq!(answer.status, 400, "{trick}: {}", answer.text());
    }
    let long = served.ask("PUT", &format!("{files}/{}", "b".repeat(5_000)), &[], b"x");
    assert!((400..500).contains(&long.status), "{}", long.text());
    // Names of sessions, runs and snapshots are no paths either.
    for name in ["..%2f.tokens.json", "%2e%2e", ".tokens.json", "%00", "..%2f..%2f..%2fetc"] {
        for place in [
            format!("/v1/sessions/{name}"),
            format!("/v1/snapshots/{name}"),
            format!("/v1/artifacts/{name}"),
            format!("/v1/runs/{name}"),
        ] {
            let answer = served.get(&place);
            assert!(matches!(answer.status, 400 | 404), "{place}: {} {}", answer.status, answer.text());
        }
        let answer = served.post("/v1/sessions", json!({"session": name.replace("%2f", "/").replace("%2e", ".")}));
        assert_eq!((answer.status, answer.problem().as_str()), (400, "session-name"), "{name}");
    }
    // What a session may write is bounded.
    let large = vec![0; 1 << 20];
    let mut stream = served.connect();
    let head = format!(
        "PUT {files}/large HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: 1073741824\r\n\r\n",
        served.token
    );
    let _ = stream.write_all(head.as_bytes());
    while stream.write_all(&large).is_ok() {}
    let listed = served.get(&files).json();
    let entries = listed["entries"].as_array().expect("a list");
    assert!(entries.iter().all(|entry| entry["name"] != "large"), "{listed}");
}

#[test]
fn connections_that_say_nothing_take_no_place_from_others() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let idle: Vec<TcpStream> = (0..500).map(|_| served.connect()).collect();
    for stream in &idle[..250] {
        let mut stream = stream;
        stream.write_all(b"POST /v1/eval HTTP/1.1\r\nHost: x\r\nX-").expect("it reads");
    }
    assert_eq!(served.post("/v1/eval", cell("py", "1 + 1")).json()["content"][0]["text"], "2");
    drop(idle);
    // Many requests on one connection, none of which waits for the answer to the one before.
    let mut stream = served.connect();
    let one = format!("GET /v1/tenant HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", served.token);
    let mut reader = stream.try_clone().expect("a handle");
    let counted = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = reader.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).matches("HTTP/1.1 200").count()
    });
    let last = one.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    stream.write_all((one.repeat(999) + &last).as_bytes()).expect("it reads");
    assert_eq!(counted.join().expect("a count"), 1_000);
}

/// Opens as many connections as it is told, each of which begins a request and does not end it, and holds them.
const CROWD: &str = r"
import resource, socket, sys
host, port = sys.argv[1].split(':')
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 20_000), most))
crowd = []
for n in range(min(int(sys.argv[2]), min(most, 20_000) - 100)):
    each = socket.create_connection((host, int(port)))
    begun = [b'', b'P', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', b'GET /v1/tenant HTTP/1.1\r\nX-'][n % 4]
    try:
        each.sendall(begun)
    except OSError:
        pass
    crowd.append(each)
print(len(crowd), flush=True)
sys.stdin.read()
";

#[test]
fn a_crowd_that_says_nothing_keeps_nobody_out() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    // Somebody else's run is under way all the while.
    let mut stream = served.connect();
    let code = "import asyncio\nwhile 'go' not in globals(): await asyncio.sleep(0.05)\n'went'";
    let body = json!({"cells": [{"language": "py", "code": code, "timeout": 600}]}).to_string();
    let path = format!("/v1/sessions/{session}/runs");
    served.send(&mut stream, &served.token, "POST", &path, &[], body.as_bytes());
    let mut python = Command::new("python3");
    python.args(["-c", CROWD, &served.address, "10000"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut crowd = python.spawn().expect("python3 starts");
    let mut count = String::new();
    BufReader::new(crowd.stdout.take().expect("a pipe")).read_line(&mut count).expect("a number");
    assert!(count.trim().parse::<u32>().expect("a number") > 1_024, "{count}");
    for n in 0..20 {
        let began = std::time::Instant::now();
        assert_eq!(served.run(&session, "py", &format!("{n} + 1")), (n + 1).to_string());
        // Without room made for those who speak, it would wait until the crowd's 30 seconds are over.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
    served.run(&session, "py", "go = True");
    assert_eq!(Answer::read(stream).json()["content"][0]["text"], "'went'");
    drop(crowd.stdin.take());
    crowd.wait().expect("it ends");
}

#[test]
fn what_is_no_http_2_is_ended_and_others_are_unaffected() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let settings = frame(4, 0, 0, b"");
    let floods: [Vec<u8>; 5] = [
        // No settings, but noise.
        [preface.to_vec(), vec![0xff; 100_000]].concat(),
        // Settings, pings and resets without end.
        [preface.to_vec(), settings.repeat(100_000)].concat(),
        [preface.to_vec(), settings.clone(), frame(6, 0, 0, &[0; 8]).repeat(100_000)].concat(),
        [preface.to_vec(), settings.clone(), frame(3, 0, 1, &[0, 0, 0, 8]).repeat(10_000)].concat(),
        // A head that does not end.
        [preface.to_vec(), settings, frame(1, 0, 1, &[0x82; 100]), frame(9, 0, 1, &[0x82; 16_000]).repeat(1_000)]
            .concat(),
    ];
    for flood in floods {
        let mut stream = served.connect();
        stream.set_write_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let reader = stream.try_clone().expect("a handle");
        let ended = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = { reader }.read_to_end(&mut bytes);
        });
        let _ = stream.write_all(&flood);
        let _ = stream.shutdown(Shutdown::Both);
        ended.join().expect("it ends");
    }
    // A head in pieces that is one of HTTP/1 after all, and one that is too odd to be any.
    let mut stream = served.connect();
    for byte in b"PUT" {
        stream.write_all(&[*byte]).expect("it reads");
    }
    stream.write_all(b" /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    assert_eq!(Answer::read(stream).status, 404);
    assert_eq!(served.post("/v1/eval", cell("py", "1 + 1")).json()["content"][0]["text"], "2");
}
