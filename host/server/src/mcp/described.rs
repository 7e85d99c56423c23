//! What a model is told of the tools: what there is, what stays, how far it may go. It is short, because it is read with
//! every request of a model.

use std::{fmt::Write, time::Duration};

use cellar_bridges::HostBridges;
use cellar_engine::{Bridges, GuestName, Language, bridges::ToolSpec};
use cellar_hub::HubError;
use cellar_setup::Granted;

use crate::tenant::Tenant;

/// Tools of cells that are named; of more, the first.
const TOOLS_MAX: usize = 20;
/// Characters of what is said of each.
const TOOL_CHARACTERS: usize = 80;
/// How long the servers of tools may take to say what they have.
const TOOLS_TIMEOUT: Duration = Duration::from_secs(10);

/// What is said of `eval`, made once for a tenant, to a client that has a model of its own or not.
pub(super) async fn eval(tenant: &Tenant, has_model: bool) -> String {
    let made = || async { described(&tenant.hub.languages(), tenant.hub.granted()).await };
    let text = tenant.described.get_or_init(made).await.clone();
    if has_model && tenant.hub.file().bridges.llm.is_none() { text + OFFERED } else { text }
}

/// What is said besides where a client offers a model, and none is configured.
const OFFERED: &str = "\n\n`llm(prompt)` asks the model of this client (`await llm(prompt)` in JavaScript).";

pub(super) fn other(tool: &str) -> &'static str {
    match tool {
        "reset" => "Gives a session fresh kernels: its names go, its files stay. For one language, or for all.",
        "snapshot" => {
            "Keeps the state of a session (all names, functions, half-read iterators) under an id. `fork` makes a session \
             of it."
        }
        "fork" => {
            "Makes a new session with the state and the files of another one, or with the state of a snapshot. What is \
             tried there leaves the original alone."
        }
        _ => {
            "Lists, reads, writes or removes files in the workspace of a session, which is the working folder of its cells. \
             An image is shown."
        }
    }
}

async fn described(languages: &[Language], granted: Result<Granted, HubError>) -> String {
    // What cannot be granted was found out when the server started.
    let Ok(granted) = granted else { return String::new() };
    let (session, options) = (granted.session, granted.bridges);
    let titles: Vec<&str> = languages.iter().map(|language| language.title()).collect();
    let mut text = format!(
        "Runs cells of {} in a WebAssembly sandbox, and returns what they print, the value of the last expression, and the \
         images that they display.\n\n\
         State stays from call to call: names, imports, functions and files belong to a `session`. Without `session` a new \
         one is made, and the answer names it; pass that name to go on.\n",
        titles.join(" and ")
    );
    for language in languages {
        let _ = writeln!(text, "- {}", about(session.guest(*language)));
    }
    let limits = &session.limits;
    let _ = writeln!(
        text,
        "- The working folder is /workspace. A cell may take {} s, or as many as its `timeout` says, up to {}; a kernel has \
         {} MiB. A cell that takes longer is stopped: what it printed is kept, and so are all names.",
        limits.timeout.as_secs(),
        limits.timeout_max.as_secs(),
        limits.memory_bytes >> 20
    );
    let mounts: Vec<&str> = session.mounts.iter().map(|mount| mount.guest.as_str()).collect();
    if !mounts.is_empty() {
        let _ = writeln!(text, "- Further folders: {}.", mounts.join(", "));
    }
    let hosts = options.http.allow.len();
    let network = if hosts == 0 { "no network" } else { "no network but for some granted hosts" };
    let _ = writeln!(text, "- There is {network}, and no package can be installed.");
    if options.llm.is_some() {
        let _ = writeln!(text, "- `llm(prompt)` asks a language model (`await llm(prompt)` in JavaScript).");
    }
    if !options.agents.is_empty() {
        let _ = writeln!(text, "- `agent(prompt)` hands a task to an agent that shares the session.");
    }
    let bridges = HostBridges::new(options);
    let tools = tokio::time::timeout(TOOLS_TIMEOUT, bridges.tools()).await.unwrap_or_default();
    if !tools.is_empty() {
        let _ = writeln!(
            text,
            "\nTools that cells call: `tool.NAME(key=value)` in Python, `await tool.NAME({{key: value}})` in JavaScript; \
             `tool.NAME.spec()` says more."
        );
        tools.iter().take(TOOLS_MAX).for_each(|tool| text.push_str(&signature(tool)));
        if tools.len() > TOOLS_MAX {
            let _ = writeln!(text, "- and {} more: `dir(tool)`", tools.len() - TOOLS_MAX);
        }
    }
    text.push_str(EXAMPLES);
    text
}

const EXAMPLES: &str = "\nExamples:\n{\"language\": \"py\", \"code\": \"import statistics\\nstatistics.mean([1, 2, 3])\"}\n\
                        {\"session\": \"ses-…\", \"cells\": [{\"language\": \"py\", \"code\": \"x = 1\"}, \
                        {\"language\": \"js\", \"code\": \"[1, 2].map(n => n * 2)\"}]}";

fn about(guest: GuestName) -> &'static str {
    match guest {
        GuestName::PythonData => {
            "`py` is CPython with its library, NumPy (`np`), pandas (`pd`) and altair (`alt`), openpyxl and pypdf. `await` \
             works at the top level."
        }
        GuestName::Python => {
            "`py` is CPython with its standard library, and no other package. `await` works at the top level."
        }
        _ => "`js` is QuickJS with the ES2023 library, and no other package. `await` works at the top level.",
    }
}

/// `- name(a, b?): what it does`
fn signature(tool: &ToolSpec) -> String {
    let schema: Option<serde_json::Value> = tool.schema.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let required: Vec<&str> = schema
        .as_ref()
        .and_then(|schema| schema["required"].as_array())
        .map(|names| names.iter().filter_map(|name| name.as_str()).collect())
        .unwrap_or_default();
    let names: Vec<String> = schema
        .as_ref()
        .and_then(|schema| schema["properties"].as_object())
        .map(|properties| properties.keys())
        .into_iter()
        .flatten()
        .take(8)
        .map(|name| if required.contains(&name.as_str()) { name.clone() } else { format!("{name}?") })
        .collect();
    let about: String = tool.description.lines().next().unwrap_or_default().chars().take(TOOL_CHARACTERS).collect();
    format!("- {}({}): {about}\n", tool.name, names.join(", "))
}

#[cfg(test)]
mod tests {
    use cellar_setup::Overrides;
    use cellar_wire::config::Config;

    use super::*;

    #[tokio::test]
    async fn a_description_is_short() {
        let text = described(
            &[Language::Python, Language::JavaScript],
            Ok(Granted::new(&Overrides::default(), Config::default()).expect("nothing is granted")),
        )
        .await;
        // A token has more than three characters of English and of code.
        assert!(text.len() < 3_000, "{}\n{text}", text.len());
        for word in ["Python and JavaScript", "30 s", "512 MiB", "no network", "session"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn a_tool_is_said_in_a_line() {
        let tool = ToolSpec {
            name: "add".to_owned(),
            description: format!("Adds.\n{}", "more ".repeat(100)),
            schema: Some(r#"{"properties": {"a": {}, "b": {}}, "required": ["a"]}"#.to_owned()),
        };
        assert_eq!(signature(&tool), "- add(a, b?): Adds.\n");
    }
}
