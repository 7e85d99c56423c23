//! `cellar kernel`: kernels for Jupyter. What they answer is in `cellar_jupyter`; here is how they are found and started.

use std::{io::Read as _, path::Path, sync::Arc};

use cellar_config::Overrides;
use cellar_engine::{GuestName, Language, config::Stops, guests::guest_status};
use cellar_jupyter::{Connection, FOLDER_KERNEL, KernelConfig, Place, Spec, display_name, install, serve, spec_name};
use cellar_packages::Source;

use crate::{
    args::{Folders, GrantArguments, KernelInstall, KernelRun},
    output,
    report::{CliError, EXIT_COMPLETE, print_progress},
    setup,
    socket::SessionDoors,
};

/// The guests that notebooks use. The first that is there is that of the kernel that sees its notebook's folder.
const GUESTS: [GuestName; 3] = [GuestName::PythonData, GuestName::Python, GuestName::JavaScript];
/// Bytes of a connection file.
const CONNECTION_BYTES_MAX: u64 = 64 << 10;

/// Serves the clients of a connection file.
///
/// # Errors
/// The file or the configuration is not valid, or a port is in use.
pub(crate) async fn run(folders: &Folders, arguments: KernelRun) -> Result<u8, CliError> {
    let path = arguments.connection;
    let mut bytes = Vec::new();
    let read =
        cellar_core::files::open_input(&path).and_then(|file| file.take(CONNECTION_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|source| CliError::Read { path, source })?;
    let connection = Connection::parse(&bytes)?;
    let overrides = Overrides::from(&arguments.granted);
    let language = overrides.guests.last().map_or(Language::Python, |guest| guest.language());
    let config = KernelConfig { folders: folders.into(), overrides, language, progress: print_progress };
    serve(config, connection, Arc::new(SessionDoors)).await?;
    Ok(EXIT_COMPLETE)
}

/// Has clients find kernels.
///
/// # Errors
/// A guest is missing, the configuration is not valid, or a file cannot be written.
pub(crate) fn install_kernels(folders: &Folders, arguments: &KernelInstall) -> Result<u8, CliError> {
    let granted = &arguments.granted;
    // What is wrong with it is told now, and not to whoever opens a notebook.
    Overrides::from(granted).file()?;
    let config = setup::host_config(folders, Stops::default())?;
    let is_there = |guest: &GuestName| guest_status(&config, *guest).digest.is_some();
    let guests: Vec<GuestName> = match granted.chosen.last() {
        Some(guest) => vec![(*guest).into()],
        None => GUESTS.into_iter().filter(is_there).collect(),
    };
    if let Some(guest) = guests.iter().find(|guest| !is_there(guest)) {
        return Err(CliError::usage(format!("the guest `{guest}` is not there"), "build it with `make guests`"));
    }
    if guests.is_empty() {
        return Err(CliError::usage(
            "no guest is there",
            "build them with `make guests`, or name their folder with --guests",
        ));
    }
    let place = match &arguments.prefix {
        Some(prefix) => Place::Prefix(prefix.clone()),
        None if arguments.sys_prefix => Place::Environment,
        None => Place::User,
    };
    let own_folder = arguments.notebook_folder;
    let is_usual = granted.chosen.is_empty() && granted.workspace.is_none() && !own_folder;
    let with_folder = guests.iter().copied().find(|guest| is_usual && guest.language() == Language::Python);
    let mut specs = Vec::new();
    for guest in guests {
        specs.push(Spec {
            name: arguments.name.clone().unwrap_or_else(|| spec_name(guest)),
            display_name: arguments.display_name.clone().unwrap_or_else(|| display_name(guest).to_owned()),
            language: guest.language(),
            command: command(folders, arguments, guest, own_folder)?,
            is_private: !granted.environment.is_empty(),
        });
    }
    if let Some(guest) = with_folder {
        let (name, display_name) = FOLDER_KERNEL;
        specs.push(Spec {
            name: name.to_owned(),
            display_name: display_name.to_owned(),
            language: guest.language(),
            command: command(folders, arguments, guest, true)?,
            is_private: !granted.environment.is_empty(),
        });
    }
    for spec in specs {
        let folder = install(&spec, &place)?;
        output::print(&format!("{}: {} is in {}\n", spec.name, spec.display_name, folder.display()))?;
    }
    Ok(EXIT_COMPLETE)
}

/// Returns the command that starts a kernel with the grants of its installation, in any folder; cells see the folder of their
/// notebook if `has_folder`.
fn command(
    folders: &Folders,
    arguments: &KernelInstall,
    guest: GuestName,
    has_folder: bool,
) -> Result<Vec<String>, CliError> {
    let program = std::env::current_exe().map_err(CliError::Start)?;
    let mut command = Command(vec![text(&program)?]);
    command.0.extend(["kernel", "run"].map(str::to_owned));
    let Folders { guests, cache, store } = folders;
    for (flag, folder) in [("--guests", guests), ("--cache", cache), ("--store", store)] {
        if let Some(folder) = folder {
            command.path(flag, folder)?;
        }
    }
    command.word("--guest", guest.name());
    // All fields are named, so that a flag that is added cannot be forgotten here.
    let GrantArguments {
        workspace,
        mounts,
        packages,
        package_store,
        config,
        limits,
        chosen: _,
        no_charts,
        per_call,
        input: _,
        output_policy: _,
        environment,
        audit,
    } = &arguments.granted;
    if has_folder {
        // Clients start kernels in the folder of the notebook.
        command.word("--workspace", ".");
    }
    for (flag, path) in
        [("--workspace", workspace), ("--config", config), ("--audit", audit), ("--package-store", package_store)]
    {
        if let Some(path) = path {
            command.path(flag, path)?;
        }
    }
    for mount in mounts {
        let (host, rest) = mount.split_once(':').unwrap_or((mount, ""));
        command.word("--mount", &format!("{}:{rest}", text(&absolute(Path::new(host))?)?));
    }
    for source in packages {
        match source {
            Source::Folder(folder) => command.path("--packages", folder)?,
            Source::Named(name) => command.word("--packages", &name.to_string()),
        }
    }
    for variable in environment {
        command.word("--env", variable);
    }
    for (flag, number) in limits.given() {
        command.word(&format!("--{flag}"), &number);
    }
    for (flag, is_set) in [("--no-charts", no_charts), ("--per-call", per_call)] {
        if *is_set {
            command.0.push(flag.to_owned());
        }
    }
    command.0.push("{connection_file}".to_owned());
    Ok(command.0)
}

/// A command line that grows.
struct Command(Vec<String>);

impl Command {
    fn word(&mut self, flag: &str, value: &str) {
        self.0.extend([flag.to_owned(), value.to_owned()]);
    }

    fn path(&mut self, flag: &str, path: &Path) -> Result<(), CliError> {
        let path = text(&absolute(path)?)?;
        self.word(flag, &path);
        Ok(())
    }
}

fn absolute(path: &Path) -> Result<std::path::PathBuf, CliError> {
    std::path::absolute(path).map_err(CliError::Start)
}

/// A path as a kernelspec has it, which is JSON.
fn text(path: &Path) -> Result<String, CliError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| CliError::usage(format!("`{}` is not UTF-8", path.display()), "Jupyter needs paths that are"))
}
