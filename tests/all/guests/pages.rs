//! Commands of the pages: README.md and all below `host`. Each fenced block of `sh` or `console` runs in a fresh folder, with the
//! command on the `PATH`, as a reader would type it. `fixtures/pages/commands.toml` lists what cannot run here and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

use super::{examples::Newcomer, serve::Served};
use crate::support::{node, root, run};

/// Pages whose commands ask a server.
const SERVED: [&str; 3] = ["host/QUICKSTART.md", "host/server/CLIENTS.md", "host/server/E2B.md"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    left_out: Vec<LeftOut>,
    stand_in: Vec<StandIn>,
    prepared: Vec<Prepared>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftOut {
    page: String,
    commands: Vec<String>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StandIn {
    name: String,
    here: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prepared {
    page: String,
    lines: Vec<String>,
}

impl Exceptions {
    fn read() -> Exceptions {
        let text = fs::read_to_string(root().join("fixtures/pages/commands.toml")).expect("the list");
        toml::from_str(&text).expect("a list of exceptions")
    }

    fn is_left_out(&self, page: &str, command: &str) -> bool {
        let of_page = self.left_out.iter().filter(|each| each.page == page);
        of_page.flat_map(|each| &each.commands).any(|beginning| command.trim_start().starts_with(beginning))
    }

    /// The commands of a block, without those that are left out; what continues on further lines is one command.
    fn commands(&self, page: &str, block: &str) -> Vec<String> {
        let mut commands = Vec::new();
        let mut whole = String::new();
        for line in block.lines() {
            whole += line;
            if line.ends_with('\\') {
                whole.push('\n');
                continue;
            }
            let command = std::mem::take(&mut whole);
            if !self.is_left_out(page, &command) {
                commands.push(self.here(&command));
            }
        }
        commands
    }

    fn here(&self, command: &str) -> String {
        self.stand_in.iter().fold(command.to_owned(), |command, each| command.replace(&each.name, &each.here))
    }
}

/// The fenced blocks of a page, by their language.
fn blocks(page: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let mut found = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some((_, block)), None) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

/// All pages that have commands.
fn pages() -> BTreeSet<String> {
    let mut folders = vec![root().join("host")];
    let mut pages = BTreeSet::from(["README.md".to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|end| end == "md") => {
                    let name = path.strip_prefix(root()).expect("below the checkout");
                    pages.insert(name.to_str().expect("text").to_owned());
                }
                false => {}
            }
        }
    }
    pages.retain(|page| blocks(page).iter().any(|(language, _)| ["sh", "console"].contains(&&**language)));
    pages
}

/// Splits off the comment of a command that is nothing but the number that it prints.
fn printed(command: &str) -> Option<(&str, &str)> {
    let (command, comment) = command.rsplit_once(" # ")?;
    let comment = comment.trim();
    (!comment.is_empty() && comment.bytes().all(|byte| byte.is_ascii_digit())).then_some((command, comment))
}

/// A script of the commands of a page, which ends at the first that fails.
fn script(page: &str, exceptions: &Exceptions) -> String {
    let mut script = "set -Eeuo pipefail\ntrap 'echo \"this failed: $BASH_COMMAND\" >&2' ERR\n".to_owned();
    for prepared in exceptions.prepared.iter().filter(|each| each.page == page) {
        script += &(prepared.lines.join("\n") + "\n");
    }
    let blocks = blocks(page).into_iter().filter(|(language, _)| language == "sh");
    for command in blocks.flat_map(|(_, block)| exceptions.commands(page, &block)) {
        match printed(&command) {
            Some((command, number)) => {
                let _ = writeln!(script, "shown=$({command})\nprintf '%s\\n' \"$shown\"\ntest \"$shown\" = {number}");
            }
            None => script += &(command + "\n"),
        }
    }
    script
}

/// A fresh folder with the files that commands name.
fn work(newcomer: &Newcomer) -> PathBuf {
    let folder = newcomer.path().join("work");
    for files in ["fixtures/examples/.", "fixtures/pages/files/."] {
        let copied = Command::new("cp").arg("-r").arg(root().join(files)).arg(&folder).status();
        assert!(copied.expect("cp runs").success());
    }
    folder
}

/// A shell in that folder, whose home is fresh as well.
fn shell(newcomer: &Newcomer, folder: &Path, script: &str) -> Command {
    let mut bash = newcomer.command("bash");
    let cache = std::env::var_os("CELLAR_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/cellar")));
    bash.args(["-c", script]).current_dir(folder).env("HOME", newcomer.path());
    bash.env("CELLAR_CACHE", cache.expect("a home")).env("CELLAR_PACKAGE_STORE", newcomer.path().join("packages"));
    bash.env_remove("GITHUB_ACTIONS").env_remove("XDG_DATA_HOME");
    let mut path = bash
        .get_envs()
        .find_map(|(name, value)| (name == "PATH").then_some(value))
        .flatten()
        .expect("a path")
        .to_owned();
    for folder in [root().join("target/jupyter/bin"), node().parent().expect("its folder").to_owned()] {
        path.push(":");
        path.push(folder);
    }
    bash.env("PATH", path);
    bash
}

/// Runs all commands of a page, which must succeed.
fn check(page: &str) {
    let exceptions = Exceptions::read();
    let newcomer = Newcomer::new();
    let folder = work(&newcomer);
    let script = script(page, &exceptions);
    let mut bash = shell(&newcomer, &folder, &script);
    let served = SERVED.contains(&page).then(|| Served::start(&newcomer.path().join("served"), &[]));
    if let Some(served) = &served {
        bash.env("CELLAR", format!("http://{}", served.address)).env("CELLAR_TOKEN", &served.token);
    }
    let ended = run(&mut bash);
    assert_eq!(ended.code, 0, "{page}\n{}\n{}\n{script}", ended.stdout, ended.stderr);
    for (_, block) in blocks(page).into_iter().filter(|(language, _)| language == "console") {
        let mut shown = String::new();
        for line in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
            let ended = run(&mut shell(&newcomer, &folder, &format!("exec 2>&1\n{}", exceptions.here(line))));
            shown += &format!("$ {line}\n{}", ended.stdout);
        }
        assert_eq!(shown, block, "{page}");
    }
}

macro_rules! pages {
    ($($name:ident $page:literal),* $(,)?) => {
        $(#[test] fn $name() { check($page); })*
        const PAGES: &[&str] = &[$($page),*];
    };
}

pages! {
    readme "README.md",
    quick_start "host/QUICKSTART.md",
    figures "host/FIGURES.md",
    ci "host/cli/CI.md",
    command_line "host/cli/README.md",
    kernels "host/jupyter/README.md",
    package_of_node "host/node/README.md",
    python "host/python/README.md",
    clients "host/server/CLIENTS.md",
    e2b "host/server/E2B.md",
    gateway "host/server/JUPYTER.md",
    operators "host/server/README.md",
}

#[test]
fn every_page_with_commands_is_run_and_every_exception_is_one() {
    let pages = pages();
    assert_eq!(pages, PAGES.iter().map(|page| (*page).to_owned()).collect());
    let exceptions = Exceptions::read();
    for each in &exceptions.left_out {
        assert!(!each.reason.is_empty());
        let blocks = blocks(&each.page);
        let lines: Vec<&str> = blocks.iter().flat_map(|(_, block)| block.lines()).collect();
        for command in &each.commands {
            let is_there = lines.iter().any(|line| line.trim_start().trim_start_matches("- ").starts_with(command));
            assert!(is_there, "{} has no `{command}`", each.page);
        }
    }
    let run: Vec<usize> = PAGES.iter().map(|page| script(page, &exceptions).lines().count()).collect();
    assert!(run.iter().sum::<usize>() > 120, "{run:?}");
}

/// The steps of a file of CI: what is behind `run:`, and the items below `script:` and `before_script:`.
fn steps(yaml: &str) -> Vec<String> {
    let mut in_script = false;
    let mut steps = Vec::new();
    for line in yaml.lines() {
        let text = line.trim();
        if let Some(command) = text.strip_prefix("- run: ") {
            steps.push(command.to_owned());
        } else if let Some(item) = text.strip_prefix("- ").filter(|_| in_script) {
            steps.push(item.to_owned());
        } else {
            in_script = matches!(text, "script:" | "before_script:");
        }
    }
    steps
}

/// An archive as `make dist` makes it, but for the guests, which are those of this checkout.
fn release(newcomer: &Newcomer) -> String {
    let folder = newcomer.path().join("release");
    fs::create_dir_all(folder.join("cellar-0.1.0/bin")).expect("folders");
    fs::copy(newcomer.path().join("cellar"), folder.join("cellar-0.1.0/bin/cellar")).expect("copied");
    let archive = newcomer.path().join("release.tar.gz");
    let made = Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(&folder).arg("cellar-0.1.0").status();
    assert!(made.expect("tar runs").success());
    format!("file://{}", archive.display())
}

/// The files of CI run as they stand: each step in a shell, in a checkout with tests.
#[test]
fn files_of_ci_run_as_they_stand() {
    let exceptions = Exceptions::read();
    let page = "host/cli/CI.md";
    let files: BTreeMap<usize, String> = blocks(page)
        .into_iter()
        .filter(|(language, _)| language == "yaml")
        .map(|(_, block)| block)
        .enumerate()
        .collect();
    assert_eq!(files.len(), 2);
    for yaml in files.values() {
        let newcomer = Newcomer::new();
        let folder = work(&newcomer);
        let address = release(&newcomer);
        let steps = steps(yaml);
        assert!(steps.iter().any(|step| step.contains("cellar test")), "{steps:?}");
        for step in steps.iter().filter(|step| !exceptions.is_left_out(page, step)) {
            // As GitHub runs them.
            let mut bash = shell(&newcomer, &folder, &format!("set -eo pipefail\n{step}"));
            let ended = run(bash.env("CELLAR_RELEASE", &address).env("GITHUB_ACTIONS", "true"));
            assert_eq!(ended.code, 0, "{step}\n{}{}", ended.stdout, ended.stderr);
        }
        let results = fs::read_to_string(folder.join("results.xml")).expect("the results");
        assert!(results.contains("test_login_fails") && results.contains("a page is made as text"), "{results}");
        assert_eq!(yaml.contains("quality.json"), folder.join("quality.json").exists());
    }
}
