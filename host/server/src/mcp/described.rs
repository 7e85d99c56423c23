//! Descriptions of the tools for a model: what exists, what persists, and which limits apply. They are short, because
//! they are sent with every request to a model.

use std::{fmt::Write, fs, path::Path, time::Duration};

use cellar_bridges::HostBridges;
use cellar_config::Granted;
use cellar_engine::{
    Bridges, GuestName, Language, SessionConfig,
    bridges::{Catalog, PackSpec, SEARCHED_FROM, catalog},
};
use cellar_hub::HubError;
use rmcp::model::ToolAnnotations;

use super::Mcp;

/// Agents that are named; of more, the first.
const AGENTS_MAX: usize = 20;
/// Granted packages of a language that are named; of more, the first.
const PACKAGES_MAX: usize = 30;
/// Characters of a pack's description.
const PACK_CHARACTERS: usize = 80;
/// Packs of primitives that are named; of more, the first.
const PACKS_MAX: usize = 10;
/// Timeout of asking the servers of tools what they offer.
const TOOLS_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the description of `eval`, which is made once for a tenant. A client that offers a model is also told how
/// cells ask it, unless the configuration has one.
pub(super) async fn eval(mcp: &Mcp, has_model: bool) -> String {
    let tenant = &mcp.tenant;
    let granted = || {
        let mut granted = tenant.hub.granted()?;
        granted.session.kernels.guests.splice(0..0, tenant.usual_guests().iter().copied());
        Ok(granted)
    };
    let made = || async { described(&tenant.hub.languages(), granted()).await };
    let text = mcp.described.get_or_init(made).await.clone();
    if !has_model || tenant.hub.file().bridges.llm.is_some() {
        return text;
    }
    format!("{text}\n\n{} asks the model of this client.", call_of(&tenant.hub.languages(), "llm(prompt)"))
}

pub(super) fn other(tool: &str) -> &'static str {
    match tool {
        "reset" => {
            "Gives the session fresh kernels, for one language or for all: names, imports and tasks go. Files, tools, the packs of \
             `runtime`, and notes of `runtime.selfref.context` stay."
        }
        "snapshot" => {
            "Keeps the state of the session (all names, functions, half-read iterators) under an id. `fork` makes a session \
             of it."
        }
        "shell" => {
            "Runs a command as `bash -c` does, in a process of its own beside the cells: it has the files of the session, and none of \
             its names. Nothing can be installed. `python`, `node`, `npm run` and the common commands of a shell are there, `git` is \
             not; `command -v NAME` says what is. Give what it reads as `stdin`: nobody types."
        }
        "fork" => {
            "Makes a new session with the state and the files of this one, or with the state of a snapshot, and gives its name. \
             What is tried there leaves the original alone."
        }
        _ => {
            "Lists, reads, writes or removes files in the workspace of the session, which is the working folder of its cells. \
             An image is shown."
        }
    }
}

/// Returns the name of a tool for people.
pub(super) fn title(tool: &str) -> &'static str {
    match tool {
        "eval" => "Run Python or JavaScript",
        "reset" => "Start with a fresh kernel",
        "snapshot" => "Keep the state",
        "shell" => "Run a command",
        "fork" => "Fork the session",
        _ => "Files of the session",
    }
}

/// Returns the hints for clients at what a tool does, which decide whether people are asked before. Cells change nothing but
/// their own session, unless they are granted more: then they `reach_out`.
pub(super) fn annotations(tool: &str, reach_out: bool) -> ToolAnnotations {
    let hints = ToolAnnotations::with_title(title(tool)).read_only(false);
    match tool {
        "eval" | "shell" => hints.destructive(true).idempotent(false).open_world(reach_out),
        "reset" => hints.destructive(true).idempotent(true).open_world(false),
        "files" => hints.destructive(true).idempotent(true).open_world(false),
        _ => hints.destructive(false).idempotent(false).open_world(false),
    }
}

/// Returns what a client tells its model of the server as a whole.
pub(super) fn instructions() -> &'static str {
    "Cellar runs Python and JavaScript in sandboxes. `eval` runs cells and keeps their names, imports and files: the next call goes \
     on where the last one ended. Leave `session` out for that; a name of your own opens a separate session. A new session ends \
     with the connection, and one that was named when nobody has used it for a day. Where an answer says that a session is new \
     although none was to be, name it in the next call. Show what matters: the value of the last expression, what is printed, and \
     what `display` is given (tables, figures, images). Long output and large images are cut or made smaller, and the answer says \
     so; `artifact://` names the whole, which cells read with `tool.read(path=…)`. In a cell `runtime.list_primitives()` lists \
     functions of the host, and `runtime.get_primitive_spec(name)` says how one is called; \
     `tools.search(\"…\")` finds tools by what they do. `reset` forgets names and keeps files, \
     tools and notes; `snapshot` and `fork` keep and copy the whole state."
}

/// Describes what cells find without an import.
fn helpers(languages: &[Language]) -> String {
    let waiting = if languages.contains(&Language::JavaScript) {
        " In JavaScript those that touch files are awaited."
    } else {
        ""
    };
    format!(
        "- There without an import: `display(value)`; `read`, `write`, `append`, `tree`, `env`, `diff`, `sort`, `uniq`, `counter`; \
         `parallel`, `pipeline`; `output(name)` of an agent.{waiting} `artifact://` and `agent://` are read with `tool.read`."
    )
}

/// Describes the packs of primitives, of which every session has one.
fn packs(packs: &[PackSpec]) -> String {
    let name = |pack: &PackSpec| match pack.description.as_str() {
        "" => format!("`{}`", pack.name),
        description => format!("`{}` ({})", pack.name, first_words(description)),
    };
    let mut named: Vec<String> = packs.iter().take(PACKS_MAX).map(name).collect();
    named.push("`selfref` (notes that outlive resets; forks of the session)".to_owned());
    format!(
        "- `runtime` has packs of primitives: {}. `runtime.list_primitives()` names them all, \
         `runtime.get_primitive_spec(\"selfref.fork.spawn\")` says how one is called.",
        named.join(", ")
    )
}

async fn described(languages: &[Language], granted: Result<Granted, HubError>) -> String {
    // What cannot be granted was found out when the server started.
    let Ok(granted) = granted else { return String::new() };
    let (session, options) = (granted.session, granted.bridges);
    let titles: Vec<&str> = languages.iter().map(|language| language.title()).collect();
    let mut text = format!(
        "Runs cells of {} in a WebAssembly sandbox, and returns what they print, the value of the last expression, and the \
         images that they display.\n\n\
         State stays from call to call: names, imports, functions and files belong to the session of this connection. Leave \
         `session` out to go on in it; another name opens a separate session, or goes on with it. If an answer says that the session is \
         new in every call, pass its name.\n",
        titles.join(" and ")
    );
    let (config, asked) = (session.clone(), languages.to_vec());
    let look = move || asked.iter().map(|language| granted_packages(&config, *language)).collect::<Vec<_>>();
    let packages = tokio::task::spawn_blocking(look).await.unwrap_or_default();
    for (place, language) in languages.iter().enumerate() {
        let packages = packages.get(place).map(Vec::as_slice).unwrap_or_default();
        let _ = writeln!(text, "- {}", about(session.kernels.guest(*language), packages));
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
    let mounts: Vec<&str> = session.folders.mounts.iter().map(|mount| mount.guest.as_str()).collect();
    if !mounts.is_empty() {
        let _ = writeln!(text, "- Further folders: {}.", mounts.join(", "));
    }
    let hosts = options.http.allow.len();
    let network = if hosts == 0 { "no network" } else { "no network but for some granted hosts" };
    let _ = writeln!(text, "- There is {network}, and no package can be installed.");
    if options.llm.is_some() {
        let _ = writeln!(text, "- {} asks a language model.", call_of(languages, "llm(prompt)"));
    }
    let bridges = HostBridges::new(options);
    let agents = bridges.grants().agents;
    if !agents.is_empty() {
        let _ = writeln!(
            text,
            "- {} hands a task to an agent that shares the session: {}.",
            call_of(languages, "agent(prompt)"),
            agents[..agents.len().min(AGENTS_MAX)].join(", ")
        );
    }
    let _ = writeln!(text, "{}\n{}", helpers(languages), packs(&bridges.packs()));
    let _ = writeln!(
        text,
        "- `reset` of a cell begins with a fresh kernel of its language: names, imports and tasks go; files, tools, packs and notes \
         stay."
    );
    let catalog = tokio::time::timeout(TOOLS_TIMEOUT, catalog(&bridges)).await.unwrap_or_default();
    if !catalog.is_empty() {
        text.push_str(&functions(languages, &catalog));
    }
    let examples: Vec<&str> = languages.iter().map(example).collect();
    if let [first, ..] = examples.as_slice() {
        let _ = write!(text, "\nExamples:\n{first}\n{{\"cells\": [{}]}}", examples.join(", "));
    }
    text
}

fn example(language: &Language) -> &'static str {
    match language {
        Language::JavaScript => "{\"language\": \"js\", \"code\": \"[1, 2].map(n => n * 2)\"}",
        _ => "{\"language\": \"py\", \"code\": \"import statistics\\nstatistics.mean([1, 2, 3])\"}",
    }
}

/// Returns the form of a call in these languages; Python waits for it by itself.
fn call_of(languages: &[Language], what: &str) -> String {
    match languages {
        [Language::JavaScript] => format!("`await {what}`"),
        [_] => format!("`{what}`"),
        _ => format!("`{what}` (`await {what}` in JavaScript)"),
    }
}

/// Describes a language and its packages.
fn about(guest: GuestName, packages: &[String]) -> String {
    let has = match guest {
        GuestName::PythonData => {
            "`py` is CPython with its library, NumPy (`np`), pandas (`pd`), Matplotlib (`plt`), altair (`alt`), seaborn, \
             Pillow, SymPy, networkx, requests, BeautifulSoup, lxml, PyYAML, openpyxl, python-docx, pypdf and what they need, \
             but not SciPy or scikit-learn"
        }
        GuestName::Python => "`py` is CPython with its standard library",
        _ => "`js` is QuickJS with the ES2023 library and many of Node's modules",
    };
    let mut text = has.to_owned();
    match packages {
        [] if guest == GuestName::PythonData => {}
        [] => text.push_str(", and no other package"),
        named => {
            let _ = write!(text, ", and further packages: {}", named[..named.len().min(PACKAGES_MAX)].join(", "));
            if named.len() > PACKAGES_MAX {
                let _ = write!(text, " and {} more", named.len().saturating_sub(PACKAGES_MAX));
            }
        }
    }
    text + ". `await` works at the top level."
}

/// Returns the names of the packages that a session is granted, in order.
fn granted_packages(session: &SessionConfig, language: Language) -> Vec<String> {
    let mut names: Vec<String> = match language {
        Language::JavaScript => {
            let mount = session.folders.mounts.iter().find(|mount| mount.guest == "/node_modules");
            mount.map(|mount| entries(&mount.host)).unwrap_or_default()
        }
        _ => {
            let all = session.folders.packages.iter().flat_map(|folder| entries(folder));
            all.filter_map(|entry| Some(entry.strip_suffix(".dist-info")?.split('-').next()?.to_owned())).collect()
        }
    };
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names.dedup();
    names
}

/// Returns the names in a folder.
fn entries(folder: &Path) -> Vec<String> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Describes what cells may call: with types, or how to search for it where that is much.
fn functions(languages: &[Language], catalog: &Catalog) -> String {
    let language = languages.first().copied().unwrap_or(Language::Python);
    let text = catalog.description(language);
    if catalog.len() >= SEARCHED_FROM {
        return format!("\n{text}\n");
    }
    let others = match (language, languages.contains(&Language::JavaScript)) {
        (Language::JavaScript, _) => "",
        (_, true) => "; in JavaScript each takes one object: `await tool.NAME({key: value})`",
        (_, false) => "",
    };
    format!("\nFunctions that cells call{others}:\n```{}\n{text}```\n", language.code())
}

/// Returns the beginning of the first line of a description.
fn first_words(description: &str) -> String {
    description.lines().next().unwrap_or_default().chars().take(PACK_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cellar_config::Config;
    use cellar_config::Overrides;
    use cellar_engine::config::FolderGrants;

    use super::*;

    #[tokio::test]
    async fn a_description_is_short() {
        let text = described(
            &[Language::Python, Language::JavaScript],
            Ok(Granted::new(&Overrides::default(), Config::default()).expect("nothing is granted")),
        )
        .await;
        // A token has more than three characters of English and of code.
        assert!(text.len() < 4_000, "{}\n{text}", text.len());
        for word in ["Python and JavaScript", "30 s", "512 MiB", "no network", "session"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn packages_that_are_granted_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["tabulate-0.10.0.dist-info", "tabulate", "Zope.thing-1.dist-info"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let session = SessionConfig {
            folders: FolderGrants { packages: vec![folder.path().to_owned()], ..FolderGrants::default() },
            ..SessionConfig::default()
        };
        let python = about(GuestName::Python, &granted_packages(&session, Language::Python));
        assert!(python.contains("and further packages: Zope.thing, tabulate."), "{python}");
        let none = about(GuestName::JavaScript, &granted_packages(&session, Language::JavaScript));
        assert!(none.contains("no other package"), "{none}");
        let many: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
        assert!(about(GuestName::PythonData, &many).contains("p29 and 10 more."));
    }

    #[tokio::test]
    async fn a_language_that_is_off_is_not_told_of() {
        let config = "[session]\nlanguages = [\"py\"]\n[llm]\nendpoint = \"http://127.0.0.1:1/v1\"\n[llm.tiers]\ndefault = \"m\"\n";
        let granted =
            || Granted::new(&Overrides::default(), Config::parse(config, Path::new("/"), "a text").expect("valid"));
        for (languages, others) in
            [(Language::Python, ["js", "JavaScript", "await llm"]), (Language::JavaScript, ["py", "Python", "`llm("])]
        {
            let text = described(&[languages], Ok(granted().expect("granted"))).await;
            assert!(text.contains("llm(prompt)`"), "{text}");
            for word in others {
                assert!(!text.contains(word), "{word}: {text}");
            }
        }
    }

    #[tokio::test]
    async fn few_tools_are_described_with_types_and_many_are_searched() {
        let tool = |number: usize| {
            format!(
                "[tools.t{number}]\ncommand = [\"true\"]\ndescription = \"Does {number}.\"\nschema = {{ type = \"object\", properties = {{ a = {{ type = \"integer\" }} }} }}\n"
            )
        };
        let text = |count: usize| async move {
            let config: String = (0..count).map(tool).collect();
            let config = Config::parse(&config, Path::new("/"), "a text").expect("valid");
            let granted = Granted::new(&Overrides::default(), config).expect("granted");
            described(&[Language::Python, Language::JavaScript], Ok(granted)).await
        };
        let few = text(2).await;
        assert!(few.contains("def t1(self, *, a: int = ...) -> Any:\n        \"\"\"Does 1.\"\"\""), "{few}");
        assert!(few.contains("`await tool.NAME({key: value})`"), "{few}");
        let many = text(SEARCHED_FROM).await;
        assert!(many.contains("20 functions of the host: `tool` (20). `tools.search("), "{many}");
        assert!(!many.contains("Does 1"), "{many}");
    }
}
