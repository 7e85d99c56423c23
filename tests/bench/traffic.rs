//! Performance of a server in the long run: a working day of mixed traffic, as fast as it goes, and very many sessions
//! that sleep. Over loopback, as in `served`.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use cellar_engine::Language;

use crate::{
    Offer,
    lab::{LANGUAGES, Plan, trivial},
    machine::disk_usage,
    served::{Client, Server, median},
    table::{Line, Samples, Unit},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("served for hours", soak), ("served sleepers", sleepers)];

/// A request a second, for eight hours.
const REQUESTS: usize = 8 * 60 * 60;
/// Clients at the same time.
const CLIENTS: usize = 8;
/// Before this share of the requests memory still gets warm.
const WARM_SHARE: f64 = 0.4;
/// Interval at which the server is sampled.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Growth that is allowed to the median of its memory between the halves of what follows, in millions of bytes: the
/// slack of its allocator.
const GROWTH: f64 = 32.0;

/// Sample of a server's resources.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    megabytes: f64,
    files: f64,
    threads: f64,
    disk: f64,
}

impl Look {
    fn at(server: &Server) -> Look {
        let process = Path::new("/proc").join(server.process.id().to_string());
        let count = |folder: &str| std::fs::read_dir(process.join(folder)).expect("it lives").count() as f64;
        Look {
            megabytes: server.megabytes(),
            files: count("fd"),
            threads: count("task"),
            disk: disk_usage(&server.store()),
        }
    }
}

/// The life of a session as a client has it, in so many requests.
fn visit(server: &Server, client: &mut Client, number: usize) -> usize {
    let session = client.session();
    let at = |rest: &str| format!("/v1/sessions/{session}/{rest}");
    client.run(&session, Language::Python, "kept = [i * i for i in range(5000)]\nsum(kept)");
    client.run(&session, Language::JavaScript, "var kept = Array.from({ length: 5000 }, (_, i) => i * i); kept.length");
    client.fail(&session, Language::Python, "print('before'); 1 / 0");
    client.ask("PUT", &at("files/data/in.csv"), "", &"a,b\n1,2\n".repeat(200));
    client.run(&session, Language::Python, "len(open('data/in.csv').read())");
    client.ask("GET", &at("files/data/in.csv"), "", "");
    client.ask("GET", &at("variables?language=py"), "", "");
    // One that never ends, with a reader who leaves in the middle.
    let run = client.start(&session, "while (true);");
    let mut reader = server.client(0);
    reader.send("GET", &format!("/v1/runs/{run}/events"), "Accept: text/event-stream\r\n", "");
    assert_eq!(reader.head().0, 200);
    while !reader.line().contains("cell_started") {}
    drop(reader);
    client.ask("POST", &format!("/v1/runs/{run}/cancel"), "", "");
    // A third of them sleep and wake.
    if number.is_multiple_of(3) {
        client.ask("POST", &at("hibernate"), "", "");
        client.run(&session, Language::Python, "len(kept)");
    }
    client.ask("DELETE", &format!("/v1/sessions/{session}"), "", "");
    12 + if number.is_multiple_of(3) { 2 } else { 0 }
}

/// Mixed traffic, and what the server has in the first half of it, when it is warm, and in the second.
fn soak(plan: &Plan) -> Vec<Line> {
    let wanted = plan.pick(REQUESTS, 800);
    let server = Server::start(true);
    let (done, visits, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let began = Instant::now();
    let looks = thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.client(0);
                while done.load(Ordering::Relaxed) < wanted {
                    let number = visits.fetch_add(1, Ordering::Relaxed);
                    done.fetch_add(visit(&server, &mut client, number), Ordering::Relaxed);
                }
                is_over.store(true, Ordering::Relaxed);
            });
        }
        let mut looks = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
            if done.load(Ordering::Relaxed) as f64 > wanted as f64 * WARM_SHARE {
                looks.push(Look::at(&server));
            }
        }
        looks
    });
    let rate = done.into_inner() as f64 / began.elapsed().as_secs_f64();
    let (first, second) = looks.split_at(looks.len() / 2);
    let lines = |what: &str, unit: Unit, of: fn(&Look) -> f64, growth: f64| {
        let middle = |looks: &[Look]| median(looks.iter().map(of).collect());
        let (before, after) = (middle(first), middle(second));
        let line = |half: &str, figure, target| {
            Line::new(format!("eight hours of traffic: {what} in the {half} half"), unit, figure, figure, target)
        };
        [line("first", before, None), line("second", after, plan.pick(Some(before + growth), None))]
    };
    let mut all = vec![Line::new("eight hours of traffic: requests a second", Unit::PerSecond, rate, rate, None)];
    all.extend(lines("memory", Unit::Megabytes, |look| look.megabytes, GROWTH));
    all.extend(lines("the store", Unit::Megabytes, |look| look.disk, 1.0));
    all.extend(lines("open files", Unit::Count, |look| look.files, 8.0));
    all.extend(lines("threads", Unit::Count, |look| look.threads, 2.0));
    all
}

/// Very many sessions that sleep: what each takes, to open the last, and to wake any of them.
fn sleepers(plan: &Plan) -> Vec<Line> {
    let count = plan.pick(10_000, 100);
    let mut lines = Vec::new();
    for language in LANGUAGES {
        let (title, code) = (language.title(), trivial(language));
        let server = Server::start(true);
        let (mut client, before) = server.warm(language);
        let mut names = Vec::new();
        let mut last = Samples::default();
        for number in 0..count {
            let began = Instant::now();
            let session = client.session();
            client.run(&session, language, code);
            // The last of them, when all others sleep.
            if number + 20 > count {
                last.push(began.elapsed());
            }
            client.ask("POST", &format!("/v1/sessions/{session}/hibernate"), "", "");
            names.push(session);
        }
        let each = (server.megabytes() - before) / count as f64;
        let mut turn = 0;
        let what = format!("{title}: wake one of {count} served sessions, and a cell");
        let woken = plan.sample(&what, || {
            // One after the other, all over the disk.
            turn = (turn + 7_919) % count;
            let began = Instant::now();
            client.run(&names[turn], language, code);
            let time = began.elapsed();
            client.ask("POST", &format!("/v1/sessions/{}/hibernate", names[turn]), "", "");
            time
        });
        let memory = format!("{title}: memory of one of {count} served sessions that sleep");
        lines.push(Line::new(memory, Unit::Megabytes, each, each, None));
        lines.push(Line::time(format!("{title}: the last of {count} served sessions, and a cell"), &last, None));
        lines.push(Line::time(what, &woken, None));
    }
    lines
}
