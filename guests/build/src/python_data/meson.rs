//! NumPy and pandas for the guest's target, by their own build system.
//!
//! meson believes that it builds shared libraries for another machine. A script in the compiler's place writes lists of
//! objects instead; see `guests/python-data/build/compiler.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::packages;
use crate::cache::Bench;
use crate::inputs::{Inputs, files_below, sha256_hex};
use crate::process::run;
use crate::python::{self, Extension, build_python, compile};
use crate::toolchain::Toolchain;
use crate::workshop::Workshop;

/// How the packages are compiled: as their wheels are, and with 128-bit vectors, which wasmtime has everywhere and which
/// make sums, comparisons and products of matrices up to three times as fast.
const COMPILE_FLAGS: &[&str] = &[
    "-D_GNU_SOURCE",
    "-D_WASI_EMULATED_GETPID",
    "-D_WASI_EMULATED_PROCESS_CLOCKS",
    "-D_WASI_EMULATED_SIGNAL",
    "-DPOCKETFFT_NO_MULTITHREADING",
    "-fno-strict-aliasing",
    "-g0",
    "-msimd128",
    "-w",
    // A pointer to one kind of index where another is meant would be wrong silently: see the patches.
    "-Werror=incompatible-function-pointer-types",
    "-Werror=incompatible-pointer-types",
];

/// How Python runs meson.
const MESON: &[&str] = &["-m", "mesonbuild.mesonmain"];
/// NumPy brings a meson of its own, with modules that the released one lacks.
const NUMPY_MESON: &str = "vendored-meson/meson/meson.py";
const NUMPY_OPTIONS: &[&str] =
    &["-Dallow-noblas=true", "-Dblas=none", "-Dlapack=none", "-Dcpu-baseline=none", "-Dcpu-dispatch=none"];

/// Modules that only tests of NumPy's kernels for other processors use.
const LEFT_OUT: &[&str] = &["numpy._core._simd"];

/// Where meson installs packages.
const SITE: &str = "usr/lib/python3.13/site-packages";

/// What the packages are made from.
pub(super) fn inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    inputs.value("cpython", python::header_inputs(workshop)?.digest());
    packages::record(workshop, &mut inputs)?;
    inputs.text("recipe", concat!(include_str!("meson.rs"), include_str!("packages.rs")));
    Ok(inputs)
}

/// The compiled packages in the cache: `library`, `objects`, and the names of their modules.
#[derive(Debug)]
pub(super) struct Packages(PathBuf);

impl Packages {
    /// Python files, with their bytecode.
    pub(super) fn library(&self) -> PathBuf {
        self.0.join("library")
    }

    /// Objects and archives, each with content of its own, in a fixed order.
    pub(super) fn objects(&self) -> Result<Vec<PathBuf>> {
        files_below(&self.0.join("objects"))
    }

    /// The modules that they are.
    pub(super) fn extensions(&self) -> Result<Vec<Extension>> {
        let names = fs::read_to_string(self.0.join("modules.txt"))?;
        Ok(names.lines().map(Extension::named).collect())
    }
}

/// The compiled packages, made unless the cache has them.
pub(super) fn packages(workshop: &Workshop) -> Result<Packages> {
    let folder = workshop.cache.product("libraries", "numpy-pandas", &inputs(workshop)?, |bench| {
        let kit = Kit::new(workshop, bench)?;
        bench.step("install meson and Cython", || packages::install_tools(&kit.tools, &bench.work))?;
        bench.step("unpack NumPy and pandas", || packages::unpack(workshop, &kit.sources, &bench.work))?;
        kit.write_scripts(workshop)?;
        let numpys_meson = kit.sources.join("numpy").join(NUMPY_MESON);
        let numpys_meson = [numpys_meson.to_str().context("the cache's path must be UTF-8")?];
        bench.step("configure NumPy", || kit.configure("numpy", &numpys_meson, NUMPY_OPTIONS))?;
        bench.step("compile NumPy", || kit.make("numpy", &numpys_meson))?;
        bench.step("show NumPy to pandas", || kit.expose_numpy())?;
        bench.step("configure pandas", || kit.configure("pandas", MESON, &[]))?;
        bench.step("compile pandas", || kit.make("pandas", MESON))?;
        bench.step("collect the packages", || kit.collect())?;
        let library = bench.out.join("library");
        bench.step("compile their modules", || compile(&kit.python, &library, &bench.work.join("compile.log")))
    })?;
    Ok(Packages(folder))
}

/// Where things lie while the packages are built.
struct Kit<'a> {
    bench: &'a Bench,
    toolchain: Toolchain,
    /// A native Python of the guest's version.
    python: PathBuf,
    tools: PathBuf,
    sources: PathBuf,
    /// Scripts and files that make meson see the guest instead of this machine.
    target: PathBuf,
    /// NumPy's headers and declarations, as pandas is to find them.
    declarations: PathBuf,
    /// CPython's headers and configuration for the guest.
    headers: PathBuf,
}

impl<'a> Kit<'a> {
    fn new(workshop: &Workshop, bench: &'a Bench) -> Result<Self> {
        Ok(Self {
            bench,
            toolchain: workshop.toolchain(&bench.work)?,
            python: build_python::find(workshop)?,
            tools: bench.work.join("tools"),
            sources: bench.work.join("sources"),
            target: bench.work.join("target"),
            declarations: bench.work.join("declarations"),
            headers: python::headers(workshop)?,
        })
    }

    /// Writes the cross file, the programs it names, and what the target's Python says of itself.
    fn write_scripts(&self, workshop: &Workshop) -> Result<()> {
        let (ours, modules) = (super::folder(workshop), self.target.join("modules"));
        let headers = self.headers.join("include").display().to_string();
        fs::create_dir_all(&modules)?;
        fs::create_dir_all(self.target.join("bin"))?;
        fs::copy(ours.join("build/sitecustomize.py"), modules.join("sitecustomize.py"))?;
        for file in files_below(&self.headers.join("sysconfig"))? {
            // Where the guest's headers would be installed, this machine may have its own.
            let text = fs::read_to_string(&file)?.replace("/usr/include/python3.13", &headers);
            fs::write(modules.join(file.file_name().context("a file has a name")?), text)?;
        }
        let (python, declarations) = (self.python.display(), self.declarations.display());
        self.write_script(
            "python",
            &format!(
                "export PYTHONPATH='{}':'{declarations}':\"$PYTHONPATH\" CELLAR_PYTHON_HEADERS='{}'\n\
                 export _PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__wasi_wasm32-wasi _PYTHON_HOST_PLATFORM=wasi-wasm32\n\
                 exec '{python}' \"$@\"\n",
                modules.display(),
                headers,
            ),
        )?;
        self.write_script(
            "bin/cython",
            &format!("export PYTHONPATH='{declarations}':\"$PYTHONPATH\"\nexec '{python}' -m cython \"$@\"\n"),
        )?;
        let compiler = ours.join("build/compiler.py");
        let tool = |language: &str| format!("['{python}', '-I', '{}', '{language}']", compiler.display());
        let include = format!("-I{}", ours.join("include").display());
        let flags: Vec<String> =
            COMPILE_FLAGS.iter().copied().chain([&*include]).map(|flag| format!("'{flag}'")).collect();
        let flags = flags.join(", ");
        let cross = format!(
            "[binaries]\nc = {cc}\ncpp = {cpp}\nar = {ar}\nranlib = {ranlib}\nstrip = 'true'\npkg-config = 'false'\n\
             python = '{target}/python'\npython3 = '{target}/python'\ncython = '{target}/bin/cython'\n\n\
             [host_machine]\nsystem = 'wasi'\ncpu_family = 'wasm32'\ncpu = 'wasm32'\nendian = 'little'\n\n\
             [properties]\nskip_sanity_check = true\nneeds_exe_wrapper = true\nlongdouble_format = 'IEEE_QUAD_LE'\n\n\
             [built-in options]\nc_args = [{flags}]\ncpp_args = [{flags}]\n",
            cc = tool("cc"),
            cpp = tool("c++"),
            ar = tool("ar"),
            ranlib = tool("ranlib"),
            target = self.target.display(),
        );
        fs::write(self.target.join("cross.ini"), cross)?;
        Ok(())
    }

    fn write_script(&self, name: &str, text: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.target.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}"))?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    }

    /// A command that finds the tools and the compiler.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        self.toolchain.give_to(&mut command);
        command.env("PYTHONPATH", &self.tools).env("NINJA", self.ninja());
        // Some look for Cython there, whatever they are told.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.target.join("bin").display()));
        // Paths of this machine's libraries, and flags for them, are for other builds.
        for variable in ["CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS"] {
            command.env_remove(variable);
        }
        command
    }

    fn configure(&self, package: &str, meson: &[&str], options: &[&str]) -> Result<()> {
        let build = self.build(package);
        // What an interrupted attempt has left cannot be gone on with.
        if build.exists() {
            fs::remove_dir_all(&build)?;
        }
        let mut setup = self.command(&self.python);
        setup.args(meson).arg("setup").arg(&build).current_dir(self.sources.join(package));
        setup.arg("--cross-file").arg(self.target.join("cross.ini")).arg("--prefix=/usr");
        setup.args(["-Dbuildtype=release", "-Db_ndebug=if-release"]).args(options);
        run(&mut setup, &self.bench.work.join(format!("{package}-configure.log")))
    }

    /// Compiles a package, and installs it into a folder of its own.
    fn make(&self, package: &str, meson: &[&str]) -> Result<()> {
        let mut ninja = self.command(&self.ninja());
        ninja.args(["-j2", "-C"]).arg(self.build(package));
        run(&mut ninja, &self.bench.work.join(format!("{package}.log")))?;
        let mut install = self.command(&self.python);
        install.args(meson).args(["install", "--no-rebuild", "--quiet", "-C"]).arg(self.build(package));
        install.arg("--destdir").arg(self.installed(package));
        run(&mut install, &self.bench.work.join(format!("{package}-install.log")))
    }

    /// pandas asks NumPy where its headers are, and Cython looks for its declarations where it would be imported from.
    /// NumPy itself cannot be imported: it is the guest's.
    fn expose_numpy(&self) -> Result<()> {
        let (from, to) = (self.installed("numpy").join(SITE).join("numpy"), self.declarations.join("numpy"));
        for file in files_below(&from)? {
            if file.extension().is_some_and(|end| end == "pxd" || end == "h") {
                let copy = to.join(file.strip_prefix(&from)?);
                fs::create_dir_all(copy.parent().unwrap_or(&to))?;
                fs::copy(&file, &copy)?;
            }
        }
        fs::write(
            to.join("__init__.py"),
            "import os\n\n\ndef get_include():\n    return os.path.join(os.path.dirname(__file__), '_core/include')\n",
        )?;
        Ok(())
    }

    /// Gathers what the guest is linked from, and what it imports.
    fn collect(&self) -> Result<()> {
        let (library, objects) = (self.bench.out.join("library"), self.bench.out.join("objects"));
        fs::create_dir_all(&objects)?;
        let mut modules = Vec::new();
        let mut contents = BTreeMap::new();
        for package in ["numpy", "pandas"] {
            let site = self.installed(package).join(SITE);
            packages::copy_modules(&site, &library)?;
            packages::write_metadata(&self.sources.join(package), &library)?;
            for file in files_below(&site)?.iter().filter(|file| file.extension().is_some_and(|end| end == "so")) {
                let module = module_name(file.strip_prefix(&site)?)?;
                if LEFT_OUT.contains(&&*module) {
                    continue;
                }
                modules.push(module);
                for input in serde_json::from_slice::<Vec<PathBuf>>(&fs::read(file)?)? {
                    let bytes = fs::read(&input).with_context(|| format!("could not read `{}`", input.display()))?;
                    contents.entry(sha256_hex(&bytes)).or_insert(input);
                }
            }
        }
        // The same source compiled for two modules is linked once. Names differ where contents do.
        for (digest, input) in contents {
            let name = input.file_name().context("an object needs a name")?.to_string_lossy().into_owned();
            fs::copy(&input, objects.join(format!("{}-{name}", &digest[..16])))?;
        }
        ensure!(!modules.is_empty(), "no extension module was built");
        modules.sort();
        fs::write(self.bench.out.join("modules.txt"), modules.join("\n") + "\n")?;
        Ok(())
    }

    fn build(&self, package: &str) -> PathBuf {
        self.bench.work.join(format!("{package}-build"))
    }

    fn installed(&self, package: &str) -> PathBuf {
        self.bench.work.join(format!("{package}-installed"))
    }

    fn ninja(&self) -> PathBuf {
        self.tools.join("bin/ninja")
    }
}

/// `numpy/random/mtrand.cpython-313-wasm32-wasi.so` as it is imported.
fn module_name(path: &Path) -> Result<String> {
    let text = path.to_str().context("a module has a name in ASCII")?;
    let (name, _) = text.split_once('.').with_context(|| format!("`{text}` is not an extension module"))?;
    Ok(name.replace('/', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_module_follows_from_its_file() {
        let path = Path::new("numpy/random/mtrand.cpython-313-wasm32-wasi.so");
        assert_eq!(module_name(path).unwrap(), "numpy.random.mtrand");
    }
}
