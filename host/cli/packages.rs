//! `cellar packages`: what sessions can be granted besides what their guests have.

use std::{fmt::Write as _, fs, path::Path};

use cellar_config::{Overrides, SessionRequest};
use cellar_engine::{
    Cell, GuestName, HostConfig, Language,
    config::{RunOptions, Stops},
    limits::LimitSettings,
};
use cellar_packages::{Added, BuiltIn, Fetched, Listed, PackageError, PackageStore, Wanted};

use crate::{
    args::{Folders, PackagesArguments, PackagesCommand},
    output,
    report::{CliError, EXIT_COMPLETE, EXIT_FAILURE, print_progress},
    setup,
    table::table,
    terminal::escaped,
};

/// The guest with packages that have native code, and which these are.
const DATA: GuestName = GuestName::PythonData;
const NATIVE: [&str; 10] =
    ["contourpy", "kiwisolver", "lxml", "markupsafe", "matplotlib", "numpy", "pandas", "pillow", "pyyaml", "regex"];
/// Folder of the guest with the packages that it compiles.
const UNCOMPILED: &str = "/uncompiled";
/// Milliseconds that compiling may take.
const COMPILE_MILLISECONDS: u64 = 600_000;
/// Compiles every module below a folder into bytecode that does not depend on the time of its file. What is no Python of this
/// version stays as it is.
const COMPILE: &str = r#"
import os, py_compile
for folder, _, names in os.walk("/uncompiled"):
    for name in names:
        if name.endswith(".py"):
            path = os.path.join(folder, name)
            try:
                py_compile.compile(path, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
            except (py_compile.PyCompileError, ValueError):
                pass
"#;

/// Runs a command on the store of packages.
///
/// # Errors
/// A package cannot be had, or the store fails.
pub(crate) async fn packages(folders: &Folders, arguments: PackagesArguments) -> Result<u8, CliError> {
    let store = cellar_config::package_store(arguments.package_store.as_deref())?;
    match arguments.command {
        PackagesCommand::Add { names, json } => {
            let (added, needed) = add(folders, &store, &names).await?;
            match json {
                true => output::print_json(&added.iter().map(|added| &added.package).collect::<Vec<_>>())?,
                false => output::print(&added_text(
                    &setup::host_config(folders, Stops::default())?,
                    &added,
                    &needed,
                    &names,
                ))?,
            }
        }
        PackagesCommand::List { json } => {
            let listed = store.list()?;
            match json {
                true => output::print_json(&listed)?,
                false => output::print(&table_of(&listed))?,
            }
        }
        PackagesCommand::Rm { names } => {
            let gone = store.remove(&names)?;
            output::print(&gone.iter().map(|name| format!("removed {}\n", escaped(name))).collect::<String>())?;
        }
        PackagesCommand::Restore => {
            let fetched = fetched(folders, store.fetch_locked().await)?;
            compile(folders, &fetched).await?;
            store.keep(fetched)?;
            output::print(&format!("{} packages are there\n", store.list()?.len()))?;
        }
        PackagesCommand::Verify => {
            let damaged = store.verify()?;
            for name in &damaged {
                output::print(&format!("{} is not what the lock file says\n", escaped(name)))?;
            }
            if !damaged.is_empty() {
                print_progress("`cellar packages restore` fetches them again");
                return Ok(EXIT_FAILURE);
            }
            output::print(&format!("{} packages are as the lock file says\n", store.list()?.len()))?;
        }
    }
    Ok(EXIT_COMPLETE)
}

async fn add(
    folders: &Folders,
    store: &PackageStore,
    names: &[Wanted],
) -> Result<(Vec<Added>, Vec<BuiltIn>), CliError> {
    print_progress("resolving and fetching");
    let built_in = native_in(&setup::host_config(folders, Stops::default())?);
    let fetched = fetched(folders, store.fetch(names, &built_in).await)?;
    compile(folders, &fetched).await?;
    let needed = fetched.needed().to_vec();
    Ok((store.keep(fetched)?, needed))
}

/// Returns the packages with native code that the data guest has, whose wheels are none for every machine.
fn native_in(host: &HostConfig) -> Vec<BuiltIn> {
    let library = host.guests.join(DATA.name()).join("lib");
    let version = |name: &&str| Some(BuiltIn { name: (*name).to_owned(), version: version_in(&library, name)? });
    NATIVE.iter().filter_map(version).collect()
}

/// Says which guest has a package that cannot be fetched for its native code, if one has.
fn fetched(folders: &Folders, fetched: Result<Fetched, PackageError>) -> Result<Fetched, CliError> {
    let error = match fetched {
        Err(error @ PackageError::Native { .. }) => error,
        fetched => return Ok(fetched?),
    };
    let PackageError::Native { name, .. } = &error else { return Err(error.into()) };
    match built_in(&setup::host_config(folders, Stops::default())?, name) {
        Some((guest, version)) => {
            let hint = format!("the guest `{guest}` has {name} {version} built in: run with --guest {guest}");
            Err(CliError::usage(error.to_string(), hint))
        }
        None => Err(error.into()),
    }
}

/// Lets the guest compile the modules that were fetched. It runs none of them.
async fn compile(folders: &Folders, fetched: &Fetched) -> Result<(), CliError> {
    let Some(folder) = fetched.uncompiled() else { return Ok(()) };
    print_progress("compiling in a sandbox");
    let mounts = vec![format!("{}:{UNCOMPILED}:rw", folder.display())];
    let limits = LimitSettings { timeout: Some(COMPILE_MILLISECONDS), ..LimitSettings::default() };
    let overrides = Overrides { mounts, limits, ..Overrides::default() };
    let session = setup::open_session(folders, SessionRequest { overrides, ..SessionRequest::default() }).await?;
    let cell = Cell::new(Language::Python, COMPILE);
    let run = session.start(vec![cell], false, RunOptions::default())?;
    let result = run.result().await.map_err(CliError::Hub)?;
    match result.is_error {
        false => Ok(()),
        true => Err(CliError::usage("the packages cannot be compiled", "try them with `cellar run --packages DIR`")),
    }
}

/// The guest that has a Python package in its image, and the version of it.
fn built_in(host: &HostConfig, name: &str) -> Option<(GuestName, String)> {
    let guests = GuestName::ALL.into_iter().filter(|guest| guest.language() == Language::Python);
    let mut found =
        guests.filter_map(|guest| Some((guest, version_in(&host.guests.join(guest.name()).join("lib"), name)?)));
    found.next()
}

/// The version of a package in the library of a guest.
fn version_in(library: &Path, name: &str) -> Option<String> {
    let names = fs::read_dir(library).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut packages = names.filter_map(|entry| {
        let (package, version) = entry.strip_suffix(".dist-info")?.rsplit_once('-')?;
        Some((package.replace(['_', '.'], "-"), version.to_owned()))
    });
    packages.find(|(package, _)| package.eq_ignore_ascii_case(name)).map(|(_, version)| version)
}

fn added_text(host: &HostConfig, added: &[Added], needed: &[BuiltIn], names: &[Wanted]) -> String {
    let mut text = String::new();
    for Added { package, before } in added {
        let before = before.as_ref().map(|version| format!(", was {version}")).unwrap_or_default();
        let _ = writeln!(text, "added {} {}{}", escaped(&package.name), escaped(&package.version), escaped(&before));
    }
    if added.is_empty() {
        text.push_str("all is there already\n");
    }
    if !needed.is_empty() {
        let list: Vec<String> = needed.iter().map(|BuiltIn { name, version }| format!("{name} {version}")).collect();
        let guest = DATA.name();
        let _ = writeln!(
            text,
            "needed besides: {}, which the guest `{guest}` has built in: run with --guest {guest}",
            list.join(", ")
        );
    }
    for name in names {
        if let Some((guest, version)) = built_in(host, &name.to_string()) {
            let _ = writeln!(text, "the guest `{guest}` has {name} {version} built in, which its sessions import");
        }
    }
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let _ = writeln!(text, "a cellar.toml grants it with: packages = [{}]", names.join(", "));
    text
}

fn table_of(listed: &[Listed]) -> String {
    let row = |each: &Listed| {
        let why = if each.asked { "" } else { "needed by others" };
        let hash = format!("{}…", each.hash.chars().take(19).collect::<String>());
        [each.name.clone(), each.version.clone(), hash, why.to_owned()]
    };
    let rows: Vec<_> = listed.iter().map(row).collect();
    table(["NAME", "VERSION", "HASH", ""], &rows, "no packages; `cellar packages add NAME` adds one")
}
