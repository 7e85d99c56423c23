//! Common parts of all measurements: the plan, a host to measure in, and the taking of samples.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use cellar_engine::{
    Bridges, Cell, GuestName, Host, HostConfig, HostFolders, Language, Limits, Session, SessionConfig,
    bridges::{Call, CallFuture, Caller, Response, denied},
    config::{KernelOptions, Stops},
    guests::{GuestState, guest_status},
    results::CellResult,
};
use tokio::runtime::Runtime;

use crate::table::Samples;

/// The languages that people use.
pub(crate) const LANGUAGES: [Language; 2] = [Language::Python, Language::JavaScript];
/// Kernels alive at once: a thousand idle sessions, and some.
const KERNELS_MAX: u32 = 1_100;
/// Length of a pause.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);
/// Turns of the runtime that are enough for a kernel's task to see that its session is gone.
const YIELDS: usize = 4;

/// Plan of the measurements: their extent, and the folders they use.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Less than a minute for everything, and rougher.
    pub(crate) is_quick: bool,
    guests: PathBuf,
    pub(crate) cache: PathBuf,
}

impl Plan {
    /// Guests and cache are those of the command line.
    pub(crate) fn new(is_quick: bool) -> Plan {
        let from_environment = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let guests = cellar_bench::root().join("target/guests");
        let cache = || dirs::cache_dir().unwrap_or_default().join("cellar");
        Plan {
            is_quick,
            guests: from_environment("CELLAR_GUESTS").unwrap_or(guests),
            cache: from_environment("CELLAR_CACHE").unwrap_or_else(cache),
        }
    }

    pub(crate) fn host_config(&self) -> HostConfig {
        HostConfig {
            kernels_max: KERNELS_MAX,
            ..HostConfig::new(HostFolders { guests: self.guests.clone(), cache: self.cache.clone() })
        }
    }

    /// Checks that all guests are ready to run.
    ///
    /// # Errors
    /// What to do about the first that is not.
    pub(crate) fn prepare(&self) -> Result<(), String> {
        for guest in GuestName::ALL {
            let status = guest_status(&self.host_config(), guest);
            if status.state != GuestState::Ready {
                let state = format!("{:?}", status.state);
                return Err(format!("the guest `{guest}` is not ready ({state}); run `make guests data-guest`"));
            }
        }
        Ok(())
    }

    /// Chooses between the thorough and the quick way.
    pub(crate) fn pick<T>(&self, thorough: T, quick: T) -> T {
        if self.is_quick { quick } else { thorough }
    }

    /// Takes samples of something that times itself. Criterion decides how many, and compares them with the last
    /// time; the single times are kept besides, because it knows averages only.
    pub(crate) fn sample(&self, name: &str, mut once: impl FnMut() -> Duration) -> Samples {
        // Criterion counts timed moments only, but the moments between them pass too.
        let began = Instant::now();
        let timed: Duration = (0..CALIBRATION_ROUNDS).map(|_| once()).sum();
        let share = timed.as_secs_f64() / began.elapsed().as_secs_f64();
        let wall = self.pick(Duration::from_secs(2), Duration::from_millis(300));
        let mut criterion = criterion::Criterion::default()
            .sample_size(self.pick(50, 10))
            .warm_up_time(wall.mul_f64(share / 4.0))
            .measurement_time(wall.mul_f64(share));
        let mut samples = Samples::default();
        criterion.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let mut total = Duration::ZERO;
                for _ in 0..rounds {
                    let time = once();
                    samples.push(time);
                    total += time;
                }
                total
            });
        });
        samples
    }
}

/// Rounds that tell how much of its time a measurement spends on what it measures.
const CALIBRATION_ROUNDS: u32 = 10;

/// A host and a runtime to measure in. The runtime has one thread, the one that measures, as an embedder has it that
/// wants answers soon: no other thread has to be woken.
#[derive(Debug)]
pub(crate) struct Lab {
    runtime: Runtime,
    pub(crate) host: Host,
    pub(crate) language: Language,
    /// Guest that runs it.
    guest: GuestName,
    /// A session that runs a cell after each pause, so that a processor which has slept or done other people's work
    /// meanwhile is not what is measured.
    neighbour: Option<Session>,
}

impl Lab {
    pub(crate) fn open(plan: &Plan, language: Language) -> Lab {
        Lab::open_guest(plan, language.guest())
    }

    /// A lab for one of the guests of a language.
    pub(crate) fn open_guest(plan: &Plan, guest: GuestName) -> Lab {
        Lab::of(plan.host_config(), guest)
    }

    /// The same for a guest that is stopped in this way.
    pub(crate) fn open_stopped(plan: &Plan, guest: GuestName, stops: Stops) -> Lab {
        Lab::of(HostConfig { stops, ..plan.host_config() }, guest)
    }

    fn of(config: HostConfig, guest: GuestName) -> Lab {
        let host = Host::open(config).expect("a host");
        host.preload(guest).expect("the guest can be loaded");
        Lab { guest, ..Lab::on(host, guest.language()) }
    }

    /// The same lab, where each session begins after a pause.
    pub(crate) fn with_pauses(mut self) -> Lab {
        self.neighbour = Some(self.session());
        self
    }

    /// Another lab on the same host, for another thread.
    pub(crate) fn on(host: Host, language: Language) -> Lab {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Lab { runtime, host, language, guest: language.guest(), neighbour: None }
    }

    /// A session that may call the tool `echo`.
    pub(crate) fn session(&self) -> Session {
        self.session_with(Limits::default())
    }

    pub(crate) fn session_with(&self, limits: Limits) -> Session {
        self.session_of(SessionConfig { limits, bridges: Arc::new(Echo), ..SessionConfig::default() })
    }

    /// A session of the guest that is measured.
    pub(crate) fn session_of(&self, config: SessionConfig) -> Session {
        self.host
            .session(SessionConfig { kernels: KernelOptions { guests: vec![self.guest], ..config.kernels }, ..config })
            .expect("a session")
    }

    /// Runs a cell to its end, whatever that is.
    pub(crate) fn run_any(&self, session: &Session, cell: Cell) -> CellResult {
        let run = session.run(vec![cell]).expect("a run");
        let mut result = self.runtime.block_on(run.collect_result());
        result.cells.pop().expect("a run has a result for each of its cells")
    }

    /// Runs a cell that succeeds.
    pub(crate) fn run(&self, session: &Session, code: &str) -> CellResult {
        let result = self.run_any(session, Cell::new(self.language, code));
        if let Some(failure) = &result.failure {
            panic!("{} failed:\n{}", self.language, failure.traceback);
        }
        result
    }

    /// Runs a cell that succeeds and has a value.
    pub(crate) fn value(&self, session: &Session, code: &str) -> String {
        self.run(session, code).output().text
    }

    /// The time that a cell takes, as its caller sees it.
    pub(crate) fn time(&self, session: &Session, code: &str) -> Duration {
        let began = Instant::now();
        self.run(session, code);
        began.elapsed()
    }

    /// The time from nothing to the first result. Ending the session is not part of it.
    pub(crate) fn time_first(&self, code: &str) -> Duration {
        if let Some(neighbour) = &self.neighbour {
            self.wait(PAUSE);
            self.run(neighbour, trivial(self.language));
        }
        let began = Instant::now();
        let session = self.session();
        self.run(&session, code);
        let time = began.elapsed();
        drop(session);
        self.settle();
        time
    }

    /// The time of the second cell of a new session. The first does next to nothing.
    pub(crate) fn time_in_new(&self, code: &str) -> Duration {
        let session = self.session();
        self.run(&session, trivial(self.language));
        let time = self.time(&session, code);
        drop(session);
        self.settle();
        time
    }

    /// Lets the kernels of sessions that were dropped end; they do that on the runtime.
    fn settle(&self) {
        self.runtime.block_on(async {
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Lets other things happen for a while.
    pub(crate) fn wait(&self, duration: Duration) {
        // A sleep can be made inside a runtime only.
        self.runtime.block_on(async { tokio::time::sleep(duration).await });
    }

    /// Has something asynchronous done.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }
}

/// A cell of a language that does next to nothing.
pub(crate) fn trivial(language: Language) -> &'static str {
    match language {
        Language::Probe => "emit 2",
        _ => "1+1",
    }
}

/// Answers every tool call at once with its own arguments, so that what is timed is the bridge.
struct Echo;

impl Bridges for Echo {
    fn call(&self, call: Call, _caller: Caller) -> CallFuture {
        let answer = match call {
            Call::Tool { arguments, .. } => Ok(Response::Json(arguments)),
            other => Err(denied(&other)),
        };
        Box::pin(std::future::ready(answer))
    }
}
