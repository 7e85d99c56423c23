//! Compares what was measured with the figures of the last commit that wrote them, and names what became slower.
//!
//! Figures of one machine say little about another one. Where the processor is not that of the figures, the machines'
//! speeds are compared first: by the median of all times, so that what changed for the worse does not hide in it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// Least spread, as a share: two runs of the same code may differ by as much, however little their samples do.
const SPREAD_MIN: f64 = 0.05;
/// Times without which two machines cannot be compared.
const TIMES_MIN: usize = 5;

/// Unit of a figure. More is worse, except for rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    Microseconds,
    /// Millions of bytes.
    Megabytes,
    /// Times as long as a native interpreter.
    Times,
    PerSecond,
    /// Things that are counted.
    Count,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) unit: Unit,
    pub(crate) best: f64,
    pub(crate) median: f64,
}

impl Figure {
    /// Returns the distance between the samples, as a share of the best.
    fn spread(&self) -> f64 {
        ((self.median - self.best) / self.best).abs().max(SPREAD_MIN)
    }

    /// Returns how many times worse it is than an earlier figure. Returns `None` when the two cannot be compared.
    fn against(&self, before: &Figure) -> Option<f64> {
        let ratio = match self.unit {
            Unit::PerSecond => before.best / self.best,
            _ => self.best / before.best,
        };
        (self.unit == before.unit && ratio.is_finite()).then_some(ratio)
    }

    /// Returns true if it depends on the machine as much as on the code.
    fn is_of_the_machine(&self) -> bool {
        matches!(self.unit, Unit::Microseconds | Unit::PerSecond)
    }
}

/// All figures of one machine, by what they are figures of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// The processor, and how many cores.
    pub(crate) machine: String,
    pub(crate) figures: BTreeMap<String, Figure>,
}

/// Something that became slower, or larger.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slower {
    pub(crate) what: String,
    pub(crate) before: Figure,
    pub(crate) now: Figure,
    /// Ratio to the earlier figure: times as bad.
    pub(crate) ratio: f64,
    /// Spread that is allowed.
    pub(crate) spread: f64,
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// Factor by which this machine takes longer for everything, by its own speed.
    pub(crate) machine: f64,
    /// Number of figures that were compared.
    pub(crate) compared: usize,
    /// Names of figures that were not measured before.
    pub(crate) unknown: Vec<String>,
    /// Figures that became slower, the worst first.
    pub(crate) slower: Vec<Slower>,
}

impl Figures {
    /// Returns the path of the last commit's figures.
    pub(crate) fn path() -> PathBuf {
        cellar_bench::root().join("host/figures.json")
    }

    /// Reads them.
    ///
    /// # Errors
    /// When they cannot be read, or are none.
    pub(crate) fn read(path: &Path) -> io::Result<Figures> {
        serde_json::from_slice(&fs::read(path)?).map_err(Into::into)
    }

    /// Writes them.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, serde_json::to_string_pretty(self)? + "\n")
    }

    /// Takes over figures that were measured since, on the same machine. Those of another one go.
    pub(crate) fn renew(&mut self, now: Figures) {
        if self.machine != now.machine {
            self.figures.clear();
            self.machine = now.machine;
        }
        self.figures.extend(now.figures);
    }

    /// Holds them against those of the last commit.
    pub(crate) fn compare(&self, before: &Figures) -> Comparison {
        let machine = if self.machine == before.machine { 1.0 } else { self.machine_factor(before) };
        let mut comparison = Comparison { machine, compared: 0, unknown: Vec::new(), slower: Vec::new() };
        for (what, now) in &self.figures {
            let Some((before, ratio)) =
                before.figures.get(what).and_then(|before| Some((before, now.against(before)?)))
            else {
                comparison.unknown.push(what.clone());
                continue;
            };
            comparison.compared += 1;
            let ratio = if now.is_of_the_machine() { ratio / machine } else { ratio };
            let spread = now.spread().max(before.spread());
            if ratio > 1.0 + spread {
                let (what, before, now) = (what.clone(), before.clone(), now.clone());
                comparison.slower.push(Slower { what, before, now, ratio, spread });
            }
        }
        comparison.slower.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
        comparison
    }

    /// Returns the factor by which this machine takes longer than that of other figures.
    fn machine_factor(&self, before: &Figures) -> f64 {
        let ratio = |(what, now): (&String, &Figure)| {
            now.is_of_the_machine().then(|| now.against(before.figures.get(what)?)).flatten()
        };
        let mut ratios: Vec<f64> = self.figures.iter().filter_map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        if ratios.len() < TIMES_MIN { 1.0 } else { ratios[ratios.len() / 2] }
    }
}

#[cfg(test)]
#[allow(dead_code, reason = "the bench is compiled with them too, and has nothing that runs them")]
mod tests {
    use super::*;

    fn figures(machine: &str, times: &[(&str, f64, f64)]) -> Figures {
        let figure = |(what, best, median): &(&str, f64, f64)| {
            ((*what).to_owned(), Figure { unit: Unit::Microseconds, best: *best, median: *median })
        };
        Figures { machine: machine.to_owned(), figures: times.iter().map(figure).collect() }
    }

    fn named(comparison: &Comparison) -> Vec<&str> {
        comparison.slower.iter().map(|slower| slower.what.as_str()).collect()
    }

    #[test]
    fn what_became_slower_by_more_than_its_spread_is_named_the_worst_first() {
        let before =
            figures("m", &[("steady", 100.0, 102.0), ("worse", 10.0, 10.1), ("wide", 10.0, 14.0), ("gone", 1.0, 1.0)]);
        let now =
            figures("m", &[("steady", 104.0, 104.0), ("worse", 12.0, 12.1), ("wide", 13.0, 13.1), ("new", 1.0, 1.0)]);
        let comparison = now.compare(&before);
        assert_eq!((named(&comparison), comparison.compared), (vec!["worse"], 3));
        assert_eq!(comparison.unknown, ["new"]);
        let worse = now.compare(&figures("m", &[("steady", 52.0, 52.0), ("worse", 10.0, 10.1)]));
        assert_eq!(named(&worse), ["steady", "worse"]);
    }

    #[test]
    fn fewer_a_second_is_slower_and_fewer_bytes_are_not() {
        let with = |unit, best| {
            let figure = Figure { unit, best, median: best };
            Figures { machine: "m".to_owned(), figures: BTreeMap::from([("x".to_owned(), figure)]) }
        };
        assert_eq!(with(Unit::PerSecond, 80.0).compare(&with(Unit::PerSecond, 100.0)).slower.len(), 1);
        assert_eq!(with(Unit::PerSecond, 120.0).compare(&with(Unit::PerSecond, 100.0)).slower.len(), 0);
        assert_eq!(with(Unit::Megabytes, 80.0).compare(&with(Unit::Megabytes, 100.0)).slower.len(), 0);
        assert_eq!(with(Unit::Megabytes, 120.0).compare(&with(Unit::Megabytes, 100.0)).slower.len(), 1);
        assert_eq!(with(Unit::Times, 2.0).compare(&with(Unit::PerSecond, 1.0)).unknown, ["x"]);
    }

    #[test]
    fn another_machine_is_compared_by_its_speed() {
        let times = |factor: f64, odd: f64| {
            let all: Vec<(&str, f64, f64)> =
                ["a", "b", "c", "d", "e"].iter().map(|what| (*what, 10.0 * factor, 10.0 * factor)).collect();
            [all, vec![("odd", odd, odd)]].concat()
        };
        let before = figures("old", &times(1.0, 10.0));
        let comparison = figures("new", &times(2.0, 30.0)).compare(&before);
        assert!((comparison.machine - 2.0).abs() < 1e-9);
        assert_eq!(named(&comparison), ["odd"]);
        // The same machine has no excuse.
        assert_eq!(figures("old", &times(2.0, 30.0)).compare(&before).slower.len(), 6);
    }

    #[test]
    fn figures_of_another_machine_do_not_mix() {
        let mut kept = figures("old", &[("a", 1.0, 1.0), ("b", 1.0, 1.0)]);
        kept.renew(figures("old", &[("a", 2.0, 2.0)]));
        assert_eq!(kept, figures("old", &[("a", 2.0, 2.0), ("b", 1.0, 1.0)]));
        kept.renew(figures("new", &[("c", 3.0, 3.0)]));
        assert_eq!(kept, figures("new", &[("c", 3.0, 3.0)]));
    }

    #[test]
    fn the_figures_of_the_last_commit_can_be_read() {
        let figures = Figures::read(&Figures::path()).unwrap();
        assert!(figures.figures.len() > 50, "{} figures", figures.figures.len());
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("figures.json");
        figures.write(&copy).unwrap();
        assert_eq!(Figures::read(&copy).unwrap(), figures);
    }
}
