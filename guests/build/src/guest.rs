//! One guest: from its inputs to a published folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cache::Bench;
use crate::component;
use crate::inputs::{Inputs, files_below, sha256_hex};
use crate::workshop::Workshop;

/// Version of `wit/kernel.wit`; the host refuses a guest of another.
const WIT_VERSION: &str = "0.12.0";

/// The builder's own files that decide what any guest looks like.
const CORE_RECIPE: &[&str] = &[
    include_str!("component.rs"),
    include_str!("guest.rs"),
    include_str!("link.rs"),
    include_str!("sources.rs"),
    include_str!("toolchain.rs"),
];

/// How to build one guest. Implementations hold no state: all of it is in the [`Workshop`] and the [`Bench`].
pub(crate) trait Guest {
    /// Name of the guest's folder.
    fn name(&self) -> &'static str;

    /// What cells for it are marked with.
    fn language(&self) -> &'static str;

    /// The recipe's own source, so that a change to it rebuilds the guest.
    fn recipe(&self) -> &'static str;

    /// Records all that goes into the guest besides the common parts. Must be quick: it runs on every build.
    fn inputs(&self, workshop: &Workshop, inputs: &mut Inputs) -> Result<()>;

    /// Makes the core module, and in `bench.out` any folder it is to be mounted with.
    fn build(&self, workshop: &Workshop, bench: &Bench) -> Result<Built>;
}

/// What a recipe hands back.
#[derive(Debug)]
pub(crate) struct Built {
    /// Path of the linked core module.
    pub(crate) core: PathBuf,
    /// Folders that the host mounts, read-only.
    pub(crate) mounts: Vec<Mount>,
}

/// A folder of the artifact that the guest sees.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Mount {
    /// Relative to the artifact.
    pub(crate) host: String,
    /// Absolute path in the guest.
    pub(crate) guest: String,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    name: String,
    language: String,
    wit: String,
    digest: String,
    mounts: Vec<Mount>,
    inputs: std::collections::BTreeMap<String, String>,
}

/// Builds `guest` unless the cache has it, and publishes it to `out/<name>`.
pub(crate) fn build(workshop: &Workshop, guest: &dyn Guest, out: &Path, force: bool) -> Result<()> {
    let mut inputs = Inputs::default();
    workshop.record_link(&mut inputs)?;
    inputs.text("builder", &CORE_RECIPE.concat());
    inputs.text("recipe", guest.recipe());
    guest.inputs(workshop, &mut inputs)?;

    if force {
        workshop.cache.forget("guests", guest.name(), &inputs)?;
    }
    let product = workshop.cache.product("guests", guest.name(), &inputs, |bench| {
        let built = guest.build(workshop, bench)?;
        let component = bench.progress.timed("make the component", || component::encode(&fs::read(&built.core)?))?;
        fs::write(bench.out.join("guest.wasm"), &component)?;
        let manifest = Manifest {
            name: guest.name().to_owned(),
            language: guest.language().to_owned(),
            wit: WIT_VERSION.to_owned(),
            digest: sha256_hex(&component),
            mounts: built.mounts,
            inputs: inputs.entries().clone(),
        };
        fs::write(bench.out.join("manifest.json"), serde_json::to_string_pretty(&manifest)? + "\n")?;
        bench.progress.note(&format!("{} KiB, digest {}", component.len() / 1024, &manifest.digest[..16]));
        Ok(())
    })?;
    publish(&product, &out.join(guest.name()))
}

/// Copies a product to where the host looks for it. The manifest is written last: a folder without one is incomplete.
fn publish(product: &Path, target: &Path) -> Result<()> {
    let manifest = fs::read(product.join("manifest.json"))?;
    if fs::read(target.join("manifest.json")).is_ok_and(|published| published == manifest) {
        return Ok(());
    }
    let parent = target.parent().context("the output folder needs a parent")?;
    fs::create_dir_all(parent)?;
    let name = target.file_name().context("the output folder needs a name")?.to_string_lossy();
    let fresh = parent.join(format!(".{name}.new-{}", std::process::id()));
    for file in files_below(product)? {
        let copy = fresh.join(file.strip_prefix(product)?);
        fs::create_dir_all(copy.parent().unwrap_or(&fresh))?;
        fs::copy(&file, &copy).with_context(|| format!("could not copy `{}`", file.display()))?;
    }
    if target.exists() {
        fs::remove_dir_all(target)?;
    }
    fs::rename(&fresh, target).with_context(|| format!("could not publish to `{}`", target.display()))?;
    Ok(())
}
