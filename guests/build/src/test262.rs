//! ECMA's tests of JavaScript, as Firefox carries them: each folder's `shell.js` holds what its tests include, so that a
//! test is run by evaluating those from the top down, and then the test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::debian::Original;
use crate::inputs::Inputs;
use crate::process::run;
use crate::workshop::Workshop;

const FIREFOX: Original = Original {
    package: "mozjs128",
    suite: "trixie",
    archive: "mozjs128_128.14.0.orig.tar.xz",
    sha256: "41cca35149710ce45fbabc5fefcf86a01fdf833fdb783941964fca3a55fb72dd",
    variable: "CELLAR_FIREFOX_SOURCE",
};
const TESTS: &str = "firefox-128.14.0/js/src/tests/test262";

/// The folder of the tests.
pub(crate) fn find(workshop: &Workshop) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    inputs.value("source", FIREFOX.sha256);
    inputs.text("recipe", include_str!("test262.rs"));
    workshop.cache.product("suites", "test262", &inputs, |bench| {
        let archive = FIREFOX.fetch(workshop)?;
        fs::create_dir_all(&bench.out)?;
        bench.step("unpack the tests", || {
            run(
                Command::new("tar")
                    .arg("xf")
                    .arg(&archive)
                    .arg("--strip-components=5")
                    .arg("-C")
                    .arg(&bench.out)
                    .arg(TESTS),
                &bench.work.join("unpack.log"),
            )
        })
    })
}
