//! The packages with extension modules: where each comes from, and what it is compiled against.

use std::path::PathBuf;
use std::thread::ScopedJoinHandle;

use anyhow::{Result, bail};

use super::markup::MARKUP;
use super::meson::{Package, Uses};
use super::packages;
use super::pictures::PICTURES;
use super::static_libraries::Group;
use crate::exceptions;
use crate::inputs::{Inputs, files_below};
use crate::workshop::Workshop;

/// A package that meson builds. Each is a product of its own, so that a change to one does not compile another.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) name: &'static str,
    /// One source archive with its hash.
    pub(super) source: &'static str,
    /// Arguments with which Python runs meson in the folder of the package.
    pub(super) meson: &'static [&'static str],
    pub(super) options: &'static [&'static str],
    /// Modules that are not linked.
    pub(super) left_out: &'static [&'static str],
    /// True if its C code calls `setjmp`.
    pub(super) jumps: bool,
    /// Dependencies that it is compiled against.
    uses: &'static [Needed],
}

/// Dependency that a package may be compiled against.
#[derive(Debug, PartialEq, Eq)]
enum Needed {
    /// NumPy's headers and declarations.
    Numpy,
    /// Headers that bind C++ to Python.
    Bindings,
    /// The libraries of [`PICTURES`].
    Pictures,
    /// The libraries of [`MARKUP`].
    Markup,
}

/// meson, as its own archive has it.
const MESON: &[&str] = &["-m", "mesonbuild.mesonmain"];

const NUMPY: Recipe = Recipe {
    name: "numpy",
    source: packages::NUMPY,
    // It brings a meson of its own, with modules that the released one lacks.
    meson: &["vendored-meson/meson/meson.py"],
    options: &["-Dallow-noblas=true", "-Dblas=none", "-Dlapack=none", "-Dcpu-baseline=none", "-Dcpu-dispatch=none"],
    // What only tests of its kernels for other processors use.
    left_out: &["numpy._core._simd"],
    jumps: false,
    uses: &[],
};

const PANDAS: Recipe = Recipe {
    name: "pandas",
    source: packages::PANDAS,
    meson: MESON,
    options: &[],
    left_out: &[],
    jumps: false,
    uses: &[Needed::Numpy],
};

const PILLOW: Recipe = Recipe {
    name: "pillow",
    source: packages::PILLOW,
    meson: MESON,
    options: &[],
    left_out: &[],
    jumps: true,
    uses: &[Needed::Pictures],
};

const KIWISOLVER: Recipe = Recipe {
    name: "kiwisolver",
    source: packages::KIWISOLVER,
    meson: MESON,
    options: &[],
    left_out: &[],
    jumps: false,
    uses: &[Needed::Bindings],
};

const CONTOURPY: Recipe = Recipe {
    name: "contourpy",
    source: packages::CONTOURPY,
    meson: MESON,
    options: &["-Dwerror=false"],
    left_out: &[],
    jumps: false,
    uses: &[Needed::Bindings],
};

const MATPLOTLIB: Recipe = Recipe {
    name: "matplotlib",
    source: packages::MATPLOTLIB,
    meson: MESON,
    options: &["-Db_lto=false"],
    left_out: &[],
    jumps: false,
    uses: &[Needed::Bindings, Needed::Pictures],
};

const REGEX: Recipe = Recipe {
    name: "regex",
    source: packages::REGEX,
    meson: MESON,
    options: &[],
    left_out: &[],
    jumps: false,
    uses: &[],
};

const LXML: Recipe = Recipe {
    name: "lxml",
    source: packages::LXML,
    meson: MESON,
    // Cython makes so much C of it that the time to compile it counts.
    options: &["-Doptimization=2"],
    left_out: &[],
    jumps: false,
    uses: &[Needed::Markup],
};

/// Libraries that the packages are linked with.
const LIBRARIES: &[&Group] = &[&MARKUP, &PICTURES];

/// Packages that need nothing of NumPy's to be compiled, or only what pybind11 knows of it.
const OTHERS: &[&Recipe] = &[&LXML, &PILLOW, &KIWISOLVER, &CONTOURPY, &MATPLOTLIB, &REGEX];

/// Inputs that decide how the packages come out, besides the headers of what they are compiled against.
pub(super) fn inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = super::meson::common_inputs(workshop)?;
    exceptions::record(&mut inputs);
    for recipe in [&NUMPY, &PANDAS].into_iter().chain(OTHERS.iter().copied()) {
        recipe.record(workshop, &mut inputs)?;
    }
    inputs.value("bindings", packages::binding_inputs(workshop)?.digest());
    for group in LIBRARIES {
        inputs.value(group.name, group.inputs(workshop)?.digest());
    }
    Ok(inputs)
}

/// Parts to link with the guest.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) packages: Vec<Package>,
    /// Archives of the libraries that the packages use.
    pub(super) archives: Vec<PathBuf>,
}

/// Returns the compiled parts, made unless the cache has them. Those that do not wait for another are made side by
/// side: each has stretches in which it keeps one core busy.
pub(super) fn compiled(workshop: &Workshop) -> Result<Compiled> {
    std::thread::scope(|scope| {
        let libraries: Vec<_> = LIBRARIES.iter().map(|group| scope.spawn(|| group.product(workshop))).collect();
        let runtime = scope.spawn(|| Ok(vec![exceptions::cpp_library(workshop)?, exceptions::jumps(workshop)?]));
        let others =
            OTHERS.iter().map(|recipe| scope.spawn(|| recipe.product(workshop, &recipe.uses(workshop, None)?)));
        let others: Vec<_> = others.collect();
        let numpy = NUMPY.product(workshop, &Uses::default())?;
        let pandas = PANDAS.product(workshop, &PANDAS.uses(workshop, Some(&numpy))?)?;
        let mut packages = vec![numpy, pandas];
        for other in others {
            packages.push(joined(other)?);
        }
        let mut archives = joined(runtime)?;
        for group in libraries {
            archives.extend(files_below(&joined(group)?.join("lib"))?);
        }
        Ok(Compiled { packages, archives })
    })
}

/// Joins a thread and returns its result.
fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| bail!("a thread of the builder panicked"))
}

impl Recipe {
    /// Returns its dependencies; `numpy` where it needs that.
    fn uses(&self, workshop: &Workshop, numpy: Option<&Package>) -> Result<Uses> {
        let mut uses = Uses::default();
        for needed in self.uses {
            match needed {
                Needed::Numpy => uses.declarations = numpy.map(Package::declarations),
                Needed::Bindings => uses.includes.push(packages::bindings(workshop)?),
                Needed::Markup => uses.includes.push(MARKUP.product(workshop)?.join("include")),
                Needed::Pictures => uses.includes.push(PICTURES.product(workshop)?.join("include")),
            }
        }
        Ok(uses)
    }
}
