//! Compiling a guest's C code and linking it into one core module.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::Bench;
use crate::component;
use crate::inputs::{Inputs, files_below};
use crate::process::run;
use crate::workshop::Workshop;

/// How every file of ours and of the guests' libraries is compiled. `-O3` gains nothing over clang's `-O2` here, and
/// LTO, SIMD and tail calls were measured to lose.
const COMPILE_FLAGS: &[&str] = &["-O3", "-g0", "-DNDEBUG", "-D_GNU_SOURCE", "-fno-strict-aliasing"];

/// Everything that is linked into a guest besides `guests/common/` and the generated bindings.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// C files of this project: compiled with all warnings, which are errors.
    pub(crate) own: Vec<PathBuf>,
    /// C files of others: compiled without warnings.
    pub(crate) foreign: Vec<PathBuf>,
    /// C++ files of others, with flags: compiled without warnings.
    pub(crate) foreign_cpp: Vec<(PathBuf, &'static [&'static str])>,
    /// Folders of headers.
    pub(crate) includes: Vec<PathBuf>,
    /// Further flags for the compiler.
    pub(crate) flags: Vec<String>,
    /// Object files and static libraries.
    pub(crate) objects: Vec<PathBuf>,
    /// Further flags for the linker, such as `-lm`.
    pub(crate) link_flags: Vec<String>,
    /// How often each piece of some of the files runs.
    pub(crate) profile: Option<Profile>,
    /// Size of the C stack, which lies below the data in linear memory.
    pub(crate) stack_bytes: u32,
}

/// What clang reads to lay out what runs often for speed.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) path: PathBuf,
    /// Names of the files that it tells of.
    pub(crate) files: &'static [&'static str],
}

impl Workshop {
    /// Makes the compiler, the flags, the world and the common C code inputs of a product.
    pub(crate) fn record_link(&self, inputs: &mut Inputs) -> Result<()> {
        Self::record_toolchain(inputs);
        inputs.value("compile flags", COMPILE_FLAGS.join(" "));
        inputs.tree("wit", &self.root.join("wit"))?;
        inputs.tree("guests/common", &self.root.join("guests/common"))?;
        Ok(())
    }

    /// Compiles and links a guest's core module; returns its path in `bench.work`.
    pub(crate) fn link(&self, bench: &Bench, module: &Module) -> Result<PathBuf> {
        let toolchain = self.toolchain(&bench.work)?;
        let bindings = bench.work.join("bindings");
        bench.step("generate the bindings", || component::write_bindings(&self.root.join("wit"), &bindings))?;
        let common = self.root.join("guests/common");
        let mut includes = vec![bindings.clone(), common.clone()];
        includes.extend(module.includes.iter().cloned());

        let own_flags = ["-std=gnu23", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];
        let mut objects = vec![self.compile(bench, &bindings.join("kernel.c"), &includes, &["-w"], &[])?];
        for file in files_below(&common)?.iter().filter(|file| file.extension().is_some_and(|end| end == "c")) {
            objects.push(self.compile(bench, file, &includes, &own_flags, &[])?);
        }
        for file in &module.own {
            objects.push(self.compile(bench, file, &includes, &own_flags, &module.flags_of(file))?);
        }
        for file in &module.foreign {
            objects.push(self.compile(bench, file, &includes, &["-w"], &module.flags_of(file))?);
        }

        for (file, flags) in &module.foreign_cpp {
            let mut cpp = vec!["-w"];
            cpp.extend(*flags);
            objects.push(self.compile(bench, file, &includes, &cpp, &module.flags)?);
        }

        let core = bench.work.join("core.wasm");
        bench.progress.timed("link", || {
            let mut cc = toolchain.cc();
            cc.args(["-mexec-model=reactor", "-g0"]);
            cc.arg(format!("-Wl,-z,stack-size={}", module.stack_bytes));
            cc.args(&objects).arg(bindings.join("kernel_component_type.o"));
            cc.args(&module.objects).args(&module.link_flags);
            if !module.foreign_cpp.is_empty() {
                cc.arg("-lc++");
            }
            cc.arg("-o").arg(&core);
            run(&mut cc, &bench.work.join("link.log"))
        })?;
        Ok(core)
    }

    /// Compiles one C or C++ file into `bench.work`, once.
    fn compile(
        &self,
        bench: &Bench,
        file: &Path,
        includes: &[PathBuf],
        warnings: &[&str],
        flags: &[String],
    ) -> Result<PathBuf> {
        let stem = file.file_stem().context("a C file needs a name")?.to_string_lossy().into_owned();
        let object = bench.work.join(format!("{stem}.o"));
        bench.step(&format!("compile {stem}.c"), || {
            let toolchain = self.toolchain(&bench.work)?;
            let is_cpp = file.extension().is_some_and(|end| end == "cpp");
            let mut cc = if is_cpp { toolchain.cpp() } else { toolchain.cc() };
            cc.args(COMPILE_FLAGS).args(warnings).args(flags);
            for folder in includes {
                cc.arg("-I").arg(folder);
            }
            run(cc.arg("-c").arg(file).arg("-o").arg(&object), &bench.work.join(format!("{stem}.log")))
        })?;
        Ok(object)
    }
}

impl Module {
    /// Further flags for the compiler of one file.
    fn flags_of(&self, file: &Path) -> Vec<String> {
        let mut flags = self.flags.clone();
        if let Some(profile) = &self.profile
            && profile.files.iter().any(|name| file.ends_with(name))
        {
            flags.push(format!("-fprofile-instr-use={}", profile.path.display()));
            // A file may have no function of its own that is trained, but include others that have.
            flags.push("-Wno-profile-instr-unprofiled".to_owned());
            // What was trained must be what is compiled.
            flags.push("-Werror=profile-instr-out-of-date".to_owned());
        }
        flags
    }
}
