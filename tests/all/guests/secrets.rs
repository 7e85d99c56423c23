//! Credentials are placed wherever a configuration takes one, and everything that is used with them tells them, in
//! answers, errors, names and descriptions, in several encodings. Nothing that cells are told or that is kept of them,
//! and no log, has any.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use serde_json::json;

use crate::support::{cellar_with_guests, config, root, run, run_with_input};

/// The variables that hold them, and what they hold.
const SECRETS: [(&str, &str); 13] = [
    ("TATTLED_LLM", "llm-7f3a/9c+QQ=mVt0x"),
    ("TATTLED_HTTP", "http-1d8e/5b+RR=kLs2w"),
    ("TATTLED_MCP_HTTP", "mcph-6a2c/4f+SS=nJd8e"),
    ("TATTLED_MCP", "mcps-3e9b/7d+TT=pHg5r"),
    ("TATTLED_TOOL", "tool-8c4d/2a+UU=qFk1y"),
    ("TATTLED_AGENT", "agnt-5b7f/6e+VV=sDj3u"),
    ("TATTLED_INHERITED", "inht-0a1b/2c+WW=dEf4g"),
    ("TATTLED_ROWS", "rows-2b3c/4d+XX=gHi5j"),
    ("TATTLED_FEED", "feed-4c5d/6e+YY=kLm6n"),
    ("TATTLED_POSTGRES", "pgsq-6d7e/8f+ZZ=oPq7r"),
    ("TATTLED_MYSQL", "mysq-8e9f/0a+AA=sTu8v"),
    ("TATTLED_KEY", "s3ky-0f1a/2b+BB=wXy9z"),
    ("TATTLED_TOKEN", "s3tk-2a3b/4c+CC=aBc0d"),
];

const CONFIG: &str = r#"
[llm]
endpoint = "http://127.0.0.1:PORT/v1"
api_key_env = "TATTLED_LLM"
timeout = 1
[llm.tiers]
default = "m"
[http]
timeout = 1
[[http.allow]]
host = "127.0.0.1"
ports = [PORT]
schemes = ["http"]
private = true
headers_env = { authorization = "Bearer ${TATTLED_HTTP}" }
[mcp.far]
url = "http://127.0.0.1:PORT/mcp"
headers_env = { Authorization = "Bearer ${TATTLED_MCP_HTTP}" }
prefix = "far_"
timeout = 1
[mcp.near]
command = ["python3", "SCRIPTS/tattler.py", "mcp"]
environment = { SECRET = "MCP_VALUE" }
prefix = "near_"
timeout = 1
[tools.own]
command = ["python3", "SCRIPTS/tattler.py", "tool"]
environment = { SECRET = "TOOL_VALUE" }
timeout = 1
[tools.heir]
command = ["/bin/sh", "-c", "SECRET=$TATTLED_INHERITED exec python3 SCRIPTS/tattler.py tool"]
inherit = ["TATTLED_INHERITED"]
timeout = 1
[agents.task]
command = ["python3", "SCRIPTS/tattler.py", "tool"]
environment = { SECRET = "AGENT_VALUE" }
timeout = 1
[connectors.api]
kind = "http"
url = "http://127.0.0.1:PORT"
headers_env = { Authorization = "Bearer ${TATTLED_ROWS}" }
timeout = 2
fetches.rows = { path = "rows", rows = "/data" }
fetches.other = { path = "200" }
fetches.refused = { path = "404" }
fetches.broken = { path = "998" }
[connectors.feed]
kind = "command"
command = ["python3", "SCRIPTS/tattler.py", "tool"]
environment = { SECRET = "FEED_VALUE" }
fetches.latest = {}
[connectors.pg]
kind = "postgres"
url = "postgres://reader@127.0.0.1:PORT/shop"
password_env = "TATTLED_POSTGRES"
sql = true
timeout = 1
[connectors.my]
kind = "mysql"
url = "mysql://reader@127.0.0.1:PORT/shop"
password_env = "TATTLED_MYSQL"
sql = true
timeout = 1
[connectors.lake]
kind = "files"
url = "s3://bucket/lake"
options = { endpoint = "http://127.0.0.1:PORT", allow_http = "true", access_key_id = "reader", secret_access_key_env = "TATTLED_KEY", session_token_env = "TATTLED_TOKEN" }
timeout = 2
fetches.files = { path = "*.csv" }
[artifacts]
remote = "s3://bucket/kept"
remote_options = { endpoint = "http://127.0.0.1:PORT", allow_http = "true", access_key_id = "reader", secret_access_key_env = "TATTLED_KEY", session_token_env = "TATTLED_TOKEN" }
"#;

/// Every call, answered in every way, kept in memory and shown.
const PYTHON: &str = r#"
import urllib.request
kept = []
def keep(call, *args, **named):
    try:
        said = call(*args, **named)
    except BaseException as error:
        said = (str(error), repr(error), getattr(error, "headers", None) and str(error.headers))
    print(said)
    kept.append(str(said) * 100)
for prompt in ("tell", "schema", "refuse", "malformed", "slow", "400", "401", "429", "500"):
    keep(llm, prompt, schema={"type": "object", "required": ["b"]} if prompt == "schema" else None)
def fetch(path):
    with urllib.request.urlopen(f"http://127.0.0.1:PORT/{path}") as answer:
        return str(answer.headers), answer.read(), answer.url
for path in ("200", "301", "404", "500", "998", "999"):
    keep(fetch, path)
for prefix in ("far_", "near_"):
    for name in ("tell", "fail", "break", "hang", "tell"):
        keep(getattr(tool, prefix + name))
        keep(getattr(tool, prefix + name).spec)
for each in (tool.own, tool.heir):
    for how in ("tell", "fail", "malformed", "hang"):
        keep(each, how=how)
for how in ("tell", "fail", "malformed", "hang"):
    keep(agent, how)
for each in (api.rows, api.other, api.refused, api.broken, feed.latest, lake.files, connectors):
    keep(each)
for each in (pg, my):
    keep(each.sql, "select 1")
open("kept.txt", "w").write("".join(kept))
len(kept)
"#;

const JAVASCRIPT: &str = r#"
globalThis.kept = [];
const keep = async (call) => {
    let said;
    try {
        said = JSON.stringify(await call());
    } catch (error) {
        said = `${error} ${error.stack}`;
    }
    console.log(said);
    kept.push(said.repeat(100));
};
for (const prompt of ["tell", "refuse", "malformed", "slow", "400", "401", "500"]) await keep(() => llm(prompt));
for (const path of ["200", "301", "404", "998", "999"]) {
    await keep(async () => {
        const answer = await fetch(`http://127.0.0.1:PORT/${path}`, { redirect: "manual" });
        return [answer.statusText, [...answer.headers], await answer.text()];
    });
}
for (const prefix of ["far_", "near_"]) {
    for (const name of ["tell", "fail", "break", "hang"]) await keep(() => tool[prefix + name]({}));
}
for (const how of ["tell", "fail", "malformed"]) {
    for (const each of [tool.own, tool.heir]) await keep(() => each({ how }));
    await keep(() => agent(how));
}
for (const each of [api.rows, api.other, api.refused, api.broken, feed.latest, lake.files]) await keep(() => each());
for (const each of [pg, my]) await keep(() => each.sql({ query: "select 1" }));
await write("kept-too.txt", kept.join(""));
kept.length
"#;

struct Tattler(Child, String);

impl Tattler {
    fn start() -> Tattler {
        let script = root().join("fixtures/bridges/tattler.py");
        let mut process = Command::new("python3").arg(script).stdout(Stdio::piped()).spawn().expect("python3 starts");
        let mut port = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut port).expect("a port");
        Tattler(process, port.trim().to_owned())
    }
}

impl Drop for Tattler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A credential as it is, in a URL, and in base64 wherever it begins.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let url: String = secret
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let base64 = ["", "a", "ab"].map(|before| {
        let encoded = STANDARD_NO_PAD.encode(format!("{before}{secret}"));
        // Without what depends on its neighbours.
        encoded[4..encoded.len() - 2].to_owned()
    });
    [secret.to_owned(), url].into_iter().chain(base64).map(String::into_bytes).collect()
}

/// Returns the content of all zstd frames in these bytes: recordings, snapshots and stored sessions hold such frames.
fn unpacked(bytes: &[u8]) -> Vec<u8> {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let mut all = Vec::new();
    for start in 0..bytes.len().saturating_sub(MAGIC.len()) {
        if bytes[start..].starts_with(&MAGIC)
            && let Ok(decoder) = zstd::Decoder::with_buffer(&bytes[start..])
        {
            // What is behind the frame is none, and ends it.
            let _ = decoder.single_frame().read_to_end(&mut all);
        }
    }
    all
}

/// Asserts that `bytes` have no credential, packed or not.
fn assert_clean(what: &str, bytes: &[u8]) {
    let inside = unpacked(bytes);
    for (name, secret) in SECRETS {
        for form in forms(secret) {
            for searched in [bytes, &inside] {
                let found = searched.windows(form.len()).position(|window| window == form);
                if let Some(at) = found {
                    let around = &searched[at.saturating_sub(80)..(at + 80).min(searched.len())];
                    panic!("{what} has {name}: {}", String::from_utf8_lossy(around));
                }
            }
        }
    }
}

fn assert_folder_clean(folder: &Path) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files += assert_folder_clean(&path);
        } else if path.is_file() {
            files += 1;
            assert_clean(&path.display().to_string(), &fs::read(&path).expect("a file"));
        }
    }
    files
}

#[test]
fn no_credential_is_told_kept_or_logged() {
    let tattler = Tattler::start();
    let value = |name: &str| SECRETS.iter().find(|(each, _)| *each == name).expect("a secret").1;
    let text = CONFIG
        .replace("PORT", &tattler.1)
        .replace("MCP_VALUE", value("TATTLED_MCP"))
        .replace("TOOL_VALUE", value("TATTLED_TOOL"))
        .replace("AGENT_VALUE", value("TATTLED_AGENT"))
        .replace("FEED_VALUE", value("TATTLED_FEED"));
    let (_folder, path) = config(&text);
    let kept = tempfile::tempdir().expect("a folder");
    let inside = |name: &str| kept.path().join(name).display().to_string();
    let with = |arguments: &[&str]| {
        let mut command = cellar_with_guests(arguments);
        command.env("CELLAR_LOG", "trace").env("TMPDIR", kept.path());
        command.envs(SECRETS);
        command
    };
    let path = path.display().to_string();
    let store = inside("store");
    for (output, language, code) in
        [("--events", "py", PYTHON), ("--json", "js", JAVASCRIPT), ("--plain", "py", PYTHON)]
    {
        let request =
            json!({"cells": [{"language": language, "code": code.replace("PORT", &tattler.1), "timeout": 120}]});
        let (recording, audit) = (inside(&format!("{output}.recording")), inside("audit.jsonl"));
        let flags = ["--session", "told", "--store", &store, "--record", &recording, "--audit", &audit];
        let mut command = with(&["run", "-", output, "--config", &path]);
        let ended = run_with_input(command.args(flags), request.to_string().as_bytes());
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, &ended.stderr[ended.stderr.len().saturating_sub(2000)..]);
        assert!(ended.stdout.matches("***").count() > 50, "what was told was found: {}", ended.stdout);
        assert!(ended.stderr.contains("TRACE"), "all was logged");
        assert_clean(&format!("the output with {output}"), ended.stdout.as_bytes());
        assert_clean(&format!("the log with {output}"), ended.stderr.as_bytes());
        let replayed = run(&mut with(&["replay", &recording, "--events"]));
        assert_eq!(replayed.code, 0, "{}", replayed.stderr);
        assert_clean("what is replayed", replayed.stdout.as_bytes());
    }
    let snapshot = inside("told.snapshot");
    assert_eq!(run(&mut with(&["session", "snapshot", "told", &snapshot, "--store", &store])).code, 0);
    let doctor = run(&mut with(&["doctor", "--config", &path]));
    assert_clean("the doctor", (doctor.stdout + &doctor.stderr).as_bytes());
    // The configuration itself lies elsewhere.
    assert!(assert_folder_clean(kept.path()) > 8, "all was searched");
    let unpacked = unpacked(&fs::read(&snapshot).expect("a snapshot"));
    assert!(unpacked.windows(3).any(|window| window == b"***"), "memory was searched");
}
