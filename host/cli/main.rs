//! The `cellar` command: reads the command line, starts the runtime, turns the outcome into an exit code.

// Callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod args;
mod artifacts;
mod bake;
mod calls;
mod completion;
mod datasets;
mod describe;
mod doctor;
mod kernel;
mod mcp;
mod notebook;
mod output;
mod packages;
mod program;
mod render;
mod repl;
mod replay;
mod report;
mod run;
mod serve;
mod sessions;
mod setup;
mod signals;
mod socket;
mod source;
mod states;
mod stdio;
mod table;
mod terminal;
mod testing;
mod token;
mod upgrade;

use std::{process::ExitCode, time::Duration};

use clap::{
    CommandFactory, Parser,
    error::{ContextKind, ContextValue},
};
use tikv_jemallocator::Jemalloc;
use tracing_subscriber::EnvFilter;

use crate::{
    args::{Arguments, Command, KernelCommand, WORK},
    report::{CliError, EXIT_COMPLETE},
};

/// A host that runs for long lends memory to many threads and wants it back: that of the C library keeps most of it.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Time that calls still in progress have for their clean-up at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Threads of the runtime besides one for each core.
const THREADS_BESIDES: usize = 2;

fn main() -> ExitCode {
    completion::answer();
    work_in_processes();
    let arguments = match Arguments::try_parse_from(args::without_traits(std::env::args_os())) {
        Ok(arguments) => arguments,
        Err(error) => return report::print_usage(shown(error)),
    };
    log_to_stderr(&arguments.command);
    let code = match dispatch(arguments) {
        Ok(code) => code,
        Err(error) if error.is_reader_gone() => EXIT_COMPLETE,
        Err(error) => {
            report::print_error(&error);
            error.exit_code()
        }
    };
    signals::die(code);
    ExitCode::from(code)
}

/// Registers this program, as it was started, as the worker that draws charts and reads files of tables in processes of their own.
fn work_in_processes() {
    let program = if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() };
    if let Ok(program) = program {
        cellar_worker::offer(program, vec![WORK.into()]);
    }
}

/// Logs what `CELLAR_LOG` asks for, such as `info` or `cellar_bridges=debug`; warnings otherwise, but for those of the MCP
/// SDK, whose failures are told anyway.
///
/// A server logs its start, its end and each request besides, as an object a line where its configuration asks for objects.
fn log_to_stderr(command: &Command) {
    let (is_server, is_json) = match command {
        Command::Serve(arguments) => (true, serve::logs_json(arguments)),
        _ => (false, false),
    };
    let usual = match is_server {
        true => "warn,rmcp=off,cellar_server::requests=info,cellar_server::lifecycle=info",
        false => "warn,rmcp=off",
    };
    let filter = EnvFilter::try_from_env("CELLAR_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    if is_json {
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter);
        return log.with_writer(|| terminal::Log).init();
    }
    let colors = terminal::Look::of_stderr().has_colors;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| terminal::Log).with_ansi(colors).init();
}

fn dispatch(arguments: Arguments) -> Result<u8, CliError> {
    let folders = arguments.folders;
    match arguments.command {
        Command::Run(arguments) => on_runtime(run::run(&folders, arguments)),
        Command::Eval(arguments) => on_runtime(run::eval(&folders, arguments)),
        Command::Test(arguments) => on_runtime(testing::test(&folders, arguments)),
        Command::Replay(arguments) => on_runtime(replay::replay(&folders, arguments)),
        Command::Repl(arguments) => on_runtime(repl::repl(&folders, arguments)),
        Command::Stdio(arguments) => on_runtime(stdio::stdio(&folders, arguments)),
        Command::Serve(arguments) => serve::serve(&folders, arguments),
        Command::Mcp(arguments) => on_runtime(mcp::mcp(&folders, arguments)),
        Command::Kernel(arguments) => match arguments.command {
            KernelCommand::Install(arguments) => kernel::install_kernels(&folders, &arguments),
            KernelCommand::Run(arguments) => on_runtime(kernel::run(&folders, arguments)),
        },
        Command::Token(arguments) => token::token(&folders, arguments),
        Command::Session(arguments) => sessions::session(&folders, &arguments.command),
        Command::Former(former) => sessions::session(&folders, &former.into()),
        Command::Calls(arguments) => calls::calls(&folders, arguments),
        Command::Artifact(arguments) => artifacts::artifact(&folders, &arguments),
        Command::Dataset(arguments) => datasets::dataset(&folders, &arguments),
        Command::Packages(arguments) => on_runtime(packages::packages(&folders, arguments)),
        Command::Doctor(arguments) => on_runtime(doctor::doctor(&folders, &arguments)),
        Command::Describe(arguments) => on_runtime(describe::describe(arguments)),
        Command::Bake(arguments) => bake::bake_guests(&folders, &arguments),
        Command::Schema { shape } => {
            match shape {
                Some(shape) => output::print_json(&shape.schema())?,
                None => output::print_json(&cellar_wire::Shape::all())?,
            }
            Ok(EXIT_COMPLETE)
        }
        Command::Work { job, seconds, request } => {
            let done = match job.as_str() {
                cellar_charts::JOB => cellar_charts::serve(seconds, request.as_deref().map(std::path::Path::new)),
                cellar_tables::convert::JOB => {
                    cellar_tables::convert::serve(seconds, request.as_deref().unwrap_or_default())
                }
                cellar_worker::HELP => cellar_worker::help(),
                _ => Err(std::io::ErrorKind::InvalidInput.into()),
            };
            done.map_err(CliError::Start)?;
            Ok(EXIT_COMPLETE)
        }
        Command::Manual { folder } => {
            std::fs::create_dir_all(&folder)
                .and_then(|()| clap_mangen::generate_to(Arguments::command(), &folder))
                .map_err(|error| {
                    CliError::usage(format!("cannot write into `{}`: {error}", folder.display()), "name another folder")
                })?;
            Ok(EXIT_COMPLETE)
        }
        Command::Version => {
            output::print(&format!("cellar {}\n", env!("CARGO_PKG_VERSION")))?;
            Ok(EXIT_COMPLETE)
        }
        Command::Completions { shell } => {
            output::print_data(&completion::script(shell)?)?;
            Ok(EXIT_COMPLETE)
        }
    }
}

/// An error about the command line that proposes no hidden command.
fn shown(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand).cloned() else { return error };
    let whole = Arguments::command();
    let is_shown = |name: &String| whole.find_subcommand(name).is_some_and(|command| !command.is_hide_set());
    let names: Vec<String> = names.into_iter().filter(is_shown).collect();
    match names.is_empty() {
        true => error.remove(ContextKind::SuggestedSubcommand),
        false => error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names)),
    };
    error
}

fn on_runtime(work: impl Future<Output = Result<u8, CliError>>) -> Result<u8, CliError> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Cells that compute take a thread for each core: those that remain look after everybody else.
    let runtime =
        runtime.worker_threads(cores.saturating_add(THREADS_BESIDES)).enable_all().build().map_err(CliError::Start)?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    result
}
