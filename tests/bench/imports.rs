//! Time of imports in a new session, for each of the modules that are used most.

use std::time::Duration;

use cellar_engine::Language;

use crate::{
    Offer,
    lab::{Lab, Plan},
    table::{Line, Samples},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("import of 100 modules, one at a time", imports)];

/// In microseconds.
const TARGET: f64 = 2_000.0;
/// Sessions for each module.
const ROUNDS: usize = 3;
/// Modules that are named on standard error, the slowest first.
const NAMED: usize = 10;

/// The 100 modules of the standard library that scripts, notebooks and packages import most. Chosen by hand: no ranking
/// is authoritative, and those that a sandbox cannot have (`ssl`, `ctypes`, `curses`, `resource`) are left out.
const MODULES: &str = "\
    os sys re json time datetime collections random math logging typing argparse subprocess pathlib copy shutil functools \
    itertools threading string io traceback unittest abc tempfile socket hashlib urllib.request urllib.parse csv warnings \
    glob pickle base64 enum operator struct contextlib dataclasses signal inspect platform uuid codecs types asyncio \
    importlib queue ast multiprocessing getpass textwrap configparser decimal errno sqlite3 concurrent.futures optparse \
    html http.client http.server email.mime.text email.mime.multipart smtplib select locale gzip zipfile tarfile zlib \
    bisect heapq statistics fractions calendar secrets pprint weakref difflib fnmatch stat shlex array gc atexit numbers \
    binascii timeit xml.etree.ElementTree xml.dom.minidom unittest.mock pdb cProfile ftplib imaplib getopt mimetypes \
    zoneinfo ipaddress tomllib";

fn imports(plan: &Plan) -> Vec<Line> {
    let lab = Lab::open(plan, Language::Python);
    let mut all: Vec<(&str, Samples)> = MODULES.split_whitespace().map(|module| (module, time(&lab, module))).collect();
    all.sort_by(|(_, one), (_, other)| other.best().total_cmp(&one.best()));
    for (module, samples) in all.iter().take(NAMED) {
        eprintln!("{module}: {:.0} us", samples.best());
    }
    let mut bests = Samples::default();
    for (_, samples) in &all {
        bests.push(Duration::from_secs_f64(samples.best() / 1e6));
    }
    let (slowest, samples) = &all[0];
    let count = all.len();
    vec![
        Line::time(format!("Python: import of a module in a new session, {count} modules"), &bests, TARGET),
        Line::time(format!("Python: import of the slowest of them ({slowest})"), samples, TARGET),
    ]
}

fn time(lab: &Lab, module: &str) -> Samples {
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        samples.push(lab.time_in_new(&format!("import {module}")));
    }
    samples
}
