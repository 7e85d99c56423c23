//! The command line, as types. What they mean is decided where they are used.

mod artifacts;
mod calls;
mod describe;
mod kernel;
mod limits;
mod lineage;
mod names;
mod packages;
mod sessions;
mod states;
mod testing;

use std::{net::SocketAddr, path::PathBuf};

use cellar_engine::{
    config::{Stops, Target},
    results::OutputPolicy,
};
use cellar_packages::Source;
use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use clap_complete::Shell;

use cellar_wire::{PAGE_CHARACTERS, PAGE_ROWS, Shape};

pub(crate) use self::{
    artifacts::{ArtifactArguments, ArtifactCommand, ArtifactPut},
    calls::{CallsArguments, CallsCommand},
    describe::DescribeArguments,
    kernel::{KernelArguments, KernelCommand, KernelInstall, KernelRun, without_traits},
    limits::LimitArguments,
    lineage::{DatasetArguments, DatasetCommand, DatasetPublish, LineageArguments},
    names::{GuestCode, LanguageCode},
    packages::{PackagesArguments, PackagesCommand},
    sessions::{
        ForkArguments, FormerCommand, KeptSessionArguments, OriginArguments, RestoreArguments, SessionCommand,
        SnapshotArguments, UpgradeArguments,
    },
    states::{BranchArguments, DiffArguments, LogArguments, NameArguments, PinArguments, StateArguments},
    testing::TestArguments,
};

/// Runs the Python and JavaScript that agents write, inside WebAssembly sandboxes.
#[derive(Debug, Parser)]
#[command(name = "cellar", version, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) folders: Folders,
}

/// Where Cellar keeps its own things.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Folders")]
pub(crate) struct Folders {
    /// Folder of the guests [default: guests beside the program's folder, else in the user's data folder]
    #[arg(long, global = true, value_name = "DIR", env = "CELLAR_GUESTS", hide_env_values = true)]
    pub(crate) guests: Option<PathBuf>,
    /// Folder for baked and compiled guests [default: cellar in the user's cache folder]
    #[arg(long, global = true, value_name = "DIR", env = "CELLAR_CACHE", hide_env_values = true)]
    pub(crate) cache: Option<PathBuf>,
    /// Folder of the sessions that --session keeps, and of kept outputs [default: cellar/sessions in the user's state folder]
    #[arg(long, global = true, value_name = "DIR", env = "CELLAR_STORE", hide_env_values = true)]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run cells from a file and show what they did
    Run(RunArguments),
    /// Run one cell and print its output
    Eval(EvalArguments),
    /// Run files of tests by pytest and node:test, each in a sandbox
    ///
    /// Tests see the current folder, and may not change it unless --workspace names it; `/tmp` is theirs. The time limit
    /// (--timeout) is that of a file. The exit code is 0 if all tests passed, 1 if one failed, 2 if there are none.
    Test(TestArguments),
    /// Play a run that --record kept: its cells run again, and show the same
    ///
    /// They need no network, no tools, no model, no files and no workspace: the recording answers whatever they ask for.
    /// It plays on the build of the guests that it was made with.
    Replay(ReplayArguments),
    /// Type cells and see what they do
    Repl(ReplArguments),
    /// Serve runs, tools and input to the program that started this one, one JSON object a line
    Stdio(StdioArguments),
    /// Serve sessions and runs over HTTP, to one user or to many tenants
    ///
    /// Without a configuration it serves whoever started it, on an address that only this machine reaches, with a token that
    /// it prints. SIGHUP has it read its tokens again; SIGTERM has it refuse new work, wait for what runs, store every
    /// session and end.
    Serve(ServeArguments),
    /// Serve sessions and runs to the client of the Model Context Protocol that started this one
    Mcp(McpArguments),
    /// Run notebooks of Jupyter, VS Code and papermill in a sandbox
    Kernel(KernelArguments),
    /// Make, list and revoke the tokens of `cellar serve`
    Token(TokenArguments),
    /// List, copy, save and remove the sessions that --session keeps
    Session(KeptSessionArguments),
    /// List, approve and reject the calls of cells that wait for a person
    Calls(CallsArguments),
    /// List, read, add and remove kept outputs: artifact:// and agent://
    Artifact(ArtifactArguments),
    /// Publish, list, read and remove datasets: tables under a name, version by version
    Dataset(DatasetArguments),
    /// Add, list, check and remove the packages that sessions can be granted
    Packages(PackagesArguments),
    /// Tell what is installed, what is in force and what is missing
    Doctor(DoctorArguments),
    /// Print what a model is told that cells may call: tools, packs, connectors, as typed signatures
    Describe(DescribeArguments),
    /// Make guests ready to start, which `run` and `eval` do themselves when they must
    Bake(BakeArguments),
    /// Print the JSON Schema of what Cellar reads and writes
    Schema {
        /// What to describe [default: everything, by name]
        #[arg(value_parser = shape_parser())]
        shape: Option<Shape>,
    },
    /// Print version
    Version,
    /// Print a completion script for a shell, which also completes the names of sessions and datasets
    Completions {
        /// Shell to write it for
        shell: Shell,
    },
    /// Write manual pages, made of these texts, into a folder
    Manual {
        /// The folder, which is made
        folder: PathBuf,
    },
    #[command(flatten)]
    Former(FormerCommand),
    /// Do a piece of work for this program itself
    #[command(name = WORK, hide = true)]
    Work { job: String, seconds: u64, request: Option<String> },
}

/// What this program is asked for when it works for itself, in a process that can be killed.
pub(crate) const WORK: &str = "work";

fn shape_parser() -> impl TypedValueParser<Value = Shape> {
    let shapes = Shape::ALL.map(|shape| PossibleValue::new(shape.name()).help(shape.about()));
    PossibleValuesParser::new(shapes).try_map(|name| Shape::from_name(&name).ok_or("no shape has this name"))
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// A program (.py, .js, .mjs, .cjs, .ts, .mts, .cts, .tsx, .jsx), perhaps with cells after `# %%` or `// %%`; a run as JSON;
    /// a notebook; `-` for standard input, which is assumed for what is piped
    #[arg(value_name = "FILE|-")]
    pub(crate) file: Option<PathBuf>,
    /// Arguments of the program, in `sys.argv` and `process.argv`; `--` before those that begin with a hyphen
    #[arg(value_name = "ARGS")]
    pub(crate) arguments: Vec<String>,
    /// Language of FILE, when neither its name nor its first line (`#!`) says
    #[arg(short, long, value_name = "LANGUAGE")]
    pub(crate) language: Option<LanguageCode>,
    /// Run later cells although one failed, as a notebook does
    #[arg(short, long)]
    pub(crate) keep_going: bool,
    /// Write what the cells show back into the notebook
    #[arg(long)]
    pub(crate) inplace: bool,
    #[command(flatten)]
    pub(crate) lineage: LineageArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    /// Save displayed images into this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["json", "events", "llm"])]
    pub(crate) images: Option<PathBuf>,
    /// Print what the program prints, and no transcript around it, as where standard output is no terminal
    #[arg(short, long, conflicts_with_all = ["json", "events", "llm", "plain", "lines", "images"])]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) session: PlaceArguments,
}

#[derive(Debug, Args)]
pub(crate) struct EvalArguments {
    /// What CODE is written in
    #[arg(short, long, value_name = "LANGUAGE")]
    pub(crate) language: LanguageCode,
    /// Source of the cell, with `--` before one that begins with a hyphen; `-` for standard input, which is assumed for what is
    /// piped
    #[arg(allow_negative_numbers = true)]
    pub(crate) code: Option<String>,
    #[command(flatten)]
    pub(crate) lineage: LineageArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(flatten)]
    pub(crate) session: PlaceArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ReplArguments {
    /// What cells are written in; `:py` and `:js` change it
    #[arg(short, long, value_name = "LANGUAGE", default_value = "py")]
    pub(crate) language: LanguageCode,
    /// Save displayed images into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) images: Option<PathBuf>,
    /// Without colours, layout and drawn images
    #[arg(long)]
    pub(crate) plain: bool,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
}

#[derive(Debug, Args)]
pub(crate) struct StdioArguments {
    #[command(flatten)]
    pub(crate) granted: GrantArguments,
}

fn listened(text: &str) -> Result<SocketAddr, String> {
    let expected =
        "expected a port of this machine alone, such as 8700, or an address with a port, such as 0.0.0.0:8700";
    cellar_config::listen_address(text).ok_or_else(|| expected.to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Address and port to listen at, or a port of this machine alone; port 0 is any that is free [default: 127.0.0.1:8700]
    #[arg(long, value_name = "ADDRESS", value_parser = listened)]
    pub(crate) listen: Option<SocketAddr>,
    /// Check all that a server needs to start, and end: with 0 if one would start. An address that is in use is no fault
    #[arg(long)]
    pub(crate) check: bool,
    /// Ask the server that listens there whether it is in order, and end with 0 if it is
    #[arg(long, conflicts_with = "check")]
    pub(crate) health: bool,
    /// Be the process of this tenant, for a server that says what to serve on standard input
    #[arg(long, value_name = "TENANT", hide = true)]
    pub(crate) worker: Option<String>,
    #[command(flatten)]
    pub(crate) granted: GrantArguments,
}

#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    #[command(flatten)]
    pub(crate) granted: GrantArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
    /// File that `cellar serve` is given
    #[arg(long, global = true, value_name = "cellar.toml")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it; it is not to be had again
    New {
        /// Whose it is [default: the only one there is]
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// What it is for; two tokens may have the same name, so that one can take over from the other
        #[arg(long, value_name = "NAME", default_value = "default")]
        name: String,
        /// What it allows [default: run]
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
        scopes: Vec<ScopeName>,
        /// Days that it is of use [default: for ever]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=36_500))]
        days: Option<u64>,
    },
    /// List what is kept of tokens
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a token be of no use any more, from the next reload on
    Revoke {
        /// The characters between the first two `_` of the token
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeName {
    /// To open sessions and run cells, and all that `read` allows
    Run,
    /// To look at sessions, runs, files and outputs
    Read,
    /// To see which tenants there are and what they use, and to have the server take no new work
    Admin,
    /// To look at what is counted of all tenants
    Metrics,
    /// To decide on calls that wait for a person
    Approve,
}

impl From<ScopeName> for cellar_server::Scope {
    fn from(name: ScopeName) -> cellar_server::Scope {
        match name {
            ScopeName::Run => cellar_server::Scope::Run,
            ScopeName::Read => cellar_server::Scope::Read,
            ScopeName::Admin => cellar_server::Scope::Admin,
            ScopeName::Metrics => cellar_server::Scope::Metrics,
            ScopeName::Approve => cellar_server::Scope::Approve,
        }
    }
}

/// What is printed.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
    /// Print the result alone, as JSON, when the run has ended
    #[arg(long)]
    pub(crate) json: bool,
    /// Print every event as it happens, one JSON object a line
    #[arg(long, conflicts_with = "json")]
    pub(crate) events: bool,
    /// Print what a model is given of each output, as JSON, when the run has ended: blocks of text and images, a page of
    /// rows or of a long text at most
    #[arg(long, conflicts_with_all = ["json", "events"])]
    pub(crate) llm: bool,
    /// Rows of a table that a model is given [default: 50]
    #[arg(long, value_name = "N", requires = "llm", value_parser = clap::value_parser!(u64).range(PAGE_ROWS))]
    pub(crate) rows: Option<u64>,
    /// Characters of a text that a model is given, bytes of a table's rows [default: 16384]
    #[arg(long, value_name = "N", requires = "llm", value_parser = clap::value_parser!(u64).range(PAGE_CHARACTERS))]
    pub(crate) characters: Option<u64>,
    /// Print a transcript without colours, layout, drawn images and progress, also where standard output is no terminal
    #[arg(long, conflicts_with_all = ["json", "events", "llm"])]
    pub(crate) plain: bool,
    /// Lines of source, and of output, that a transcript shows of a cell; 0 for all [default: 10; all output in a file]
    #[arg(long, value_name = "N", conflicts_with_all = ["json", "events", "llm"])]
    pub(crate) lines: Option<usize>,
}

/// How guests are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StopsName {
    /// Their code compares a clock
    Epochs,
    /// Their code looks at a byte of its memory, which takes less time
    Safepoints,
}

impl From<StopsName> for Stops {
    fn from(name: StopsName) -> Stops {
        match name {
            StopsName::Epochs => Stops::Epochs,
            StopsName::Safepoints => Stops::Safepoints,
        }
    }
}

/// Processors that code is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetName {
    /// This machine's
    Native,
    /// Processors with SSE4.2: Intel since 2009, AMD since 2011
    #[value(name = "x86-64-v2")]
    X86_64V2,
    /// Processors with AVX2: Intel since 2013, AMD since 2015
    #[value(name = "x86-64-v3")]
    X86_64V3,
}

impl From<TargetName> for Target {
    fn from(name: TargetName) -> Target {
        match name {
            TargetName::Native => Target::Native,
            TargetName::X86_64V2 => Target::X86_64V2,
            TargetName::X86_64V3 => Target::X86_64V3,
        }
    }
}

/// How much of a long output a result shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyName {
    /// Its head and tail, 50 KB and 3,000 lines together
    Window,
    /// All of 20,000 tokens; of more, the first 4,096 and a reminder where the rest is
    Tokens,
}

impl From<PolicyName> for OutputPolicy {
    fn from(name: PolicyName) -> OutputPolicy {
        match name {
            PolicyName::Window => OutputPolicy::Window,
            PolicyName::Tokens => OutputPolicy::Tokens,
        }
    }
}

/// Where the session of a run is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Session")]
pub(crate) struct PlaceArguments {
    /// Run in the live session behind this socket [default: CELLAR_SESSION_SOCKET, unless a session is described here]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) connect: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) own: SessionArguments,
}

/// A session of one's own.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Session")]
pub(crate) struct SessionArguments {
    /// Keep the session's state under this name: the next run with it goes on where this one ends
    #[arg(long = "session", value_name = "NAME", add = crate::completion::sessions())]
    pub(crate) name: Option<String>,
    /// Record all that `cellar replay` needs in this file, which is replaced: the code, its environment, what it reads
    /// from files, the arguments and results of its calls. Keys that only bridges know are not in it
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) granted: GrantArguments,
}

/// What a session is given.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Session")]
pub(crate) struct GrantArguments {
    /// Folder that cells see as /workspace and may write to [default: a private one]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Folder that cells see as GUEST, to read or also to write
    #[arg(long = "mount", value_name = "HOST:GUEST[:rw]")]
    pub(crate) mounts: Vec<String>,
    /// Package to import that `cellar packages add` has added, such as `tabulate` or `npm:lodash`; or a folder with Python packages
    /// (`pip install --target DIR`), with a slash in it
    #[arg(long, value_name = "NAME|DIR")]
    pub(crate) packages: Vec<Source>,
    /// Folder of the packages that `cellar packages` adds [default: cellar/packages in the user's data folder]
    #[arg(long, value_name = "DIR", env = "CELLAR_PACKAGE_STORE", hide_env_values = true)]
    pub(crate) package_store: Option<PathBuf>,
    /// File that grants tools, models, agents and folders, and sets limits
    #[arg(long, value_name = "cellar.toml")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    /// Guest to run its language with; of several for a language the last [default: python, javascript]
    #[arg(long = "guest", value_name = "GUEST")]
    pub(crate) chosen: Vec<GuestCode>,
    /// Show charts as what cells display: specifications, not pictures
    #[arg(long)]
    pub(crate) no_charts: bool,
    /// Give every cell a fresh kernel: cells share files, and no names
    #[arg(long)]
    pub(crate) per_call: bool,
    /// Answer requests for input: `run` and `eval` from standard input, `stdio` by `submit_input`
    #[arg(long)]
    pub(crate) input: bool,
    /// How much of a long output a result shows [default: window]
    #[arg(long, value_name = "POLICY")]
    pub(crate) output_policy: Option<PolicyName>,
    /// Environment variable that cells see
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) environment: Vec<String>,
    /// Log in this file, behind what is there, what ran with which grants, what it called and how it ended: one JSON
    /// object a line, without anything that cells or calls say. What cannot be logged is not done
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
}

impl SessionArguments {
    /// Whether a session of one's own is described.
    pub(crate) fn is_described(&self) -> bool {
        let granted = &self.granted;
        self.name.is_some()
            || self.record.is_some()
            || granted.workspace.is_some()
            || granted.config.is_some()
            || !granted.mounts.is_empty()
            || !granted.packages.is_empty()
            || !granted.environment.is_empty()
            || granted.per_call
            || granted.no_charts
            || !granted.chosen.is_empty()
            || granted.input
            || granted.audit.is_some()
            || granted.limits != LimitArguments::default()
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// A file that --record wrote
    pub(crate) file: PathBuf,
    /// Show this one of the runs that were recorded: agents run cells in the session as well, each time in a run of
    /// their own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) run: u32,
    /// Show charts as what cells display: specifications, not pictures
    #[arg(long)]
    pub(crate) no_charts: bool,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    /// Save displayed images into this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["json", "events", "llm"])]
    pub(crate) images: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// File to explain
    #[arg(long, value_name = "cellar.toml")]
    pub(crate) config: Option<PathBuf>,
    /// Folder of the packages that `cellar packages` adds [default: cellar/packages in the user's data folder]
    #[arg(long, value_name = "DIR", env = "CELLAR_PACKAGE_STORE", hide_env_values = true)]
    pub(crate) package_store: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BakeArguments {
    /// Guests to bake [default: all that are there]
    #[arg(value_name = "GUEST")]
    pub(crate) names: Vec<GuestCode>,
    /// How they are to be stopped, as `[host] stops` of the configuration says
    #[arg(long, value_name = "HOW", default_value = "epochs")]
    pub(crate) stops: StopsName,
    /// Compile the code that counts fuel as well, which is otherwise compiled at first use
    #[arg(long)]
    pub(crate) fuel: bool,
    /// Compile for these processors; what is not for this machine is for packages, and not run here
    #[arg(long, value_name = "PROCESSORS", default_value = "native")]
    pub(crate) target: TargetName,
    /// Bake again what is ready
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the files rather than their folders
    #[arg(long)]
    pub(crate) files: bool,
}
