//! Tests of what the helper starts and refuses. This program is its own helper.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    io::{Read, Seek, SeekFrom, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use cellar_worker::{HELP, Input, Process, Recipe};
use libtest_mimic::{Arguments, Trial};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn main() -> ExitCode {
    cellar_worker::offer(std::env::current_exe().expect("this program"), Vec::new());
    if std::env::args().nth(1).as_deref() == Some(HELP) {
        return if cellar_worker::help().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let arguments = Arguments::from_args();
    if !arguments.list {
        let jobs = cellar_worker::job_recipe().expect("jobs");
        cellar_worker::use_helper(&[shell(), closed(), small(), jobs]).expect("a helper");
    }
    let trials = vec![
        trial("a_process_has_its_streams_and_its_status", streams),
        trial("a_file_is_read_as_it_is", file),
        trial("what_it_was_not_told_is_refused", refusals),
        trial("a_program_that_is_not_there_is_said_to_be_none", missing),
        trial("a_process_that_is_given_up_ends_with_all_that_it_started", given_up),
        trial("what_a_process_leaves_running_ends_with_it", left_running),
        trial("how_it_ended_can_be_asked", asked),
        trial("one_that_holds_too_much_memory_is_killed_with_all_that_it_started", held_too_much),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, run: impl AsyncFnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run());
        Ok(())
    })
}

/// A shell that runs whatever it is given.
fn shell() -> Recipe {
    Recipe {
        argv: vec!["/bin/sh".to_owned(), "-c".to_owned()],
        folder: Some(PathBuf::from("/")),
        environment: vec![("GIVEN".to_owned(), "given".to_owned())],
        inherit: vec!["PATH".to_owned()],
        is_open: true,
        is_quiet: false,
        memory_bytes: None,
    }
}

/// A program that takes no arguments but its own, and is not there.
fn closed() -> Recipe {
    Recipe { argv: vec!["/nowhere/program".to_owned()], is_open: false, ..shell() }
}

/// The shell, with little memory.
fn small() -> Recipe {
    Recipe { memory_bytes: Some(100 << 20), ..shell() }
}

async fn started(script: &str) -> Process {
    cellar_worker::start(&shell(), &[script.to_owned()], &[], Input::Pipe).await.expect("started")
}

async fn all(from: &mut Option<impl AsyncReadExt + Unpin>) -> String {
    let mut text = String::new();
    from.as_mut().expect("a stream").read_to_string(&mut text).await.expect("text");
    text
}

async fn streams() {
    let variables = [("CELLAR_MORE".to_owned(), "more".to_owned())];
    let script = "read line; echo \"$line $GIVEN $CELLAR_MORE $PWD\"; echo complaint >&2; env | wc -l >&2; exit 3";
    let mut process =
        cellar_worker::start(&shell(), &[script.to_owned()], &variables, Input::Pipe).await.expect("started");
    process.stdin.take().expect("a pipe").write_all(b"a line\n").await.expect("written");
    assert_eq!(all(&mut process.stdout).await, "a line given more /\n");
    let errors = all(&mut process.stderr).await;
    // PATH, GIVEN, CELLAR_MORE, and what the shell adds: PWD, and in some shells OLDPWD, SHLVL and `_`.
    let (first, count) = errors.split_once('\n').expect("two lines");
    assert!(first == "complaint" && count.trim().parse::<u32>().is_ok_and(|count| count <= 7), "{errors}");
    assert_eq!(process.wait().await.expect("ended").code(), Some(3));
    assert_eq!(process.wait().await.expect("it is known").code(), Some(3));
}

async fn file() {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"contents").expect("written");
    file.seek(SeekFrom::Start(0)).expect("sought");
    let mut process =
        cellar_worker::start(&shell(), &["cat".to_owned()], &[], Input::File(file)).await.expect("started");
    assert!(process.stdin.is_none());
    assert_eq!(all(&mut process.stdout).await, "contents");
}

async fn refusals() {
    let refused = async |recipe: Recipe, arguments: &[&str], variables: &[(&str, &str)]| {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: Vec<_> = variables.iter().map(own).collect();
        let error = cellar_worker::start(&recipe, &arguments, &variables, Input::Pipe).await.expect_err("refused");
        assert_eq!(error.to_string(), "the helper was not told that this may be run");
    };
    refused(Recipe { argv: vec!["/bin/true".to_owned()], ..shell() }, &[], &[]).await;
    let loaded = vec![("LD_PRELOAD".to_owned(), "/tmp/evil.so".to_owned())];
    refused(Recipe { environment: loaded, ..shell() }, &["true"], &[]).await;
    refused(Recipe { folder: Some(PathBuf::from("/tmp")), ..shell() }, &["true"], &[]).await;
    refused(Recipe { inherit: vec!["HOME".to_owned()], ..shell() }, &["true"], &[]).await;
    refused(Recipe { is_open: true, ..closed() }, &["argument"], &[]).await;
    refused(closed(), &["argument"], &[]).await;
    refused(shell(), &["true"], &[("LD_PRELOAD", "/tmp/evil.so")]).await;
    // A helper of whoever asks would run whatever he tells it.
    refused(cellar_worker::job_recipe().expect("jobs"), &[HELP, "0"], &[]).await;
}

async fn missing() {
    let error = cellar_worker::start(&closed(), &[], &[], Input::Pipe).await.expect_err("not there");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

/// Returns true if a process of this number exists and is no zombie.
fn lives(pid: &str) -> bool {
    let Ok(mut file) = std::fs::File::open(Path::new("/proc").join(pid).join("stat")) else { return false };
    let mut stat = String::new();
    file.read_to_string(&mut stat).is_ok() && !stat.contains(") Z ")
}

/// Waits until none of these processes lives; the harness ends a test that waits for ever.
async fn gone(pids: &[&str]) {
    while pids.iter().any(|pid| lives(pid)) {
        tokio::task::yield_now().await;
    }
}

async fn given_up() {
    let mut process = started("sleep 1000 & echo $! $$; wait").await;
    let mut line = [0; 64];
    let count = process.stdout.as_mut().expect("a stream").read(&mut line).await.expect("a line");
    let line = String::from_utf8_lossy(&line[..count]).into_owned();
    let pids: Vec<&str> = line.split_whitespace().collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| lives(pid)), "{line}");
    drop(process);
    gone(&pids).await;
}

async fn left_running() {
    let mut process = started("sleep 1000 >&2 & echo $!; kill -9 $$").await;
    let line = {
        let mut line = [0; 64];
        let count = process.stdout.as_mut().expect("a stream").read(&mut line).await.expect("a line");
        String::from_utf8_lossy(&line[..count]).into_owned()
    };
    assert_eq!(process.wait().await.expect("ended").signal(), Some(9));
    gone(&[line.trim()]).await;
}

async fn asked() {
    let mut process = started("read line; exit 5").await;
    assert_eq!(process.ended(), None);
    drop(process.stdin.take());
    let ended = loop {
        match process.ended() {
            Some(ended) => break ended,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(ended.code(), Some(5));
}

async fn held_too_much() {
    let run = async |script: &str| {
        let process = cellar_worker::start(&small(), &[script.to_owned()], &[], Input::Pipe).await;
        let mut process = process.expect("started");
        (process.wait().await.expect("ended"), process.held_too_much())
    };
    // By itself, and by what it starts.
    for script in [
        "exec python3 -c 'held = bytearray(b\"x\") * (300 << 20); import time; time.sleep(1000)'",
        "head -c 300000000 /dev/zero | tail | sleep 1000",
    ] {
        let (ended, is_beyond) = run(script).await;
        assert!(ended.signal() == Some(9) && is_beyond, "{script}: {ended}");
    }
    let (ended, is_beyond) = run("head -c 3000000 /dev/zero | tail -c 3; exit 3").await;
    assert_eq!((ended.code(), is_beyond), (Some(3), false));
}
