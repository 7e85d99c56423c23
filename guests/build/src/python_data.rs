//! The data guest: the Python guest with NumPy, pandas, Matplotlib and Pillow linked in, and packages for documents and charts
//! beside the standard library.
//!
//! What is compiled is built by meson, with the guests' compiler behind a script that writes down what would have been
//! linked. All of it is then linked into the one module that CPython is.

mod markup;
mod meson;
mod native;
mod packages;
mod pictures;
mod recipes;
mod static_libraries;
pub(crate) mod suite;

pub(crate) use native::native;
use std::path::PathBuf;

use anyhow::Result;

use crate::cache::Bench;
use crate::fonts;
use crate::guest::{Built, Guest};
use crate::inputs::Inputs;
use crate::python::{self, Additions};
use crate::workshop::Workshop;

/// The recipe of the data guest.
#[derive(Debug)]
pub(crate) struct PythonData;

impl Guest for PythonData {
    fn name(&self) -> &'static str {
        "python-data"
    }

    fn language(&self) -> &'static str {
        "py"
    }

    fn recipe(&self) -> &'static str {
        concat!(include_str!("python.rs"), include_str!("python/audit.rs"), include_str!("python_data.rs"))
    }

    fn inputs(&self, workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
        python::inputs(workshop, inputs)?;
        inputs.value("packages", recipes::inputs(workshop)?.digest());
        inputs.value("pure packages", packages::inputs(workshop)?.digest());
        inputs.value("fonts", fonts::inputs(workshop)?.digest());
        inputs.tree("guests/python-data", &folder(workshop))?;
        Ok(())
    }

    fn build(&self, workshop: &Workshop, bench: &Bench) -> Result<Built> {
        let folder = folder(workshop);
        let mut additions = Additions {
            own: ["descriptors.c", "exceptions.c", "fenv.c", "hypot.c"].map(|name| folder.join(name)).to_vec(),
            includes: vec![folder.join("include")],
            library: vec![packages::pure(workshop)?],
            fonts: Some(fonts::folder(workshop)?),
            prelude: Some(folder.join("prelude")),
            ..Additions::default()
        };
        let compiled = recipes::compiled(workshop)?;
        for package in compiled.packages {
            additions.extensions.extend(package.extensions()?);
            additions.objects.extend(package.objects()?);
            additions.library.push(package.library());
        }
        additions.objects.extend(compiled.archives);
        python::build(workshop, bench, &additions)
    }
}

/// A folder with the packages in pure Python, and what they are made from.
pub(crate) fn pure(workshop: &Workshop) -> Result<PathBuf> {
    packages::pure(workshop)
}

pub(crate) fn pure_inputs(workshop: &Workshop) -> Result<Inputs> {
    packages::inputs(workshop)
}

/// What of the guest is in the checkout.
fn folder(workshop: &Workshop) -> PathBuf {
    workshop.root.join("guests/python-data")
}
