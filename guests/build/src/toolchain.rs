//! The C compiler of the guests: zig's clang, from a hash-checked wheel.
//!
//! One wheel brings clang, lld, an archiver and wasi-libc for every host, so a guest needs no system compiler and is
//! the same wherever it is built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::inputs::Inputs;
use crate::process::run;
use crate::workshop::Workshop;

/// The target every guest is compiled for, and nothing wasmtime does not enable by default.
pub(crate) const TARGET: &str = "wasm32-wasi";

/// Names the wheel and its hashes.
const REQUIREMENTS: &str = include_str!("../toolchain/requirements.txt");

/// A compiler ready to use.
#[derive(Debug)]
pub(crate) struct Toolchain {
    zig: PathBuf,
    /// zig's cache of what it compiled for us. Zig can return a stale object for a source of the same relative name
    /// elsewhere, so every product has its own, and all paths given to it are absolute.
    local_cache: PathBuf,
    /// zig's cache of its own C library, which is the same for all.
    global_cache: PathBuf,
}

impl Workshop {
    /// Makes the compiler an input of a product.
    pub(crate) fn record_toolchain(inputs: &mut Inputs) {
        inputs.text("toolchain", REQUIREMENTS);
        inputs.value("target", TARGET);
    }

    /// The compiler, installed unless the cache has it. `work` is the product's own scratch folder.
    pub(crate) fn toolchain(&self, work: &Path) -> Result<Toolchain> {
        let mut inputs = Inputs::default();
        inputs.text("requirements", REQUIREMENTS);
        let folder = self.cache.product("toolchains", "zig", &inputs, |bench| {
            bench.progress.timed("install the compiler", || {
                let venv = bench.work.join("venv");
                let requirements = bench.work.join("requirements.txt");
                fs::write(&requirements, REQUIREMENTS)?;
                run(Command::new("python3").args(["-m", "venv"]).arg(&venv), &bench.work.join("venv.log"))
                    .context("the builder needs python3 with its venv module to install the compiler")?;
                let mut pip = Command::new(venv.join("bin/python"));
                pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
                pip.args(["--only-binary", ":all:", "--upgrade", "--target"]).arg(&bench.out);
                run(pip.arg("-r").arg(&requirements), &bench.work.join("pip.log"))
            })
        })?;
        Ok(Toolchain {
            zig: folder.join("ziglang/zig"),
            local_cache: work.join("zig-cache"),
            global_cache: folder.with_extension("library"),
        })
    }
}

impl Toolchain {
    /// `zig <tool>`, with the product's own cache.
    fn tool(&self, tool: &str) -> Command {
        let mut command = Command::new(&self.zig);
        command.arg(tool);
        command.env("ZIG_LOCAL_CACHE_DIR", &self.local_cache);
        command.env("ZIG_GLOBAL_CACHE_DIR", &self.global_cache);
        command
    }

    /// The C compiler and linker.
    pub(crate) fn cc(&self) -> Command {
        let mut command = self.tool("cc");
        command.args(["-target", TARGET]);
        command
    }

    /// The C++ compiler.
    pub(crate) fn cpp(&self) -> Command {
        let mut command = self.tool("c++");
        command.args(["-target", TARGET]);
        command
    }

    /// The archiver.
    pub(crate) fn ar(&self) -> Command {
        self.tool("ar")
    }

    /// Where a file or folder lies among the sources and headers that come with the compiler.
    pub(crate) fn source(&self, path: &str) -> PathBuf {
        self.zig.with_file_name("lib").join(path)
    }

    /// Tells a program that runs the compiler, by way of `guests/python-data/build/compiler.py`, where it is.
    pub(crate) fn give_to(&self, command: &mut Command) {
        command.env("CELLAR_ZIG", &self.zig).env("CELLAR_TARGET", TARGET);
        command.env("ZIG_LOCAL_CACHE_DIR", &self.local_cache).env("ZIG_GLOBAL_CACHE_DIR", &self.global_cache);
    }

    /// Writes `cc`, `ar` and `ranlib` as scripts into `folder`, for build systems that want a program name.
    #[cfg(unix)]
    pub(crate) fn write_wrappers(&self, folder: &Path) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir_all(folder)?;
        for (name, arguments) in
            [("cc", format!("cc -target {TARGET}")), ("ar", "ar".into()), ("ranlib", "ranlib".into())]
        {
            let script = format!(
                "#!/bin/sh\nexport ZIG_LOCAL_CACHE_DIR='{local}' ZIG_GLOBAL_CACHE_DIR='{global}'\nexec '{zig}' {arguments} \"$@\"\n",
                local = self.local_cache.display(),
                global = self.global_cache.display(),
                zig = self.zig.display(),
            );
            let path = folder.join(name);
            fs::write(&path, script)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }
}
