//! Configuration that an embedder chooses before it opens a host.

use std::{env, path::PathBuf, time::Duration};

use super::error::Error;

/// Path of the workspace in guests; their working directory and home.
pub const WORKSPACE: &str = "/workspace";

/// Path of the session's temporary files in guests.
pub const TEMPORARY: &str = "/tmp";

/// Further paths of the workspace in guests, unless a session says otherwise: programs that were written for other sandboxes look for
/// their files there.
pub const ALIASES: [&str; 3] = ["/mnt/data", "/home/user", "/content"];

/// Path in guests of the granted folders with packages: `/packages/1`, `/packages/2` and so on.
pub const PACKAGES: &str = "/packages";

/// Policy for kernels that are idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rests {
    /// Idle time after which a checkpoint is taken: the state that a session goes back to when its kernel must be killed. Checkpoints are
    /// also taken before cells that follow at once, for 2 % of a kernel's time, while those of all kernels take no more than a tenth of
    /// the processors, or this one's a tenth of what its cells compute. `None` is never: a killed kernel's state is lost.
    pub checkpoint_after: Option<Duration>,
    /// Processor time that checkpoints before cells may take from the start, and the most that is saved up for them: for each kernel,
    /// and for all kernels together so much for each processor.
    pub checkpoint_credit: Duration,
    /// Idle time after which a kernel is put to sleep: its memory is compressed and given back, and its next cell, timer or answer wakes
    /// it in about a millisecond. `None` is never.
    pub hibernate_after: Option<Duration>,
    /// Kernels that may be awake at once. Past that, and when there is no room for another one, the kernel that has been
    /// idle for longest is put to sleep.
    pub awake_max: usize,
}

impl Default for Rests {
    fn default() -> Rests {
        Rests {
            checkpoint_after: Some(Duration::from_millis(250)),
            checkpoint_credit: Duration::from_millis(20),
            hibernate_after: Some(Duration::from_secs(300)),
            awake_max: usize::MAX,
        }
    }
}

/// Mechanism by which the code of guests gives way to others, and is stopped in the end. Guests are compiled for it, so they must be baked
/// with the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stops {
    /// The code compares a clock at the head of every loop and where functions begin. Nothing that a guest does can keep it
    /// from being stopped.
    #[default]
    Epochs,
    /// The code looks at a byte of its own memory there, which takes less time. A guest whose interpreter was made to write to
    /// any place of its own memory could clear that byte before it is seen; the host sets it again a hundred times a second.
    /// Sessions that count fuel are stopped by epochs all the same.
    Safepoints,
}

impl Stops {
    /// Returns the mechanism with this name.
    pub fn from_name(name: &str) -> Option<Stops> {
        [Stops::Epochs, Stops::Safepoints].into_iter().find(|stops| stops.name() == name)
    }

    /// The name that configurations and reports have for it.
    pub fn name(self) -> &'static str {
        match self {
            Stops::Epochs => "epochs",
            Stops::Safepoints => "safepoints",
        }
    }
}

/// Processors that compiled code is for. Code for a level runs on every processor that has it, and does without what newer ones have besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// The processor of this machine.
    #[default]
    Native,
    /// Level `x86-64-v2`: Intel since 2009, AMD since 2011.
    X86_64V2,
    /// Level `x86-64-v3`, with AVX2: Intel since 2013, AMD since 2015.
    X86_64V3,
}

impl Target {
    /// Levels that code of a package may be for, the best first.
    pub const LEVELS: [Target; 2] = [Target::X86_64V3, Target::X86_64V2];

    /// The name that the command line and file names have for it.
    pub fn name(self) -> &'static str {
        match self {
            Target::Native => "native",
            Target::X86_64V2 => "x86-64-v2",
            Target::X86_64V3 => "x86-64-v3",
        }
    }
}

/// State that every fresh kernel of a language begins with: after a reset and after the loss of a kernel as well. It is no cell of the
/// user's: it has no number, no result, and what it prints and displays is dropped. A seed that fails fails the cell that needed the
/// kernel, and says so; the next cell tries again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    /// Names and their values, each a JSON text. A name must be one that the language can assign to.
    pub bindings: Vec<(String, String)>,
    /// Source that runs after the names are bound, within the session's usual timeout. Empty is none.
    pub source: String,
}

/// Lifetime of the kernels of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelMode {
    /// One kernel a language, as long as the session: cells share their names.
    #[default]
    Session,
    /// A fresh kernel for every cell. It ends with its cell, and with it all that the cell left running.
    PerCall,
}

/// Rules by which the states of a session are kept: each end of a cell is one, of memory and of the session's own files at one
/// instant. States with a name and pinned ones are kept whatever else is said, and so is the one that the session is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// The latest states that are kept.
    pub last: u32,
    /// Older ones are kept where their number is a multiple of this.
    pub every: Option<u32>,
    /// Bytes of all states together, what they share counted once. The oldest go first.
    pub bytes_max: u64,
}

impl Default for HistoryOptions {
    fn default() -> HistoryOptions {
        HistoryOptions { last: 20, every: None, bytes_max: 256 << 20 }
    }
}

/// Configuration of a host: the folder of its guests, and how much it may hold at once.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Folder with one folder per guest, as `make guests` leaves it.
    pub guests: PathBuf,
    /// Folder for baked and compiled artifacts. Must be writable by this user alone: it holds machine code.
    pub cache: PathBuf,
    /// Kernels that may be awake at once, of all guests together. Further ones wait in line until one
    /// falls asleep, which those that only wait do at once. Each reserves 4 GiB of address space and no memory.
    pub kernels_max: u32,
    /// Checkpoints and sleep.
    pub rests: Rests,
    /// Mechanism by which guests are stopped.
    pub stops: Stops,
    /// SHA-256 of `code.sha256` in the folder of the guests, which lists the SHA-256 of every file of machine code that came with them. With
    /// it, no other code is loaded from there. `None` for guests that were built on this machine.
    pub code_list: Option<[u8; 32]>,
}

/// The two folders that every host needs.
#[derive(Clone, Debug)]
pub struct HostFolders {
    /// See [`HostConfig::guests`].
    pub guests: PathBuf,
    /// See [`HostConfig::cache`].
    pub cache: PathBuf,
}

/// Folders of the guests, relative to the folder above that of a program: after a build, and in an installation.
const GUESTS: [&str; 2] = ["guests", "lib/cellar/guests"];

impl HostFolders {
    /// Folders that the command line of this user uses. The guests are those of the variable `CELLAR_GUESTS`, those that were built or
    /// installed with this program or with the `cellar` in `PATH`, or those in the user's data folder (`~/.local/share/cellar/guests`), in
    /// this order; the cache is that of `CELLAR_CACHE` or the user's (`~/.cache/cellar`). Blocks.
    ///
    /// # Errors
    /// `GuestsUnknown`: there are none at any of these places, or the user has no home folder.
    pub fn installed() -> Result<HostFolders, Error> {
        let named = |variable: &str| env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        let guests = named("CELLAR_GUESTS").or_else(HostFolders::installed_guests);
        let cache = named("CELLAR_CACHE").or_else(HostFolders::user_cache);
        match (guests, cache) {
            (Some(guests), Some(cache)) => Ok(HostFolders { guests, cache }),
            _ => Err(Error::GuestsUnknown),
        }
    }

    /// Folder of the guests that [`HostFolders::installed`] finds without its variable. Blocks.
    pub fn installed_guests() -> Option<PathBuf> {
        let program = env::current_exe().ok();
        let paths = env::var_os("PATH").unwrap_or_default();
        let commands = env::split_paths(&paths).map(|folder| folder.join("cellar")).filter(|path| path.is_file());
        let beside = |program: PathBuf| {
            let program = program.canonicalize().ok()?;
            // Examples lie a folder deeper than commands.
            let above = program.ancestors().skip(2).take(2);
            above.flat_map(|above| GUESTS.map(|folder| above.join(folder))).find(|guests| guests.is_dir())
        };
        let of_user = || Some(dirs::data_dir()?.join("cellar").join("guests")).filter(|guests| guests.is_dir());
        program.into_iter().chain(commands).find_map(beside).or_else(of_user)
    }

    /// Folder in which this user's command line keeps baked guests.
    pub fn user_cache() -> Option<PathBuf> {
        Some(dirs::cache_dir()?.join("cellar"))
    }
}

impl HostConfig {
    /// A host for thousands of sessions.
    pub fn new(folders: HostFolders) -> HostConfig {
        let HostFolders { guests, cache } = folders;
        let (rests, stops) = (Rests::default(), Stops::default());
        HostConfig { guests, cache, kernels_max: 2_048, rests, stops, code_list: None }
    }
}
