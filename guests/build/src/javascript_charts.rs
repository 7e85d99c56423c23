//! The guest that draws charts: the JavaScript guest with Vega and Vega-Lite baked in. No cell of a user runs in it.

use std::path::PathBuf;

use anyhow::Result;

use crate::cache::Bench;
use crate::fonts;
use crate::guest::{Built, Guest};
use crate::inputs::Inputs;
use crate::javascript;
use crate::python::copy_tree;
use crate::workshop::Workshop;

/// The recipe of the guest that draws charts.
#[derive(Debug)]
pub(crate) struct JavaScriptCharts;

impl Guest for JavaScriptCharts {
    fn name(&self) -> &'static str {
        "javascript-charts"
    }

    fn language(&self) -> &'static str {
        "js"
    }

    fn recipe(&self) -> &'static str {
        javascript::RECIPE
    }

    fn inputs(&self, workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
        javascript::inputs(workshop, inputs)?;
        inputs.value("fonts", fonts::inputs(workshop)?.digest());
        inputs.tree("guests/javascript-charts", &folder(workshop))?;
        Ok(())
    }

    fn build(&self, workshop: &Workshop, bench: &Bench) -> Result<Built> {
        // For whoever draws the charts: the guest itself does not see them.
        copy_tree(&fonts::folder(workshop)?, &bench.out.join("fonts"))?;
        javascript::build(workshop, bench, Some(&folder(workshop)))
    }
}

/// Returns the guest's folder in the checkout.
fn folder(workshop: &Workshop) -> PathBuf {
    workshop.root.join("guests/javascript-charts")
}
