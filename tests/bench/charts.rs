//! Time to draw a chart, from its specification to an SVG and a PNG.

use std::time::{Duration, Instant};

use cellar_charts::Charts;
use cellar_engine::Language;

use crate::{
    Offer,
    lab::{Lab, Plan},
    table::{Line, Samples},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("charts", charts)];

const BAR: &str = include_str!("../../fixtures/charts/bar.json");
const SCATTER: &str = include_str!("../../fixtures/charts/scatter.json");

fn charts(plan: &Plan) -> Vec<Line> {
    let draw = |lab: &Lab, charts: &Charts, specification: &str| -> Duration {
        let began = Instant::now();
        let chart = lab.block_on(charts.draw(specification)).expect("a chart");
        let time = began.elapsed();
        assert!(chart.png.is_ok());
        time
    };
    // A host of its own each time, on which no chart was drawn: its guest is loaded and the fonts are looked for.
    let mut first = Samples::default();
    for _ in 0..plan.pick(20, 5) {
        let lab = Lab::open(plan, Language::JavaScript);
        first.push(draw(&lab, &Charts::new(lab.host.clone()), BAR));
    }
    let lab = Lab::open(plan, Language::JavaScript);
    let charts = Charts::new(lab.host.clone());
    let next = |name: &str, specification: &str| {
        draw(&lab, &charts, specification);
        let samples = plan.sample(name, || draw(&lab, &charts, specification));
        Line::time(name, &samples, None)
    };
    vec![
        Line::time("chart with 5 bars: first of a process", &first, None),
        next("chart with 5 bars: next", BAR),
        next("chart with 120 points: next", SCATTER),
    ]
}
