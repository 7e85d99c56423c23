use std::time::{Duration, Instant};

use cellar_files::Mount;

use super::*;

/// Imports and data of the programs in these tests.
const IMPORTS: &str = r#"
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_open"
        (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (data (i32.const 2000) "a complaint\n")
    (data (i32.const 2100) "a.txt")
    (data (i32.const 2200) "../outside.txt")"#;

/// Writes what it reads.
const ECHO: &str = r#"
    (loop $next
        (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 1024))
        (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (if (i32.load (i32.const 8)) (then
            (i32.store (i32.const 4) (i32.load (i32.const 8)))
            (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 12)))
            (br $next))))"#;
const SPIN: &str = "(loop $next (br $next))";
/// Takes memory until it gets none, then gives up.
const GROW: &str = r#"
    (loop $next (br_if $next (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
    (unreachable)"#;
const PRINT: &str = r#"
    (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 65000))
    (loop $next
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 12)))
        (br $next))"#;
const COMPLAIN: &str = r#"
    (i32.store (i32.const 0) (i32.const 2000)) (i32.store (i32.const 4) (i32.const 12))
    (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 12)))
    (call $exit (i32.const 7))"#;

/// Exits with what opening a name of the first folder came to; 0 is success.
fn open(name: u32, bytes: u32, flags: u32, rights: u64) -> String {
    format!(
        "(call $exit (call $open (i32.const 3) (i32.const 0) (i32.const {name}) (i32.const {bytes}) \
         (i32.const {flags}) (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 16)))"
    )
}

/// The module with this body, and the component that is made of it.
fn forms(body: &str) -> [Vec<u8>; 2] {
    let module = wat::parse_str(format!("(module {IMPORTS} (func (export \"_start\") {body}))")).expect("a module");
    let component = adapted(&module).expect("a component");
    [module, component]
}

/// A folder with a program in it, which is granted nothing.
fn program(bytes: &[u8]) -> (tempfile::TempDir, ComponentProgram) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tool.wasm");
    fs::write(&file, bytes).expect("written");
    let program = ComponentProgram {
        file,
        arguments: Vec::new(),
        mounts: Vec::new(),
        environment: Vec::new(),
        memory_bytes: 16 << 20,
        fuel: None,
        timeout: Duration::from_secs(60),
    };
    (folder, program)
}

/// Runs both forms of a program, checks that their results are the same, and returns the result.
async fn ends(body: &str, change: impl Fn(&mut ComponentProgram, &Path), input: &str) -> Result<Vec<u8>, RunError> {
    let mut ends = Vec::new();
    for bytes in forms(body) {
        let (folder, mut program) = program(&bytes);
        change(&mut program, folder.path());
        ends.push(run(&program, input.as_bytes().to_vec()).await);
    }
    assert_eq!(ends[0], ends[1], "the module and the component");
    ends.swap_remove(0)
}

fn no_change(_: &mut ComponentProgram, _: &Path) {}

#[tokio::test]
async fn what_is_read_is_written() {
    let text = "0123456789".repeat(10_000);
    assert_eq!(ends(ECHO, no_change, &text).await, Ok(text.clone().into_bytes()));
    let fuel = |program: &mut ComponentProgram, _: &Path| program.fuel = Some(1_000_000_000);
    assert_eq!(ends(ECHO, fuel, &text).await, Ok(text.into_bytes()));
}

#[tokio::test]
async fn a_loop_is_stopped_by_time_and_by_fuel() {
    let began = Instant::now();
    let time = |program: &mut ComponentProgram, _: &Path| program.timeout = Duration::from_millis(300);
    assert_eq!(ends(SPIN, time, "").await, Err(RunError::Timeout(Duration::from_millis(300))));
    assert!(began.elapsed() < Duration::from_secs(20));
    let fuel = |program: &mut ComponentProgram, _: &Path| program.fuel = Some(100_000);
    assert_eq!(ends(SPIN, fuel, "").await, Err(RunError::Fuel(100_000)));
}

#[tokio::test]
async fn a_loop_holds_up_nobody_and_ends_with_its_caller() {
    let [module, _] = forms(SPIN);
    let (_folder, spinner) = program(&module);
    // One thread serves both.
    let mut spinning = Box::pin(run(&spinner, Vec::new()));
    let echoed = async {
        let echo = ends(ECHO, no_change, "here").await;
        assert_eq!(echo, Ok(b"here".to_vec()));
    };
    tokio::select! {
        ended = &mut spinning => panic!("it has no end: {ended:?}"),
        () = echoed => {}
    }
    drop(spinning);
    let room = Machine::get().expect("a machine").room.available_permits();
    assert!(room > 0, "what it took is given back");
}

#[tokio::test]
async fn memory_has_a_bound_which_the_message_tells() {
    let Err(RunError::Trap { what, errors }) = ends(GROW, no_change, "").await else { panic!("a trap") };
    assert!(what.ends_with(", after it was refused more than 16 MiB of memory"), "{what}");
    assert_eq!(errors, b"");
    let little = |program: &mut ComponentProgram, _: &Path| program.memory_bytes = 1 << 10;
    let [module, _] = forms(ECHO);
    let (_folder, mut program) = program(&module);
    little(&mut program, Path::new(""));
    let ended = run(&program, Vec::new()).await;
    assert!(matches!(ended, Err(RunError::Trap { .. })), "it does not even begin: {ended:?}");
}

#[tokio::test]
async fn printing_without_end_is_stopped() {
    assert_eq!(ends(PRINT, no_change, "").await, Err(RunError::Output));
}

#[tokio::test]
async fn a_failure_has_its_status_and_its_last_words() {
    // Components tell whether they failed, and no number.
    let errors = b"a complaint\n".to_vec();
    assert_eq!(ends(COMPLAIN, no_change, "").await, Err(RunError::Exit { status: 1, errors }));
}

#[tokio::test]
async fn nothing_is_opened_but_what_is_granted_as_it_is_granted() {
    let granted = |access| {
        move |program: &mut ComponentProgram, folder: &Path| {
            let data = folder.join("data");
            fs::create_dir_all(&data).expect("a folder");
            fs::write(data.join("a.txt"), "text").expect("written");
            fs::write(folder.join("outside.txt"), "text").expect("written");
            program.mounts = vec![Mount { host: data, guest: "/data".to_owned(), access }];
        }
    };
    let failed = |ended: Result<Vec<u8>, RunError>| matches!(ended, Err(RunError::Exit { .. }));
    let (read, write) = (1 << 1, 1 << 6);
    let create = 1;
    assert!(failed(ends(&open(2_100, 5, 0, read), no_change, "").await), "no folder is granted");
    assert_eq!(ends(&open(2_100, 5, 0, read), granted(Access::ReadOnly), "").await, Ok(Vec::new()));
    assert!(failed(ends(&open(2_200, 14, 0, read), granted(Access::ReadWrite), "").await), "a path that leads out");
    assert!(failed(ends(&open(2_100, 5, 0, write), granted(Access::ReadOnly), "").await), "a file to be written");
    assert!(failed(ends(&open(2_100, 2, create, write), granted(Access::ReadOnly), "").await), "a file to be made");
    assert_eq!(ends(&open(2_100, 2, create, write), granted(Access::ReadWrite), "").await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_pipe_is_not_opened_and_holds_no_thread() {
    let piped = |program: &mut ComponentProgram, folder: &Path| {
        let data = folder.join("data");
        fs::create_dir_all(&data).expect("a folder");
        let made = std::process::Command::new("mkfifo").arg(data.join("a.txt")).status().expect("mkfifo");
        assert!(made.success());
        program.mounts = vec![Mount { host: data, guest: "/data".to_owned(), access: Access::ReadWrite }];
    };
    // Opening it would wait until somebody writes, which nobody does.
    for rights in [1 << 1, 1 << 6] {
        let ended = ends(&open(2_100, 5, 0, rights), piped, "").await;
        assert!(matches!(ended, Err(RunError::Exit { .. })), "{ended:?}");
    }
    assert_eq!(ends(ECHO, no_change, "a line").await, Ok(b"a line".to_vec()));
}

#[tokio::test]
async fn what_is_no_tool_is_said_to_be_none() {
    for (bytes, reason) in [
        (b"text".to_vec(), "is no WebAssembly"),
        (wat::parse_str("(module)").expect("a module"), "is a module that makes no command: "),
        (wat::parse_str("(component)").expect("a component"), "run"),
        (
            wat::parse_str("(module (import \"env\" \"f\" (func)) (func (export \"_start\")))").expect("a module"),
            "is a module that makes no command: ",
        ),
        (forms(ECHO)[0][..200].to_vec(), "is a module that makes no command: "),
    ] {
        let (_folder, program) = program(&bytes);
        let Err(RunError::Unusable(message)) = check(&program).await else { panic!("refused: {reason}") };
        assert!(message.contains(reason), "{message}");
    }
    let (folder, program) = program(b"");
    fs::remove_file(&program.file).expect("removed");
    let message = format!("cannot be used: `{}`: No such file or directory (os error 2)", program.file.display());
    assert_eq!(check(&program).await.map_err(|error| error.to_string()), Err(message));
    drop(folder);
}

#[tokio::test]
async fn a_program_that_changed_is_compiled_again_and_others_are_not() {
    let [module, component] = forms(ECHO);
    let (_folder, program) = program(&module);
    assert_eq!(run(&program, b"a".to_vec()).await, Ok(b"a".to_vec()));
    let machine = Machine::get().expect("a machine");
    let identity = Identity::of(&program).expect("there");
    assert!(machine.kept(&identity).is_some());
    fs::write(&program.file, &component).expect("written");
    assert_eq!(run(&program, b"b".to_vec()).await, Ok(b"b".to_vec()));
    assert!(machine.kept(&identity).is_none(), "what it was before is forgotten");
    let identity = Identity::of(&program).expect("there");
    assert!(machine.kept(&identity).is_some());
}

#[test]
fn a_cache_that_others_may_write_is_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own");
    assert!(cache(&own).is_some());
    assert_eq!(fs::metadata(&own).expect("made").permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&own, fs::Permissions::from_mode(0o770)).expect("set");
    assert!(cache(&own).is_none());
    assert!(cache(Path::new("/proc/nowhere")).is_none());
}
