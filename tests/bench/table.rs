//! The lines of the table, and the table.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use crate::figures::Unit;
use crate::figures::{Comparison, Figure};

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    what: String,
    unit: Unit,
    best: f64,
    median: f64,
    target: Option<f64>,
}

impl Line {
    /// A line for a time, in microseconds, with the target in the same unit.
    pub(crate) fn time(what: impl Into<String>, samples: &Samples, target: impl Into<Option<f64>>) -> Line {
        Line::new(what, Unit::Microseconds, samples.best(), samples.median(), target)
    }

    pub(crate) fn new(
        what: impl Into<String>,
        unit: Unit,
        best: f64,
        median: f64,
        target: impl Into<Option<f64>>,
    ) -> Line {
        Line { what: what.into(), unit, best, median, target: target.into() }
    }

    /// Returns the name of the figure, without the native time of this run, and the figure.
    pub(crate) fn figure(&self) -> (String, Figure) {
        let Line { what, unit, best, median, .. } = self;
        let what = what.split(" (native ").next().unwrap_or(what);
        (what.to_owned(), Figure { unit: *unit, best: *best, median: *median })
    }

    /// Describes whether the target was met: at least by the best, or by the median too.
    fn verdict(&self) -> &'static str {
        match self.target {
            None => "",
            Some(target) if self.median <= target => "yes",
            Some(target) if self.best <= target => "at best",
            Some(_) => "no",
        }
    }

    fn cells(&self) -> [String; 6] {
        let ratio = self.target.map(|target| format!("{:.2}", self.best / target));
        [
            self.what.clone(),
            format_figure(self.best, self.unit),
            format_figure(self.median, self.unit),
            self.target.map(|target| format_figure(target, self.unit)).unwrap_or_default(),
            ratio.unwrap_or_default(),
            self.verdict().to_owned(),
        ]
    }
}

/// Times of single operations, in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1e6);
    }

    /// The same times shared out to `parts` equal parts of each operation.
    pub(crate) fn divided(self, parts: u32) -> Samples {
        Samples(self.0.into_iter().map(|time| time / f64::from(parts)).collect())
    }

    pub(crate) fn best(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// A figure with three significant digits, and its unit.
fn format_figure(value: f64, unit: Unit) -> String {
    let digits = |value: f64| match value.abs() {
        at_least_100 if at_least_100 >= 100.0 => format!("{value:.0}"),
        at_least_10 if at_least_10 >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    match unit {
        Unit::Microseconds if value >= 1e6 => format!("{} s", digits(value / 1e6)),
        Unit::Microseconds if value >= 1e3 => format!("{} ms", digits(value / 1e3)),
        Unit::Microseconds => format!("{} us", digits(value)),
        Unit::Megabytes => format!("{} MB", digits(value)),
        Unit::Times => format!("{} x", digits(value)),
        Unit::PerSecond => format!("{} /s", digits(value)),
        Unit::Count => digits(value),
    }
}

/// Prints the table, in a form that Markdown reads too.
pub(crate) fn print_table(lines: &[Line]) {
    let head = ["what", "best", "median", "target", "best / target", "met"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(lines.iter().map(Line::cells)).collect();
    print_rows(&rows, |column| matches!(column, 0 | 5));
}

/// Prints what became slower, the worst first.
pub(crate) fn print_slower(comparison: &Comparison) {
    let head = ["slower than before", "before", "now", "by", "spread"].map(str::to_owned);
    let rows = comparison.slower.iter().map(|slower| {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let figure = |figure: &Figure| format_figure(figure.best, figure.unit);
        let (before, now) = (figure(&slower.before), figure(&slower.now));
        [slower.what.clone(), before, now, percent(slower.ratio - 1.0), percent(slower.spread)]
    });
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
    print_rows(&rows, |column| column == 0);
}

/// Prints rows of which the first is the head; figures stand to the right.
fn print_rows<const COLUMNS: usize>(rows: &[[String; COLUMNS]], is_text: impl Fn(usize) -> bool) {
    let mut widths = [0; COLUMNS];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    for (index, row) in rows.iter().enumerate() {
        let padded: Vec<String> = row
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(column, (cell, width))| match is_text(column) {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            })
            .collect();
        println!("| {} |", padded.join(" | "));
        if index == 0 {
            let rule = |(column, width): (usize, usize)| match is_text(column) {
                true => "-".repeat(width),
                false => format!("{}:", "-".repeat(width - 1)),
            };
            println!("| {} |", widths.into_iter().enumerate().map(rule).collect::<Vec<_>>().join(" | "));
        }
    }
}
