//! The folders that the cells of a session see: its own, what it was granted, and where its workspace is seen as well.

use std::{path::PathBuf, sync::Arc};

use cellar_files::{Access, Mount, OpenMount};

use super::{SessionConfig, auditing, grants::package_mounts};
use crate::{
    audit::{FolderGrant, folder_grant},
    contract::{
        config::{ALIASES, TEMPORARY, WORKSPACE},
        error::Error,
    },
    storage::{
        vault::StoredSession,
        workspace::{OwnFolder, PrivateFolder},
    },
};

/// Places where the workspace may be seen besides its own.
const ALIASES_MAX: usize = 16;

/// The folders of one session, open.
#[derive(Clone)]
pub(super) struct Folders {
    pub(super) mounts: Vec<OpenMount>,
    /// Guest paths of the folders with packages.
    pub(super) packages: Vec<String>,
    /// Folders that belong to this session alone.
    pub(super) own: Vec<OwnFolder>,
    /// Temporary folder with the session's own folders, removed with the session; `None` if they are stored.
    pub(super) private: Option<Arc<PrivateFolder>>,
    /// All granted folders, for the audit log.
    pub(super) granted: Vec<FolderGrant>,
}

impl Folders {
    /// Opens what `config` grants, and what belongs to the session: in `private`, else where it is stored, else in a new
    /// folder that goes with it.
    ///
    /// # Errors
    /// `Mount`, `Workspace`, `Store` when a folder cannot be had; `Request` when it makes no sense what is granted.
    pub(super) fn open(
        config: &SessionConfig,
        private: Option<PrivateFolder>,
        home: Option<&StoredSession>,
    ) -> Result<Folders, Error> {
        let packages = package_mounts(&config.folders.packages);
        let granted = config.folders.mounts.iter().chain(&packages);
        let open: Vec<OpenMount> = granted.clone().map(Mount::open).collect::<Result<_, _>>()?;
        let own = own_folders(config, &open);
        let private = match (private, home) {
            (None, None) => Some(PrivateFolder::new(&own)),
            (private, _) => private,
        };
        let private = private.map(Arc::new);
        let writable = |host: PathBuf, guest: &str| Mount { host, guest: guest.to_owned(), access: Access::ReadWrite };
        let mut all = Vec::with_capacity(own.len().saturating_add(open.len()).saturating_add(1));
        let mut told = Vec::with_capacity(all.capacity());
        let mut folders: Vec<Mount> = Vec::with_capacity(all.capacity());
        if let Some(host) = &config.folders.workspace {
            let workspace = writable(host.clone(), WORKSPACE);
            all.push(workspace.open()?);
            told.push(folder_grant(&workspace));
            folders.push(workspace);
        }
        for folder in &own {
            // Into them, only cells put files.
            let guest = guest_path(*folder);
            told.push(FolderGrant { host: None, guest: guest.to_owned(), write: true });
            match (&private, home) {
                (Some(private), _) => {
                    // The session has it, and it ends with the session.
                    let (private, folder) = (Arc::downgrade(private), *folder);
                    let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
                    let make = move || private.upgrade().ok_or_else(gone)?.path(folder);
                    all.extend(OpenMount::made_later(guest, make));
                }
                (None, Some(home)) => {
                    let mount = writable(home.folder(*folder)?, guest);
                    all.push(mount.open_own()?);
                    folders.push(mount);
                }
                (None, None) => return Err(Error::Workspace(std::io::ErrorKind::NotFound.into())),
            }
        }
        auditing::check(config.audit.as_ref(), &folders.iter().chain(granted.clone()).collect::<Vec<_>>())?;
        let aliases = aliases(config.folders.aliases.as_deref(), &all, &open)?;
        told.extend(aliases.iter().map(|alias| FolderGrant {
            host: config.folders.workspace.as_ref().map(|folder| folder.display().to_string()),
            guest: alias.guest().to_owned(),
            write: true,
        }));
        told.extend(granted.map(folder_grant));
        all.extend(aliases);
        // Of two at the same place the later one wins.
        all.extend(open);
        Ok(Folders {
            mounts: all,
            packages: packages.into_iter().map(|mount| mount.guest).collect(),
            own,
            private,
            granted: told,
        })
    }
}

/// Returns the guest path of one of the session's own folders.
fn guest_path(folder: OwnFolder) -> &'static str {
    match folder {
        OwnFolder::Workspace => WORKSPACE,
        OwnFolder::Temporary => TEMPORARY,
    }
}

/// Lists the session's own folders: those that no granted folder replaces.
fn own_folders(config: &SessionConfig, granted: &[OpenMount]) -> Vec<OwnFolder> {
    let is_own = |folder: &OwnFolder| match folder {
        OwnFolder::Workspace => config.folders.workspace.is_none(),
        OwnFolder::Temporary => !granted.iter().any(|mount| mount.holds(TEMPORARY)),
    };
    OwnFolder::ALL.into_iter().filter(is_own).collect()
}

/// The further places of the workspace: those that were asked for, or the usual ones where nothing else is.
fn aliases(asked: Option<&[String]>, own: &[OpenMount], granted: &[OpenMount]) -> Result<Vec<OpenMount>, Error> {
    let workspace = own.iter().find(|mount| mount.guest() == WORKSPACE);
    let Some(workspace) = workspace else { return Ok(Vec::new()) };
    let there = |guest: &str| own.iter().chain(granted).find(|mount| mount.collides_with(guest));
    let Some(asked) = asked else {
        let free = ALIASES.into_iter().filter(|guest| there(guest).is_none());
        return Ok(free.filter_map(|guest| workspace.also_at(guest)).collect());
    };
    if asked.len() > ALIASES_MAX {
        let count = asked.len();
        return Err(Error::Request(format!("the workspace has {count} aliases, at most {ALIASES_MAX} are allowed")));
    }
    let one = |guest: &String| {
        if let Some(other) = there(guest) {
            let other = other.guest();
            return Err(Error::Request(format!(
                "the workspace cannot be `{guest}` as well: that collides with `{other}`"
            )));
        }
        let alias = workspace.also_at(guest);
        alias.ok_or_else(|| {
            Error::Request(format!("an alias of the workspace is an absolute path without `..`, not `{guest}`"))
        })
    };
    asked.iter().map(one).collect()
}
