//! Test-suites of other people, as folders of packages that a session is granted.

use std::path::PathBuf;

use anyhow::Result;

use super::{copy_tree, source};
use crate::inputs::Inputs;
use crate::workshop::Workshop;

/// CPython's own tests: a folder with the package `test`, which the guest's library leaves out. There is no bytecode in
/// it, so that the guest's own compiler is tested too.
pub(crate) fn library_tests(workshop: &Workshop) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    inputs.value("source", source::SHA256);
    inputs.text("recipe", include_str!("suite.rs"));
    workshop.cache.product("suites", "python-library", &inputs, |bench| {
        let tree = bench.work.join("cpython");
        bench.step("unpack CPython", || source::unpack(workshop, &tree, &bench.work.join("unpack.log")))?;
        bench.step("copy the tests", || copy_tree(&tree.join("Lib/test"), &bench.out.join("test")))
    })
}
