//! Programs and files of tests as those who start them see them: `fixtures/programs.txt` has commands one after another, and
//! what they print; the programs lie in `fixtures/programs`.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
};

use crate::support::{cellar_with_guests, root, run, run_with_input};

/// A folder with the programs, in which they may write.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let copied = Command::new("cp").arg("-r").arg(root().join("fixtures/programs/.")).arg(folder.path()).status();
    assert!(copied.expect("cp runs").success());
    folder
}

fn command(folder: &Path, line: &str) -> Command {
    let mut command = cellar_with_guests(line.split(' ').skip(1));
    command.current_dir(folder).env("CELLAR_STORE", folder.join("store"));
    command.env("CELLAR_PACKAGE_STORE", folder.join("packages")).env_remove("GITHUB_ACTIONS");
    command
}

/// Text without times and sizes, and without the lines that are as long as they leave room for.
fn steady(text: &str) -> String {
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let is_time = |word: &str| word.strip_suffix('s').is_some_and(|number| number.contains('.') && is_number(number));
    let line = |line: &str| {
        let mut words: Vec<String> = Vec::new();
        for word in line.trim_end().split(' ') {
            let before = words.last().is_some_and(|before| is_number(before));
            match word {
                "s" | "ms" | "µs" | "min" | "kB" | "MB" if before => {
                    *words.last_mut().expect("a word") = "[n]".to_owned()
                }
                _ if is_time(word) => words.push("[n]".to_owned()),
                _ if word.starts_with("==") => words.push("==".to_owned()),
                _ => words.push(word.to_owned()),
            }
        }
        // The columns of a list are as wide as the ages in it.
        if line.starts_with("NAME ") {
            words.retain(|word| !word.is_empty());
        }
        words.join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

#[test]
fn programs_end_as_they_say_and_show_what_they_print() {
    let path = root().join("fixtures/programs.txt");
    let expected = fs::read_to_string(&path).expect("the fixture");
    let folder = folder();
    let told = |line: &str| {
        let ended = run(&mut command(folder.path(), line));
        let exit = if ended.code == 0 { String::new() } else { format!("exit {}\n", ended.code) };
        format!("$ {line}\n{}", steady(&(ended.stdout + &exit + &ended.stderr)))
    };
    let found: String = expected.lines().filter_map(|line| line.strip_prefix("$ ")).map(told).collect();
    if std::env::var_os("CELLAR_BLESS").is_some() {
        fs::write(&path, &found).expect("written");
    }
    let diff = similar::TextDiff::from_lines(&expected, &found);
    assert!(expected == found, "`make bless` accepts it\n{}", diff.unified_diff().header("expected", "found"));
    let junit = fs::read_to_string(folder.path().join("results.xml")).expect("the results");
    let wrong = r#"<testcase classname="suite/test_calc.py" name="suite/test_calc.py::test_wrong" file="suite/test_calc.py" line="11""#;
    assert!(junit.contains(wrong) && junit.contains("<failure message=\"assert 3 == 4"), "{junit}");
    assert!(junit.contains("<skipped message=") && junit.contains("<error message=\"CellTimeout"), "{junit}");
    let quality = fs::read_to_string(folder.path().join("quality.json")).expect("the report");
    let quality: serde_json::Value = serde_json::from_str(&quality).expect("JSON");
    let place =
        |issue: &serde_json::Value| (issue["location"]["path"].clone(), issue["location"]["lines"]["begin"].clone());
    let places: Vec<_> = quality.as_array().expect("issues").iter().map(place).collect();
    assert!(places.contains(&("suite/calc.test.mjs".into(), 7.into())), "{places:?}");
}

#[test]
fn failures_are_annotations_where_github_reads_them() {
    let folder = folder();
    let mut command = command(folder.path(), "cellar test suite/test_calc.py");
    let ended = run(command.env("GITHUB_ACTIONS", "true"));
    let line = ended.stdout.lines().find(|line| line.starts_with("::error ")).expect("an annotation");
    let expected = "::error file=suite/test_calc.py,line=11,title=suite/test_calc.py%3A%3Atest_wrong::assert 3 == 4";
    assert!(line.starts_with(expected), "{line}");
}

#[test]
fn piped_code_needs_no_hyphen() {
    let folder = folder();
    let piped = |line: &str, input: &str| {
        let ended = run_with_input(&mut command(folder.path(), line), input.as_bytes());
        (ended.code, ended.stdout)
    };
    assert_eq!(piped("cellar eval -l py", "1 + 1"), (0, "2\n".to_owned()));
    assert_eq!(piped("cellar run -l js", "console.log(2)"), (0, "2\n".to_owned()));
    assert_eq!(piped("cellar run", "#!/usr/bin/env node\nconsole.log(3)"), (0, "3\n".to_owned()));
}

#[test]
fn arguments_are_those_of_this_run_in_a_session_that_is_kept() {
    let folder = folder();
    let shown =
        |arguments: &str| run(&mut command(folder.path(), &format!("cellar run --session s {arguments}"))).stdout;
    assert_eq!(shown("status.py a"), "['a']\n");
    assert_eq!(shown("status.py b c"), "['b', 'c']\n");
    assert_eq!(shown("status.js d"), "[ 'd' ]\n");
    assert_eq!(shown("status.js e"), "[ 'e' ]\n");
}

#[test]
fn signals_end_a_program_with_their_status() {
    let folder = folder();
    fs::write(folder.path().join("begun.py"), "print('begun', flush=True)\nwhile True: pass\n").expect("written");
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let mut child = command(folder.path(), "cellar run begun.py --timeout 600").spawn().expect("cellar starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        lines.find(|line| line == "begun").expect("the program runs");
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
        assert_eq!(child.wait().expect("ended").signal(), Some(number), "{signal}");
    }
}

#[test]
fn a_signal_ends_the_loop_of_a_shell_and_an_exit_code_does_not() {
    let folder = folder();
    let program =
        "import sys\nprint('begun', flush=True)\nif sys.argv[1] == 'loops':\n    while True: pass\nsys.exit(130)\n";
    fs::write(folder.path().join("begun.py"), program).expect("written");
    let cellar = env!("CARGO_BIN_EXE_cellar");
    let looped =
        |how: &str| format!("for n in 1 2; do '{cellar}' run begun.py {how} --timeout 600; echo \"ended $?\"; done");
    let shell = |script: &str| {
        let mut bash = Command::new("setsid");
        bash.args(["bash", "-c", script]).current_dir(folder.path()).stdout(Stdio::piped());
        bash.env("CELLAR_GUESTS", root().join("target/guests")).env("CELLAR_STORE", folder.path().join("store"));
        bash
    };
    assert_eq!(run(&mut shell(&looped("ends"))).stdout, "begun\nended 130\nbegun\nended 130\n");
    let mut child = shell(&looped("loops")).spawn().expect("bash starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("begun"));
    // As a terminal does: the whole group.
    let killed = Command::new("kill").args(["-INT", "--", &format!("-{}", child.id())]).status();
    assert!(killed.expect("kill runs").success());
    assert_eq!(lines.next(), None, "the loop went on");
    assert_eq!(child.wait().expect("ended").signal(), Some(2));
}

#[test]
fn shells_complete_the_names_of_sessions() {
    let folder = folder();
    run(&mut command(folder.path(), "cellar eval -l py --session worked 1"));
    let mut command = command(folder.path(), "cellar -- cellar eval --session wo");
    command.env("CELLAR_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "3").env("_CLAP_IFS", "\n");
    assert_eq!(run(command.env("_CLAP_COMPLETE_COMP_TYPE", "9")).stdout, "worked");
}

#[test]
fn a_server_that_would_not_start_is_told_of_before_it_is_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write("good.toml", "[limits]\ntimeout = 5\n");
    write("blue.toml", "[limts]\ntimeout = 5\n");
    write("cellar.toml", "[tenants.red]\nconfig = \"good.toml\"\n[tenants.blue]\nconfig = \"blue.toml\"\n");
    let ended = |line: &str| run(&mut command(folder.path(), line));
    let refused = ended("cellar serve --check --listen 127.0.0.1:0 --config cellar.toml");
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("limts: unknown field, did you mean `limits`?"), "{}", refused.stderr);
    let report = ended("cellar doctor --config cellar.toml");
    assert_eq!(report.code, 3);
    assert!(report.stdout.contains("`cellar serve` would not start: "), "{}", report.stdout);
    write("blue.toml", "[limits]\ntimeout = 1.5\n");
    let accepted = ended("cellar serve --check --listen 127.0.0.1:0 --config cellar.toml");
    assert_eq!((accepted.code, accepted.stderr.as_str()), (0, ""));
    assert!(
        accepted.stdout.contains("for blue, red") || accepted.stdout.contains("for red, blue"),
        "{}",
        accepted.stdout
    );
    assert_eq!(ended("cellar doctor --config cellar.toml").code, 0);
}
