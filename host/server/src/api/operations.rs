//! Operations of `/v1`, each with its handler: routes and the API description are both made from this one list.

use futures::future::BoxFuture;
use http::{Method, StatusCode};

use super::{admin, approvals, calls, commands, datasets, files, looks, runs, sessions, states, stdio, stores};
use crate::{
    access::Scope,
    http::{Call, names},
    problem::{Answer, Problem},
};

/// Operation of the API.
#[derive(Debug)]
pub(crate) struct Operation {
    /// `GET` stands for `HEAD` as well.
    pub(crate) method: &'static str,
    /// Path, in which `{name}` is one name, but `{path}` is any number of them.
    pub(crate) path: &'static str,
    /// Scope that a token needs.
    pub(crate) scope: Scope,
    /// Summary for the API description.
    pub(crate) summary: &'static str,
    /// Query parameters: name, kind, description.
    pub(crate) query: &'static [(&'static str, Kind, &'static str)],
    /// Body: the name of its schema, and an example that can be carried out.
    pub(crate) body: Option<(&'static str, &'static str)>,
    /// Status and content of an answer that is no refusal.
    pub(crate) answer: (u16, Content),
    handler: Handler,
}

/// Handler of an operation, which takes the names in braces of its path in their order.
#[derive(Debug)]
struct Handler {
    names: &'static [&'static str],
    run: fn(Call, Names) -> BoxFuture<'static, Answer>,
}

/// Names of a request's path that stand where an operation has braces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    named: Vec<String>,
    /// Names at `{path}`.
    rest: Vec<String>,
}

impl Names {
    fn named<const COUNT: usize>(&mut self) -> Result<[String; COUNT], Problem> {
        std::mem::take(&mut self.named).try_into().map_err(|_| Problem::unknown("resource"))
    }

    fn rest(&self) -> Vec<&str> {
        self.rest.iter().map(String::as_str).collect()
    }
}

/// Makes a [`Handler`] of an async function of a [`Call`], the names that it takes, and behind `;` that of any number of names.
macro_rules! handler {
    (@rest $names:ident $rest:ident) => {
        &$names.rest()
    };
    ($handler:path $(, $name:ident)* $(; $rest:ident)?) => {
        Handler {
            names: &[$(stringify!($name),)* $(stringify!($rest))?],
            run: |call, mut names| {
                Box::pin(async move {
                    let [$($name),*] = names.named()?;
                    $handler(call $(, &$name)* $(, handler!(@rest names $rest))?).await
                })
            },
        }
    };
}

/// The kind of a value behind `?`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Language,
}

/// Content of an answer.
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

const fn get(path: &'static str, summary: &'static str, content: Content, handler: Handler) -> Operation {
    Operation {
        method: "GET",
        path,
        scope: Scope::Read,
        summary,
        query: &[],
        body: None,
        answer: (200, content),
        handler,
    }
}

const fn post(
    path: &'static str,
    summary: &'static str,
    body: Option<(&'static str, &'static str)>,
    answer: (u16, Content),
    handler: Handler,
) -> Operation {
    Operation { method: "POST", path, scope: Scope::Run, summary, query: &[], body, answer, handler }
}

const fn patch(
    path: &'static str,
    summary: &'static str,
    body: (&'static str, &'static str),
    content: Content,
    handler: Handler,
) -> Operation {
    Operation { method: "PATCH", ..post(path, summary, Some(body), (200, content), handler) }
}

const fn delete(path: &'static str, summary: &'static str, handler: Handler) -> Operation {
    let answer = (204, Content::Empty);
    Operation { method: "DELETE", path, scope: Scope::Run, summary, query: &[], body: None, answer, handler }
}

/// An operation of operators.
const fn operators(operation: Operation) -> Operation {
    Operation { scope: Scope::Admin, ..operation }
}

/// All of them.
pub(crate) static OPERATIONS: &[Operation] = &[
    post(
        "/v1/eval",
        "Run cells in a session of their own",
        Some(("NewEval", CELL)),
        (200, Content::Run("Result")),
        handler!(runs::eval),
    ),
    Operation {
        query: &PAGE,
        ..get("/v1/sessions", "List sessions, by name", Content::Json("Sessions"), handler!(sessions::list))
    },
    post(
        "/v1/sessions",
        "Make a session",
        Some((
            "NewSession",
            r#"{"input": true, "idleAfter": 600, "tools": [{"name": "add", "description": "adds two numbers"}]}"#,
        )),
        (201, Content::Json("Session")),
        handler!(sessions::create),
    ),
    get("/v1/sessions/{session}", "Show a session", Content::Json("Session"), handler!(sessions::show, session)),
    patch(
        "/v1/sessions/{session}",
        "Change when a session is put to sleep, and when it ends",
        ("SessionChange", r#"{"idleAfter": 120, "expiresAt": null}"#),
        Content::Json("Session"),
        handler!(sessions::change, session),
    ),
    delete("/v1/sessions/{session}", "End and remove a session", handler!(sessions::delete, session)),
    post(
        "/v1/sessions/{session}/runs",
        "Run cells in a session",
        Some((
            "NewRun",
            r#"{"cells": [{"language": "js", "code": "[1, 2].map((n) => n * 2)"}], "keepGoing": true, "onDisconnect": "continue"}"#,
        )),
        (200, Content::Run("Result")),
        handler!(runs::start, session),
    ),
    post(
        "/v1/sessions/{session}/commands",
        "Run a command of the sandbox's shell, where that is granted",
        Some(("NewCommand", r#"{"command": "echo a b | wc -w", "environment": {"PLACE": "here"}, "timeout": 60}"#)),
        (200, Content::Run("Command")),
        handler!(commands::start, session),
    ),
    // What comes over them may be anything.
    Operation {
        scope: Scope::Run,
        ..get(
            "/v1/sessions/{session}/stdio",
            "Speak the lines of `cellar stdio` over a WebSocket",
            Content::Socket,
            handler!(stdio::connect_session, session),
        )
    },
    Operation {
        scope: Scope::Run,
        ..get(
            "/v1/stdio",
            "The same, in sessions that go with the connection",
            Content::Socket,
            handler!(stdio::connect),
        )
    },
    Operation {
        query: &[WAIT],
        ..get(
            "/v1/sessions/{session}/calls",
            "List calls of tools that wait for an answer",
            Content::Json("Calls"),
            handler!(calls::list, session),
        )
    },
    post(
        "/v1/sessions/{session}/calls/{call}",
        "Answer a call of a tool",
        Some(("Reply", r#"{"result": 3}"#)),
        (204, Content::Empty),
        handler!(calls::reply, session, call),
    ),
    get("/v1/calls", "List calls that wait for a person", Content::Json("WaitingCalls"), handler!(approvals::list)),
    // THREAT: T24
    Operation {
        scope: Scope::Approve,
        ..post(
            "/v1/calls/{call}",
            "Approve or reject a call that waits for a person",
            Some(("Decision", r#"{"decision": "approve"}"#)),
            (204, Content::Empty),
            handler!(approvals::decide, call),
        )
    },
    post(
        "/v1/sessions/{session}/reset",
        "Give a session fresh kernels",
        Some(("Reset", r#"{"language": "py"}"#)),
        (204, Content::Empty),
        handler!(sessions::reset, session),
    ),
    post(
        "/v1/sessions/{session}/hibernate",
        "Put a session to sleep",
        None,
        (204, Content::Empty),
        handler!(sessions::hibernate, session),
    ),
    post(
        "/v1/sessions/{session}/fork",
        "Make a session with the state of another one",
        Some(("Fork", "{}")),
        (201, Content::Json("Session")),
        handler!(sessions::fork, session),
    ),
    post(
        "/v1/sessions/{session}/rewind",
        "Take a session back to a snapshot",
        Some(("Rewind", r#"{"snapshot": "{snapshot}"}"#)),
        (204, Content::Empty),
        handler!(sessions::rewind, session),
    ),
    get(
        "/v1/sessions/{session}/states",
        "List the states of a session that are kept, the oldest first",
        Content::Json("States"),
        handler!(states::list, session),
    ),
    patch(
        "/v1/sessions/{session}/states/{state}",
        "Name or pin a state",
        ("StateChange", r#"{"name": "before", "pinned": true}"#),
        Content::Json("State"),
        handler!(states::change, session, state),
    ),
    delete("/v1/sessions/{session}/states/{state}", "Forget a state", handler!(states::forget, session, state)),
    post(
        "/v1/sessions/{session}/states/{state}/back",
        "Take a session back to a state, with its files",
        None,
        (200, Content::Json("State")),
        handler!(states::back, session, state),
    ),
    post(
        "/v1/sessions/{session}/states/{state}/branch",
        "Make a session with a state of another one, and its files of then",
        Some(("Fork", "{}")),
        (201, Content::Json("Session")),
        handler!(states::branch, session, state),
    ),
    // The session's own code shows its values.
    Operation {
        scope: Scope::Run,
        ..get(
            "/v1/sessions/{session}/states/{state}/diff/{other}",
            "Compare a state with another one: names of variables, and files",
            Content::Json("StateDiff"),
            handler!(states::diff, session, state, other),
        )
    },
    post(
        "/v1/sessions/{session}/snapshots",
        "Keep the state of a session",
        None,
        (201, Content::Json("Snapshot")),
        handler!(stores::take_snapshot, session),
    ),
    // The session's own code shows its values.
    Operation {
        scope: Scope::Run,
        query: &[LANGUAGE],
        ..get(
            "/v1/sessions/{session}/variables",
            "List the names of a session",
            Content::Json("Variables"),
            handler!(looks::variables, session),
        )
    },
    Operation {
        scope: Scope::Run,
        query: &[LANGUAGE],
        ..get(
            "/v1/sessions/{session}/variables/{name}",
            "Show a value",
            Content::Json("Bundle"),
            handler!(looks::value, session, name),
        )
    },
    Operation {
        query: &[LANGUAGE],
        ..get(
            "/v1/sessions/{session}/origins",
            "Tell where the names of a session come from",
            Content::Json("Origins"),
            handler!(looks::origins, session),
        )
    },
    // It may start the servers that tools are on.
    Operation {
        scope: Scope::Run,
        query: &[LANGUAGE],
        ..get(
            "/v1/sessions/{session}/stubs",
            "Tell a model what cells may call: signatures with types, or how to search for them where they are many",
            Content::Json("Stubs"),
            handler!(looks::stubs, session),
        )
    },
    post(
        "/v1/sessions/{session}/complete",
        "Complete code at a cursor",
        Some(("Look", r#"{"language": "py", "code": "imp"}"#)),
        (200, Content::Json("Completions")),
        handler!(looks::complete, session),
    ),
    post(
        "/v1/sessions/{session}/inspect",
        "Show help at a cursor",
        Some(("Look", r#"{"language": "py", "code": "print", "cursor": 3}"#)),
        (200, Content::Json("Bundle")),
        handler!(looks::inspect, session),
    ),
    get(
        "/v1/sessions/{session}/files/{path}",
        "Read a file, or list a folder",
        Content::FileOrFolder,
        handler!(files::read, session; path),
    ),
    Operation {
        method: "PUT",
        path: "/v1/sessions/{session}/files/{path}",
        scope: Scope::Run,
        summary: "Write a file, whole; where the path ends with `/`, make a folder, with what is in a tar if there is one",
        query: &[],
        body: Some(("", "a,b\n1,2\n")),
        answer: (201, Content::Empty),
        handler: handler!(files::write, session; path),
    },
    delete(
        "/v1/sessions/{session}/files/{path}",
        "Remove a file, or a folder that is empty",
        handler!(files::remove, session; path),
    ),
    Operation {
        query: &[WAIT],
        ..get("/v1/runs/{run}", "Show a run", Content::Json("Run"), handler!(runs::show, run))
    },
    Operation {
        query: &[("after", Kind::Text, "the number of the last event that is known")],
        ..get(
            "/v1/runs/{run}/events",
            "Follow a run, from any event",
            Content::Run("StreamLine"),
            handler!(runs::events, run),
        )
    },
    Operation {
        query: &VIEW,
        ..get(
            "/v1/runs/{run}/outputs",
            "Show the first page of each output, for a model",
            Content::Json("RunOutputs"),
            handler!(runs::outputs, run),
        )
    },
    Operation {
        query: &VIEW,
        ..get(
            "/v1/runs/{run}/outputs/{output}",
            "Show a page of an output, for a model",
            Content::Json("RunOutputs"),
            handler!(runs::output, run, output),
        )
    },
    post("/v1/runs/{run}/cancel", "Stop a run", None, (204, Content::Empty), handler!(runs::cancel, run)),
    post(
        "/v1/runs/{run}/input",
        "Answer a request for input",
        Some(("Input", r#"{"request_id": "{request}", "value": "Ada"}"#)),
        (204, Content::Empty),
        handler!(runs::input, run),
    ),
    post(
        "/v1/runs/{run}/calls/{call}",
        "Answer a call of a tool",
        Some(("Reply", r#"{"error": "out of paper"}"#)),
        (204, Content::Empty),
        handler!(calls::reply_in_run, run, call),
    ),
    Operation {
        query: &PAGE,
        ..get("/v1/snapshots", "List snapshots, by id", Content::Json("Snapshots"), handler!(stores::snapshots))
    },
    get("/v1/snapshots/{snapshot}", "Read a snapshot", Content::Bytes, handler!(stores::read_snapshot, snapshot)),
    delete("/v1/snapshots/{snapshot}", "Remove a snapshot", handler!(stores::delete_snapshot, snapshot)),
    Operation {
        query: &PAGE,
        ..get(
            "/v1/artifacts",
            "List outputs that results do not show whole, by id",
            Content::Object,
            handler!(stores::artifacts),
        )
    },
    get("/v1/artifacts/{artifact}", "Read one of them", Content::Bytes, handler!(stores::read_artifact, artifact)),
    Operation {
        query: &PAGE,
        ..get(
            "/v1/datasets",
            "List datasets, by name, each with its latest version",
            Content::Json("Datasets"),
            handler!(datasets::list),
        )
    },
    get(
        "/v1/datasets/{dataset}",
        "Show the versions of a dataset, the oldest first",
        Content::Json("DatasetVersions"),
        handler!(datasets::show, dataset),
    ),
    Operation {
        query: &[("publisher", Kind::Text, "who publishes it, `http` unless given")],
        body: Some(("", "")),
        ..post(
            "/v1/datasets/{dataset}",
            "Publish a Parquet file as the next version of a dataset",
            None,
            (201, Content::Json("Dataset")),
            handler!(datasets::publish, dataset),
        )
    },
    delete("/v1/datasets/{dataset}", "Remove a dataset with all of its versions", handler!(datasets::delete, dataset)),
    Operation {
        query: &[("version", Kind::Number, "the latest unless given")],
        ..get(
            "/v1/datasets/{dataset}/rows",
            "Read the rows of a dataset, a Parquet file",
            Content::Bytes,
            handler!(datasets::read, dataset),
        )
    },
    get("/v1/tenant", "Show who asks, and what may be used", Content::Object, handler!(sessions::tenant)),
    get("/v1/languages", "List languages", Content::Object, handler!(sessions::languages)),
    operators(get("/v1/admin/tenants", "List tenants, with what they use", Content::Object, handler!(admin::tenants))),
    operators(get(
        "/v1/admin/tenants/{tenant}",
        "Show what a tenant uses, with its sessions",
        Content::Object,
        handler!(admin::tenant, tenant),
    )),
    operators(post(
        "/v1/admin/reload",
        "Read the file of tokens again",
        None,
        (204, Content::Empty),
        handler!(admin::reload),
    )),
    operators(post(
        "/v1/admin/drain",
        "Take no new work any more",
        None,
        (204, Content::Empty),
        handler!(admin::drain),
    )),
    operators(delete("/v1/admin/drain", "Take new work again", handler!(admin::resume))),
];

impl Operation {
    /// True if it begins work, which a server that is about to stop refuses.
    pub(crate) fn starts_work(&self) -> bool {
        const BEGIN: [&str; 5] = [
            "/v1/eval",
            "/v1/sessions",
            "/v1/sessions/{session}/runs",
            "/v1/sessions/{session}/fork",
            "/v1/sessions/{session}/states/{state}/branch",
        ];
        self.method == "POST" && BEGIN.contains(&self.path)
    }

    /// The names that it takes of a path, as its path has them in braces.
    pub(crate) fn names(&self) -> &'static [&'static str] {
        self.handler.names
    }

    /// The names that it takes of this path, of names without their `%XX`. None if it is about another.
    fn matched(&self, path: &[&str]) -> Option<Names> {
        let (mut names, mut taken) = (path.iter(), Names::default());
        for part in self.path.split('/').skip(2) {
            match part {
                // The folder of all files has no name.
                "{path}" => taken.rest.extend(names.by_ref().map(|name| (*name).to_owned())),
                part => match names.next() {
                    Some(name) if part.starts_with('{') => taken.named.push((*name).to_owned()),
                    Some(name) if part == *name => {}
                    _ => return None,
                },
            }
        }
        names.next().is_none().then_some(taken)
    }
}

/// Operations at a path: names behind `/v1`.
fn at<'a>(path: &'a [&'a str]) -> impl Iterator<Item = (&'static Operation, Names)> + 'a {
    OPERATIONS.iter().filter_map(|operation| Some((operation, operation.matched(path)?)))
}

/// Path of the operations at the path of a request, as the API description has it.
pub(crate) fn label(path: &str) -> Option<&'static str> {
    let names = names(path).ok().filter(|_| path.starts_with("/v1/"))?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    at(&names).map(|(operation, _)| operation.path).next()
}

/// Operation that a request is for, with the names that it takes of the path.
#[derive(Debug)]
pub(crate) struct Routed {
    operation: &'static Operation,
    names: Names,
}

/// Finds the operation that a request is for. `path` are the names behind `/v1`, without their `%XX`.
///
/// # Errors
/// 404 and 405
pub(crate) fn find(method: &Method, path: &[String]) -> Result<Routed, Problem> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let is_head = *method == Method::HEAD;
    let method = if is_head { &Method::GET } else { method };
    let mut found: Vec<(&Operation, Names)> = at(&path).collect();
    if found.is_empty() {
        return Err(Problem::unknown("resource"));
    }
    let Some(place) = found.iter().position(|(operation, _)| operation.method == method.as_str()) else {
        let known: Vec<&str> = found.iter().map(|(operation, _)| operation.method).collect();
        let detail = format!("{method} has no meaning here; {} has", cellar_core::text::list(&known));
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail));
    };
    let (operation, names) = found.swap_remove(place);
    // A WebSocket has no head of its own.
    if is_head && operation.answer.1 == Content::Socket {
        return Err(Problem::unknown("resource"));
    }
    Ok(Routed { operation, names })
}

impl Routed {
    /// Returns the scope that a token needs.
    pub(crate) fn scope(&self) -> Scope {
        self.operation.scope
    }

    /// Carries it out for a caller whose token has the scope.
    pub(crate) async fn carry_out(self, call: Call) -> Answer {
        if self.operation.starts_work() {
            call.state.lifecycle.admit()?;
        }
        (self.operation.handler.run)(call, self.names).await
    }
}

#[cfg(test)]
mod tests;
