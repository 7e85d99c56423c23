//! Manifest of a guest, which `make guests` writes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cellar_core::{cell::GuestName, text::hex};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{contract::error::Error, kernel::border::WORLD_VERSION};

/// Largest manifest, in bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// The manifest of a guest, `manifest.json` beside its `guest.wasm`.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    /// The guest's folder.
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
    /// Version of the kernel world it implements.
    pub(crate) world: String,
    /// SHA-256 of `guest.wasm`.
    pub(crate) digest: String,
    /// SHA-256 of the manifest itself, which names every input of the guest, its library folder included.
    pub(crate) identity: String,
    /// Folders beside it that the guest sees, read-only: name in the folder, guest path.
    pub(crate) mounts: Vec<(String, String)>,
}

impl Manifest {
    /// Reads the manifest of a guest.
    ///
    /// # Errors
    /// `GuestMissing` when there is none, `GuestBroken` when it makes no sense, `GuestVersion` when the guest
    /// implements another version of the world.
    pub(crate) fn load(guests: &Path, guest: GuestName) -> Result<Manifest, Error> {
        let folder = guests.join(guest.name());
        let path = folder.join("manifest.json");
        let broken = |source: crate::contract::error::Cause| Error::GuestBroken { path: path.clone(), source };
        let size = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::GuestMissing { guest, path: folder });
            }
            Err(error) => return Err(broken(error.into())),
        };
        if size > MANIFEST_BYTES_MAX {
            return Err(broken(format!("{size} bytes, at most {MANIFEST_BYTES_MAX} are allowed").into()));
        }
        let bytes = fs::read(&path).map_err(|error| broken(error.into()))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| broken(error.into()))?;
        let identity = hex(&Sha256::digest(&bytes));
        let manifest = Manifest::parse(&value, folder, identity).map_err(|reason| broken(reason.into()))?;
        if manifest.world != WORLD_VERSION {
            return Err(Error::GuestVersion { path, found: manifest.world, wanted: WORLD_VERSION.to_owned() });
        }
        Ok(manifest)
    }

    fn parse(value: &Value, folder: PathBuf, identity: String) -> Result<Manifest, String> {
        let text = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_str).map(str::to_owned).ok_or(format!("`{key}` is missing or not a text"))
        };
        let mut mounts = Vec::new();
        for mount in value.get("mounts").and_then(Value::as_array).into_iter().flatten() {
            let host = text(mount, "host")?;
            if !Path::new(&host).components().all(|part| matches!(part, std::path::Component::Normal(_))) {
                return Err(format!("mount `{host}` leads out of the guest's folder"));
            }
            mounts.push((host, text(mount, "guest")?));
        }
        Ok(Manifest {
            folder,
            name: text(value, "name")?,
            world: text(value, "wit")?,
            digest: text(value, "digest")?,
            identity,
            mounts,
        })
    }
}
