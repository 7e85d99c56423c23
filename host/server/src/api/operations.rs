//! What may be asked under `/v1`: the routes and the API description are both made of this one list.

/// A request that has a meaning.
#[derive(Debug)]
pub(crate) struct Operation {
    /// `GET` stands for `HEAD` as well.
    pub(crate) method: &'static str,
    /// Where: `{name}` is one name, but `{path}` is any number of them.
    pub(crate) path: &'static str,
    /// What it does.
    pub(crate) summary: &'static str,
    /// What may stand behind `?`: names, and what they are.
    pub(crate) query: &'static [(&'static str, Kind, &'static str)],
    /// What it has as its body: the name of a schema, and an example that can be carried out.
    pub(crate) body: Option<(&'static str, &'static str)>,
    /// The status of what is done, and what is in the answer.
    pub(crate) answer: (u16, Content),
}

/// The kind of a value behind `?`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Language,
}

/// What is in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing.
    Empty,
    /// JSON by the schema of this name.
    Json(&'static str),
    /// JSON that is not described further.
    Object,
    /// The result of a run by the schema of this name, or its events as lines or as server-sent events.
    Run(&'static str),
    /// Bytes.
    Bytes,
    /// A file, or what is in a folder, as JSON or as tar.
    FileOrFolder,
    /// A WebSocket.
    Socket,
}

const WAIT: (&str, Kind, &str) = ("wait", Kind::Number, "seconds to wait for it, 60 at most");
const LANGUAGE: (&str, Kind, &str) = ("language", Kind::Language, "`py` unless given");
const PAGE: [(&str, Kind, &str); 2] = [
    ("limit", Kind::Number, "how many there are on a page, 100 unless given, 1,000 at most"),
    ("after", Kind::Text, "`next` of the page before"),
];
const VIEW: [(&str, Kind, &str); 4] = [
    ("from", Kind::Number, "where the page begins: a row of a table, a character of a text"),
    ("rows", Kind::Number, "rows of a table on a page"),
    ("characters", Kind::Number, "characters of a text, bytes of a table's rows on a page"),
    ("valueCharacters", Kind::Number, "characters of one value of a table"),
];
const CELL: &str = r#"{"cells": [{"language": "py", "code": "6 * 7"}]}"#;

const fn get(path: &'static str, summary: &'static str, content: Content) -> Operation {
    Operation { method: "GET", path, summary, query: &[], body: None, answer: (200, content) }
}

const fn post(
    path: &'static str,
    summary: &'static str,
    body: Option<(&'static str, &'static str)>,
    answer: (u16, Content),
) -> Operation {
    Operation { method: "POST", path, summary, query: &[], body, answer }
}

const fn delete(path: &'static str, summary: &'static str) -> Operation {
    Operation { method: "DELETE", path, summary, query: &[], body: None, answer: (204, Content::Empty) }
}

/// All of them.
pub(crate) static OPERATIONS: &[Operation] = &[
    post("/v1/eval", "Run cells in a session of their own", Some(("NewEval", CELL)), (200, Content::Run("Result"))),
    Operation { query: &PAGE, ..get("/v1/sessions", "List sessions, by name", Content::Json("Sessions")) },
    post(
        "/v1/sessions",
        "Make a session",
        Some((
            "NewSession",
            r#"{"input": true, "idleAfter": 600, "tools": [{"name": "add", "description": "adds two numbers"}]}"#,
        )),
        (201, Content::Json("Session")),
    ),
    get("/v1/sessions/{session}", "Show a session", Content::Json("Session")),
    Operation {
        method: "PATCH",
        path: "/v1/sessions/{session}",
        summary: "Change when a session is put to sleep, and when it ends",
        query: &[],
        body: Some(("SessionChange", r#"{"idleAfter": 120, "expiresAt": null}"#)),
        answer: (200, Content::Json("Session")),
    },
    delete("/v1/sessions/{session}", "End and remove a session"),
    post(
        "/v1/sessions/{session}/runs",
        "Run cells in a session",
        Some((
            "NewRun",
            r#"{"cells": [{"language": "js", "code": "[1, 2].map((n) => n * 2)"}], "keepGoing": true, "onDisconnect": "continue"}"#,
        )),
        (200, Content::Run("Result")),
    ),
    get("/v1/sessions/{session}/stdio", "Speak the lines of `cellar stdio` over a WebSocket", Content::Socket),
    get("/v1/stdio", "The same, in sessions that go with the connection", Content::Socket),
    Operation {
        query: &[WAIT],
        ..get("/v1/sessions/{session}/calls", "List calls of tools that wait for an answer", Content::Json("Calls"))
    },
    post(
        "/v1/sessions/{session}/calls/{call}",
        "Answer a call of a tool",
        Some(("Reply", r#"{"result": 3}"#)),
        (204, Content::Empty),
    ),
    post(
        "/v1/sessions/{session}/reset",
        "Give a session fresh kernels",
        Some(("Reset", r#"{"language": "py"}"#)),
        (204, Content::Empty),
    ),
    post("/v1/sessions/{session}/hibernate", "Put a session to sleep", None, (204, Content::Empty)),
    post(
        "/v1/sessions/{session}/fork",
        "Make a session with the state of another one",
        Some(("Fork", "{}")),
        (201, Content::Json("Session")),
    ),
    post(
        "/v1/sessions/{session}/rewind",
        "Take a session back to a snapshot",
        Some(("Rewind", r#"{"snapshot": "{snapshot}"}"#)),
        (204, Content::Empty),
    ),
    post("/v1/sessions/{session}/snapshots", "Keep the state of a session", None, (201, Content::Json("Snapshot"))),
    Operation {
        query: &[LANGUAGE],
        ..get("/v1/sessions/{session}/variables", "List the names of a session", Content::Json("Variables"))
    },
    Operation {
        query: &[LANGUAGE],
        ..get("/v1/sessions/{session}/variables/{name}", "Show a value", Content::Json("Bundle"))
    },
    Operation {
        query: &[LANGUAGE],
        ..get("/v1/sessions/{session}/origins", "Tell where the names of a session come from", Content::Json("Origins"))
    },
    post(
        "/v1/sessions/{session}/complete",
        "Complete code at a cursor",
        Some(("Look", r#"{"language": "py", "code": "imp"}"#)),
        (200, Content::Json("Completions")),
    ),
    post(
        "/v1/sessions/{session}/inspect",
        "Show help at a cursor",
        Some(("Look", r#"{"language": "py", "code": "print", "cursor": 3}"#)),
        (200, Content::Json("Bundle")),
    ),
    get("/v1/sessions/{session}/files/{path}", "Read a file, or list a folder", Content::FileOrFolder),
    Operation {
        method: "PUT",
        path: "/v1/sessions/{session}/files/{path}",
        summary: "Write a file, whole; where the path ends with `/`, make a folder, with what is in a tar if there is one",
        query: &[],
        body: Some(("", "a,b\n1,2\n")),
        answer: (201, Content::Empty),
    },
    delete("/v1/sessions/{session}/files/{path}", "Remove a file, or a folder that is empty"),
    Operation { query: &[WAIT], ..get("/v1/runs/{run}", "Show a run", Content::Json("Run")) },
    Operation {
        query: &[("after", Kind::Text, "the number of the last event that is known")],
        ..get("/v1/runs/{run}/events", "Follow a run, from any event", Content::Run("StreamLine"))
    },
    Operation {
        query: &VIEW,
        ..get("/v1/runs/{run}/outputs", "Show the first page of each output, for a model", Content::Json("RunOutputs"))
    },
    Operation {
        query: &VIEW,
        ..get("/v1/runs/{run}/outputs/{output}", "Show a page of an output, for a model", Content::Json("RunOutputs"))
    },
    post("/v1/runs/{run}/cancel", "Stop a run", None, (204, Content::Empty)),
    post(
        "/v1/runs/{run}/input",
        "Answer a request for input",
        Some(("Input", r#"{"request_id": "{request}", "value": "Ada"}"#)),
        (204, Content::Empty),
    ),
    post(
        "/v1/runs/{run}/calls/{call}",
        "Answer a call of a tool",
        Some(("Reply", r#"{"error": "out of paper"}"#)),
        (204, Content::Empty),
    ),
    Operation { query: &PAGE, ..get("/v1/snapshots", "List snapshots, by id", Content::Json("Snapshots")) },
    get("/v1/snapshots/{snapshot}", "Read a snapshot", Content::Bytes),
    delete("/v1/snapshots/{snapshot}", "Remove a snapshot"),
    Operation {
        query: &PAGE,
        ..get("/v1/artifacts", "List outputs that results do not show whole, by id", Content::Object)
    },
    get("/v1/artifacts/{artifact}", "Read one of them", Content::Bytes),
    get("/v1/tenant", "Show who asks, and what may be used", Content::Object),
    get("/v1/languages", "List languages", Content::Object),
    get("/v1/admin/tenants", "List tenants, with what they use", Content::Object),
    get("/v1/admin/tenants/{tenant}", "Show what a tenant uses, with its sessions", Content::Object),
    post("/v1/admin/reload", "Read the file of tokens again", None, (204, Content::Empty)),
    post("/v1/admin/drain", "Take no new work any more", None, (204, Content::Empty)),
    delete("/v1/admin/drain", "Take new work again"),
];

impl Operation {
    /// Whether it begins what a server that is about to stop does not begin any more.
    pub(crate) fn starts_work(&self) -> bool {
        const BEGIN: [&str; 4] =
            ["/v1/eval", "/v1/sessions", "/v1/sessions/{session}/runs", "/v1/sessions/{session}/fork"];
        self.method == "POST" && BEGIN.contains(&self.path)
    }

    /// Whether it is about this path, of names without their `%XX`.
    fn is_at(&self, names: &[&str]) -> bool {
        let mut names = names.iter();
        for part in self.path.split('/').skip(2) {
            match part {
                // The folder of all files has no name.
                "{path}" => return true,
                part => match names.next() {
                    Some(name) if part.starts_with('{') || part == *name => {}
                    _ => return false,
                },
            }
        }
        names.next().is_none()
    }
}

/// What has a meaning at a path: names behind `/v1`.
pub(crate) fn at<'a>(names: &'a [&'a str]) -> impl Iterator<Item = &'static Operation> + 'a {
    OPERATIONS.iter().filter(move |operation| operation.is_at(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_what_they_are_for() {
        let check = |path: &str, expected: &[&str]| {
            let names: Vec<&str> = path.split('/').collect();
            let found: Vec<&str> = at(&names).map(|operation| operation.method).collect();
            assert_eq!(found, expected, "{path}");
        };
        check("eval", &["POST"]);
        check("sessions", &["GET", "POST"]);
        check("sessions/a", &["GET", "PATCH", "DELETE"]);
        check("sessions/a/files", &["GET", "PUT", "DELETE"]);
        check("sessions/a/files/b/c", &["GET", "PUT", "DELETE"]);
        check("sessions/a/b", &[]);
        check("runs", &[]);
        check("runs/a/events/b", &[]);
        check("", &[]);
    }
}
