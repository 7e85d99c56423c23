//! A native Python with NumPy and pandas, which benchmarks compare the data guest with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Result;

use super::packages;
use crate::inputs::Inputs;
use crate::python::build_python;
use crate::workshop::Workshop;

/// Wheels from the registry, with the BLAS and the vectors that they are known for.
const WHEELS: &str = include_str!("native.txt");

/// Path of the interpreter, made unless the cache has it.
pub(crate) fn native(workshop: &Workshop) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    let python = build_python::find(workshop)?.display().to_string();
    inputs.text("wheels", WHEELS).value("python", &python).text("recipe", include_str!("native.rs"));
    let folder = workshop.cache.product("toolchains", "native-python-data", &inputs, |bench| {
        let install = || packages::install_for_this_machine(WHEELS, &bench.out.join("packages"), &bench.work);
        bench.step("fetch native NumPy and pandas", install)?;
        // The guest has one thread too.
        let script = format!(
            "#!/bin/sh\nexport PYTHONPATH=\"$(dirname \"$0\")/packages\" OPENBLAS_NUM_THREADS=1\nexec '{python}' \"$@\"\n"
        );
        let path = bench.out.join("python");
        fs::write(&path, script)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    })?;
    Ok(folder.join("python"))
}
