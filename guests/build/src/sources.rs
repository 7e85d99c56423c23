//! Third-party sources: pinned by checksum, fetched once, never part of the checkout.
//!
//! C libraries that crates carry inside them come through cargo itself: `guests/build/sources/` is a package that
//! names those crates, and its `Cargo.lock` pins them. Anything else is a single file with a known SHA-256.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::inputs::{Inputs, sha256_hex};
use crate::process::run;
use crate::workshop::Workshop;

/// A crate whose C sources a guest is built from. It must be named in `guests/build/sources/Cargo.toml` too.
#[derive(Debug)]
pub(crate) struct CrateSource {
    pub(crate) name: &'static str,
    /// As the lock file spells it, with any `+` suffix.
    pub(crate) version: &'static str,
    /// SHA-256 of the published archive.
    pub(crate) sha256: &'static str,
}

impl CrateSource {
    /// Makes the crate an input of a product.
    pub(crate) fn record(&self, inputs: &mut Inputs) {
        inputs.value(&format!("crate {}", self.name), format!("{} {}", self.version, self.sha256));
    }
}

impl Workshop {
    /// The folder of an unpacked crate, fetched unless the cache has it.
    ///
    /// # Errors
    /// When the crate is not the one that is pinned: neither cargo's lock file nor our own checksum is enough alone,
    /// since each can be edited without the other.
    pub(crate) fn crate_source(&self, source: &CrateSource) -> Result<PathBuf> {
        let folder = self.vendored_crates()?.join(format!("{}-{}", source.name, source.version));
        let path = folder.join(".cargo-checksum.json");
        let text = fs::read(&path)
            .with_context(|| format!("`{}` is not among the crates of guests/build/sources/Cargo.lock", source.name))?;
        let checksums: serde_json::Value = serde_json::from_slice(&text)?;
        let found = checksums["package"].as_str().unwrap_or("none");
        ensure!(
            found == source.sha256,
            "crate `{}` {} has checksum {found}, but {} is pinned",
            source.name,
            source.version,
            source.sha256
        );
        Ok(folder)
    }

    fn vendored_crates(&self) -> Result<PathBuf> {
        let manifests = self.root.join("guests/build/sources");
        let mut inputs = Inputs::default();
        inputs.tree("manifests", &manifests)?;
        self.cache.product("sources", "crates", &inputs, |bench| {
            bench.progress.timed("fetch the crates that carry C sources", || {
                let package = bench.work.join("package");
                fs::create_dir_all(&package)?;
                for name in ["Cargo.toml", "Cargo.lock", "nothing.rs"] {
                    fs::copy(manifests.join(name), package.join(name))?;
                }
                let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                cargo.args(["vendor", "--locked", "--versioned-dirs"]).arg(&bench.out).current_dir(&package);
                run(&mut cargo, &bench.work.join("vendor.log"))
            })
        })
    }

    /// A single file with a known checksum, fetched by `fetch` (which writes to the path it is given) unless the cache
    /// has it.
    pub(crate) fn file_source(
        &self,
        name: &str,
        sha256: &str,
        fetch: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let mut inputs = Inputs::default();
        inputs.value("sha256", sha256);
        let folder = self.cache.product("sources", name, &inputs, |bench| {
            let partial = bench.work.join(name);
            bench.progress.timed("fetch", || fetch(&partial))?;
            let found = sha256_hex(&fs::read(&partial)?);
            if found != sha256 {
                fs::remove_file(&partial)?;
                bail!("`{name}` has SHA-256 {found}, but {sha256} is pinned");
            }
            fs::rename(&partial, bench.out.join(name))?;
            Ok(())
        })?;
        Ok(folder.join(name))
    }
}

/// Fetches the archive of a crate to `target`: `cargo info` puts the one archive into cargo's own cache.
pub(crate) fn crate_archive(name: &str, version: &str, target: &Path) -> Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["info", "--quiet", &format!("{name}@{version}")]).current_dir("/");
    run(&mut cargo, &target.with_extension("log"))?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let cache = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/cache");
    let file = format!("{name}-{version}.crate");
    for registry in fs::read_dir(&cache).with_context(|| format!("could not list `{}`", cache.display()))? {
        let found = registry?.path().join(&file);
        if found.is_file() {
            fs::copy(&found, target)?;
            return Ok(());
        }
    }
    bail!("cargo has not put `{file}` below `{}`", cache.display())
}
