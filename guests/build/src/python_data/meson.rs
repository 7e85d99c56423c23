//! Packages with extension modules for the guest's target, by their own build system.
//!
//! meson believes that it builds shared libraries for another machine. A script in the compiler's place writes lists of
//! objects instead; see `guests/python-data/build/compiler.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::packages;
use super::recipes::Recipe;
use crate::cache::Bench;
use crate::exceptions::{CPP_FLAGS, JUMP_FLAGS};
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
    // Sizes that are not signed stand among others that are.
    "-Wno-c++11-narrowing",
    // A pointer to one kind of index where another is meant would be wrong silently: see the patches.
    "-Werror=incompatible-function-pointer-types",
    "-Werror=incompatible-pointer-types",
];

/// Where meson installs packages.
const SITE: &str = "usr/lib/python3.13/site-packages";

/// What decides how a package comes out, besides what is its own and the headers of what it is compiled against.
pub(super) fn common_inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    Workshop::record_toolchain(&mut inputs);
    inputs.text("recipe", include_str!("meson.rs")).value("exceptions", CPP_FLAGS.join(" "));
    inputs.value("jumps", JUMP_FLAGS.join(" "));
    packages::record_tools(workshop, &mut inputs)?;
    Ok(inputs)
}

/// A compiled package in the cache: `library`, `objects`, and the names of its modules.
#[derive(Debug)]
pub(super) struct Package(PathBuf);

impl Package {
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

    /// Headers and declarations, as what is compiled against the package finds them.
    pub(super) fn declarations(&self) -> PathBuf {
        self.0.join("declarations")
    }
}

impl Recipe {
    /// Records what is the package's own.
    pub(super) fn record(&self, workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
        inputs.value(self.name, format!("{self:?}"));
        packages::record_changes(workshop, self.name, inputs)
    }

    /// The package in the cache, compiled against CPython's headers and those of what it uses.
    ///
    /// The headers are what counts, and not what CPython itself was made from: a change to one of its C files leaves
    /// the packages as they are. What else meson asks of the target's Python follows from its version.
    pub(super) fn product(&self, workshop: &Workshop, uses: &Uses) -> Result<Package> {
        let mut inputs = common_inputs(workshop)?;
        self.record(workshop, &mut inputs)?;
        inputs.tree("headers of CPython", &python::headers(workshop)?.join("include"))?;
        if let Some(declarations) = &uses.declarations {
            inputs.tree("declarations", declarations)?;
        }
        for (number, folder) in uses.includes.iter().enumerate() {
            inputs.tree(&format!("headers {number}"), folder)?;
        }
        let folder = workshop.cache.product("libraries", self.name, &inputs, |bench| {
            let kit = Kit::new(workshop, bench, self, uses)?;
            let unpack = || packages::unpack(workshop, (self.name, self.source), &kit.sources, &bench.work);
            bench.step("unpack the sources", unpack)?;
            kit.write_scripts(workshop)?;
            bench.step("configure", || kit.configure())?;
            bench.step("compile", || kit.make())?;
            bench.step("collect modules and headers", || kit.collect())?;
            let library = bench.out.join("library");
            bench.step("compile Python files", || compile(&kit.python, &library, &bench.work.join("compile.log")))
        })?;
        Ok(Package(folder))
    }
}

/// What a package is compiled against, besides CPython.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Where Python and Cython look for another package.
    pub(super) declarations: Option<PathBuf>,
    /// Folders of headers.
    pub(super) includes: Vec<PathBuf>,
}

/// Where things lie while a package is built.
struct Kit<'a> {
    bench: &'a Bench,
    recipe: &'a Recipe,
    toolchain: Toolchain,
    /// A native Python of the guest's version.
    python: PathBuf,
    tools: PathBuf,
    /// The folder that holds the package's folder.
    sources: PathBuf,
    /// Scripts and files that make meson see the guest instead of this machine.
    target: PathBuf,
    /// Where Python and Cython look for the packages that this one is compiled against: nowhere, if there are none.
    declarations: PathBuf,
    /// Folders of headers that it is compiled against.
    includes: &'a [PathBuf],
    /// CPython's headers and configuration for the guest.
    headers: PathBuf,
}

impl<'a> Kit<'a> {
    fn new(workshop: &Workshop, bench: &'a Bench, recipe: &'a Recipe, uses: &'a Uses) -> Result<Self> {
        Ok(Self {
            bench,
            recipe,
            toolchain: workshop.toolchain(&bench.work)?,
            python: build_python::find(workshop)?,
            tools: packages::tools(workshop)?,
            sources: bench.work.join("sources"),
            target: bench.work.join("target"),
            declarations: uses.declarations.clone().unwrap_or_else(|| bench.work.join("declarations")),
            includes: &uses.includes,
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
        let flags = self.flags(&ours.join("include"));
        self.write_script("bin/pybind11-config", &self.pybind11_config())?;
        let cross = format!(
            "[binaries]\nc = {cc}\ncpp = {cpp}\nar = {ar}\nranlib = {ranlib}\nstrip = 'true'\npkg-config = 'false'\n\
             python = '{target}/python'\npython3 = '{target}/python'\ncython = '{target}/bin/cython'\n\
             pybind11-config = '{target}/bin/pybind11-config'\n\n\
             [host_machine]\nsystem = 'wasi'\ncpu_family = 'wasm32'\ncpu = 'wasm32'\nendian = 'little'\n\n\
             [properties]\nskip_sanity_check = true\nneeds_exe_wrapper = true\nlongdouble_format = 'IEEE_QUAD_LE'\n\n\
             [built-in options]\nc_args = [{c_flags}]\ncpp_args = [{cpp_flags}]\n",
            cc = tool("cc"),
            cpp = tool("c++"),
            ar = tool("ar"),
            ranlib = tool("ranlib"),
            target = self.target.display(),
            c_flags = list(&flags, if self.recipe.jumps { JUMP_FLAGS } else { &[] }),
            cpp_flags = list(&flags, CPP_FLAGS),
        );
        fs::write(self.target.join("cross.ini"), cross)?;
        Ok(())
    }

    /// Flags for both languages.
    fn flags(&self, own_headers: &Path) -> Vec<String> {
        let includes = [own_headers].into_iter().chain(self.includes.iter().map(PathBuf::as_path));
        let includes = includes.map(|folder| format!("-I{}", folder.display()));
        COMPILE_FLAGS.iter().map(|&flag| flag.to_owned()).chain(includes).collect()
    }

    /// What answers meson when it asks where pybind11 is. Its headers are in one of the folders that all flags name.
    fn pybind11_config(&self) -> String {
        let includes =
            self.includes.iter().map(|folder| format!("-I{}", folder.display())).collect::<Vec<_>>().join(" ");
        let version = packages::version(packages::PYBIND11);
        format!("case \"$1\" in --version) echo '{version}' ;; --includes) echo '{includes}' ;; esac\n")
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

    fn configure(&self) -> Result<()> {
        let build = self.build();
        // What an interrupted attempt has left cannot be gone on with.
        if build.exists() {
            fs::remove_dir_all(&build)?;
        }
        let mut setup = self.meson();
        setup.arg("setup").arg(&build);
        setup.arg("--cross-file").arg(self.target.join("cross.ini")).arg("--prefix=/usr");
        setup.args(["-Dbuildtype=release", "-Db_ndebug=if-release"]).args(self.recipe.options);
        run(&mut setup, &self.bench.work.join("configure.log"))
    }

    /// Compiles the package, and installs it into a folder of its own.
    fn make(&self) -> Result<()> {
        let mut ninja = self.command(&self.ninja());
        ninja.args(["-j2", "-C"]).arg(self.build());
        run(&mut ninja, &self.bench.work.join("ninja.log"))?;
        let mut install = self.meson();
        install.args(["install", "--no-rebuild", "--quiet", "-C"]).arg(self.build());
        install.arg("--destdir").arg(self.installed());
        run(&mut install, &self.bench.work.join("install.log"))
    }

    /// Gathers what the guest is linked from, what it imports, and what other packages are compiled against.
    fn collect(&self) -> Result<()> {
        let site = self.installed().join(SITE);
        let library = self.bench.out.join("library");
        packages::copy_modules(&site, &library)?;
        packages::write_metadata(&self.source(), &library)?;
        self.collect_objects(&site)?;
        self.collect_declarations(&site)
    }

    /// The same source compiled for two modules is linked once. Names differ where contents do.
    fn collect_objects(&self, site: &Path) -> Result<()> {
        let objects = self.bench.out.join("objects");
        fs::create_dir_all(&objects)?;
        let (mut modules, mut contents) = (Vec::new(), BTreeMap::new());
        for file in files_below(site)?.iter().filter(|file| file.extension().is_some_and(|end| end == "so")) {
            let module = module_name(file.strip_prefix(site)?)?;
            if self.recipe.left_out.contains(&&*module) {
                continue;
            }
            modules.push(module);
            for input in serde_json::from_slice::<Vec<PathBuf>>(&fs::read(file)?)? {
                let bytes = fs::read(&input).with_context(|| format!("could not read `{}`", input.display()))?;
                contents.entry(sha256_hex(&bytes)).or_insert(input);
            }
        }
        for (digest, input) in contents {
            let name = input.file_name().context("an object needs a name")?.to_string_lossy().into_owned();
            fs::copy(&input, objects.join(format!("{}-{name}", &digest[..16])))?;
        }
        ensure!(!modules.is_empty(), "no extension module was built");
        modules.sort();
        fs::write(self.bench.out.join("modules.txt"), modules.join("\n") + "\n")?;
        Ok(())
    }

    /// pandas asks NumPy where its headers are, and Cython looks for its declarations where it would be imported from.
    /// NumPy itself cannot be imported: it is the guest's.
    fn collect_declarations(&self, site: &Path) -> Result<()> {
        let (from, to) = (site.join(self.recipe.name), self.bench.out.join("declarations").join(self.recipe.name));
        // Not every package is installed under its name.
        let files = if from.exists() { files_below(&from)? } else { Vec::new() };
        for file in files {
            if file.extension().is_some_and(|end| end == "pxd" || end == "h") {
                let copy = to.join(file.strip_prefix(&from)?);
                fs::create_dir_all(copy.parent().unwrap_or(&to))?;
                fs::copy(&file, &copy)?;
            }
        }
        fs::create_dir_all(&to)?;
        fs::write(
            to.join("__init__.py"),
            "import os\n\n\ndef get_include():\n    return os.path.join(os.path.dirname(__file__), '_core/include')\n",
        )?;
        Ok(())
    }

    /// meson, run in the package's folder.
    fn meson(&self) -> Command {
        let mut meson = self.command(&self.python);
        meson.args(self.recipe.meson).current_dir(self.source());
        meson
    }

    fn source(&self) -> PathBuf {
        self.sources.join(self.recipe.name)
    }

    fn build(&self) -> PathBuf {
        self.bench.work.join("build")
    }

    fn installed(&self) -> PathBuf {
        self.bench.work.join("installed")
    }

    fn ninja(&self) -> PathBuf {
        self.tools.join("bin/ninja")
    }
}

/// A list as meson's files have it.
fn list(flags: &[String], more: &[&str]) -> String {
    let flags = flags.iter().map(String::as_str).chain(more.iter().copied());
    flags.map(|flag| format!("'{flag}'")).collect::<Vec<_>>().join(", ")
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
