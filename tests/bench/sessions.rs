//! Time until a session answers, its memory, and the number of sessions a second.

use std::time::Instant;

use cellar_engine::{GuestName, Language, Session};

use crate::{
    Offer,
    lab::{LANGUAGES, Lab, Plan, trivial},
    machine::Memory,
    table::{Line, Unit},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[
    ("first result", first_result),
    ("next cell", next_cell),
    ("import of nine modules", imports),
    ("memory of idle sessions", memory),
    ("throughput of sessions", throughput),
    ("sessions with NumPy and pandas", data),
];

fn first_result(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for (language, target) in
        [(Language::Probe, None), (Language::Python, Some(100.0)), (Language::JavaScript, Some(30.0))]
    {
        let what = format!("{}: session to first result", language.title());
        let lab = Lab::open(plan, language);
        let samples = plan.sample(&what, || lab.time_first(trivial(language)));
        lines.push(Line::time(what.clone(), &samples, target));
        let what = format!("{what}, after a pause");
        let lab = lab.with_pauses();
        let samples = plan.sample(&what, || lab.time_first(trivial(language)));
        lines.push(Line::time(what, &samples, None));
    }
    for (language, target) in [(Language::Python, Some(1_000.0)), (Language::JavaScript, None)] {
        let what = format!("{}: reset to next result", language.title());
        let lab = Lab::open(plan, language);
        let session = lab.session();
        lab.run(&session, trivial(language));
        let samples = plan.sample(&what, || {
            let began = Instant::now();
            session.reset(language);
            lab.run(&session, trivial(language));
            began.elapsed()
        });
        lines.push(Line::time(what, &samples, target));
    }
    let lab = Lab::open(plan, Language::Probe);
    let samples = plan.sample("session without a kernel", || {
        let began = Instant::now();
        let session = lab.session();
        let time = began.elapsed();
        drop(session);
        time
    });
    lines.push(Line::time("session without a kernel", &samples, None));
    lines
}

fn next_cell(plan: &Plan) -> Vec<Line> {
    let targets = [(Language::Probe, None), (Language::Python, Some(40.0)), (Language::JavaScript, Some(8.0))];
    let measure = |(language, target): (Language, Option<f64>)| {
        let what = format!("{}: next trivial cell", language.title());
        let lab = Lab::open(plan, language);
        let session = lab.session();
        let samples = plan.sample(&what, || lab.time(&session, trivial(language)));
        Line::time(what, &samples, target)
    };
    targets.into_iter().map(measure).collect()
}

/// Modules that agents import, for which the best engine of the kind takes most of a second.
pub(crate) const NINE: &str = "import csv, decimal, hashlib, pathlib, random, sqlite3, statistics, urllib.request\n\
                    import xml.etree.ElementTree";

fn imports(plan: &Plan) -> Vec<Line> {
    let lab = Lab::open(plan, Language::Python);
    let samples = plan.sample("import of nine modules", || lab.time_first(NINE));
    vec![Line::time("Python: import of nine modules as first cell", &samples, 1_000.0)]
}

/// Live sessions, each after one cell.
fn memory(plan: &Plan) -> Vec<Line> {
    let count = plan.pick(1_000, 200);
    let lines = |(language, target): (Language, f64)| {
        let lab = Lab::open(plan, language);
        idle_memory(&lab, language.title(), count, target)
    };
    LANGUAGES.into_iter().zip([0.5, 0.15]).flat_map(lines).collect()
}

/// Returns the memory of this process without and with so many live sessions, each after one cell.
fn weigh(lab: &Lab, count: u32) -> (Memory, Memory) {
    let cell = trivial(lab.language);
    // The first session pays for what all share.
    lab.time_first(cell);
    let before = Memory::now();
    let sessions: Vec<Session> = (0..count).map(|_| lab.session()).collect();
    for session in &sessions {
        lab.run(session, cell);
    }
    (before, Memory::now())
}

/// Bytes of private memory of an idle session.
pub(crate) fn private_memory(lab: &Lab, count: u32) -> f64 {
    let (before, after) = weigh(lab, count);
    after.private.saturating_sub(before.private) as f64 / f64::from(count)
}

fn idle_memory(lab: &Lab, title: &str, count: u32, target: f64) -> Vec<Line> {
    let (before, after) = weigh(lab, count);
    let line = |what: String, before: u64, after: u64, target| {
        let each = after.saturating_sub(before) as f64 / f64::from(count) / 1e6;
        Line::new(what, Unit::Megabytes, each, each, target)
    };
    let private = format!("{title}: private memory per session ({count} idle)");
    vec![
        line(private, before.private, after.private, Some(target)),
        line(format!("{title}: page tables per session"), before.page_tables, after.page_tables, None),
    ]
}

/// A plot as agents write them.
const PLOT: &str = "\
import numpy as np
import matplotlib.pyplot as plt
x = np.linspace(0, 10, 200)
fig, ax = plt.subplots(figsize=(8, 5))
ax.plot(x, np.sin(x), label='sin')
ax.plot(x, np.cos(x), '--', label='cos')
ax.set(title='Waves', xlabel='x', ylabel='y')
ax.legend()
ax.grid(True, alpha=0.3)
plt.tight_layout()
plt.show()";

/// Sessions that have NumPy and pandas.
fn data(plan: &Plan) -> Vec<Line> {
    let lab = Lab::open_guest(plan, GuestName::PythonData);
    let first = plan.sample("Data: first result", || lab.time_first(trivial(lab.language)));
    let mut lines = vec![Line::time("Data: session to first result", &first, None)];
    for (what, cell, target) in [
        ("Data: import of pandas in a new session", "import pandas", Some(1_000.0)),
        (
            "Data: first DataFrame in a new session",
            "frame = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})",
            Some(2_000.0),
        ),
        ("Data: first DataFrame, shown", "pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})", None),
        (
            "Data: first chart, as a specification",
            "alt.Chart(pd.DataFrame({'a': [1, 2]})).mark_bar().encode(x='a')",
            None,
        ),
        ("Data: import of matplotlib.pyplot in a new session", "import matplotlib.pyplot as plt", Some(5_000.0)),
        ("Data: first plot, shown", "plt.plot([1, 2, 3])\nplt.show()", Some(60_000.0)),
        ("Data: first plot by a script", PLOT, Some(60_000.0)),
    ] {
        let samples = plan.sample(what, || lab.time_in_new(cell));
        lines.push(Line::time(what, &samples, target));
    }
    lines.extend(idle_memory(&lab, "Data", plan.pick(500, 100), 3.0));
    lines
}

/// Sessions that are opened, run one cell and end, on as many threads as asked for.
fn throughput(plan: &Plan) -> Vec<Line> {
    let rounds = plan.pick(8, 3);
    let sessions = plan.pick(500, 100);
    let mut lines = Vec::new();
    for language in LANGUAGES {
        for threads in [1, 2] {
            let rates: Vec<f64> = (0..rounds).map(|_| rate(plan, language, threads, sessions)).collect();
            let what = format!("{}: sessions per second, {threads} {}", language.title(), plural(threads, "thread"));
            let best = rates.iter().copied().fold(0.0, f64::max);
            let mut samples = rates;
            samples.sort_by(f64::total_cmp);
            lines.push(Line::new(what, Unit::PerSecond, best, samples[samples.len() / 2], None));
        }
    }
    lines
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

fn rate(plan: &Plan, language: Language, threads: usize, sessions: u32) -> f64 {
    let first = Lab::open(plan, language);
    first.time_first(trivial(language));
    let labs: Vec<Lab> = (0..threads).map(|_| Lab::on(first.host.clone(), language)).collect();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for lab in &labs {
            scope.spawn(move || {
                for _ in 0..sessions {
                    lab.time_first(trivial(language));
                }
            });
        }
    });
    f64::from(sessions) * threads as f64 / began.elapsed().as_secs_f64()
}
