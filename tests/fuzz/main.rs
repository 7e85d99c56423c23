//! Input of strangers, and guests that lie: whatever it is, it is refused or works, in bounded time and memory.
//!
//! Each target changes seeds at random (bytes, numbers, pieces of others; checksums are made to match, so that what lies
//! behind them is reached) and gives them to the code that reads them. A panic, an abort, a case that takes too long or
//! asks for too much memory is a find: its bytes are left in `target/fuzz`, and belong into `fixtures/fuzz/TARGET`, where they
//! are seeds and are tried first, for ever. A target runs some cases from a fixed start, which `make test` does in seconds;
//! with `CELLAR_FUZZ_SECONDS` it runs for so long from one that is new each time (`make fuzz`).
//!
//! Each target says how much it has tried: how many cases, how many of them were taken for what they claim to be, and in how many
//! ways the others were refused. A way is what was said, without its numbers and names: about a check of the reader that
//! was reached. `make coverage` counts the code behind it.

#![allow(clippy::expect_used, reason = "without its seeds a target has nothing to try, and says which it lacks")]
#![allow(clippy::print_stdout, reason = "the figures are for who runs it by hand")]

mod change;
mod memory;
mod requests;
mod targets;

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use rand::{RngCore, SeedableRng, rngs::SmallRng};

use change::changed;
use targets::{Answer, TARGETS, Target};

/// Time that a case may take: more than any should need on a machine that does other things.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);
/// Memory that a case may take besides so many times its own size.
const CASE_BYTES: usize = 64 << 20;
const CASE_BYTES_PER_BYTE: usize = 32;
/// Characters of what is said of a case by which ways are told apart.
const WAY_CHARACTERS: usize = 200;
/// Bytes of a case.
const CASE_BYTES_MAX: usize = 1 << 20;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = TARGETS.iter().map(|target| Trial::test(format!("fuzz::{}", target.name), || run(target)));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Case that a target runs now, for the watchdog that must end it.
type Current = Arc<Mutex<Option<(Instant, Vec<u8>)>>>;

fn run(target: &'static Target) -> Result<(), Failed> {
    let kept = files(&root().join("fixtures/fuzz").join(target.name));
    let mut seeds: Vec<Vec<u8>> = kept.iter().filter_map(|path| fs::read(path).ok()).collect();
    let mut try_one = (target.open)(&mut seeds);
    if seeds.is_empty() {
        return Err("it has no seeds".into());
    }
    let current = Current::default();
    watch(target.name, current.clone());
    let seconds = std::env::var("CELLAR_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let mut random = match seconds {
        Some(_) => SmallRng::from_os_rng(),
        None => SmallRng::seed_from_u64(5),
    };
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let began = Instant::now();
    let (mut count, mut taken, mut ways) = (0_u64, 0_u64, BTreeSet::new());
    loop {
        let number = usize::try_from(count).unwrap_or(usize::MAX);
        let mut case = match seeds.get(number) {
            Some(seed) => seed.clone(),
            None => {
                let (one, other) = (pick(&seeds, &mut random), pick(&seeds, &mut random));
                changed(one, other, &mut random)
            }
        };
        case.truncate(CASE_BYTES_MAX.max(seeds.get(number).map_or(0, Vec::len)));
        set(&current, Some((Instant::now(), case.clone())));
        let before = memory::reset_peak();
        let tried = catch_unwind(AssertUnwindSafe(|| try_one(&case)));
        let peak = memory::peak().saturating_sub(before);
        set(&current, None);
        let most = CASE_BYTES.max(target.bytes) + case.len() * CASE_BYTES_PER_BYTE;
        let fault = match tried {
            Err(panic) => Some(format!("it panicked: {}", words(&*panic))),
            Ok(Err(fault)) => Some(fault),
            Ok(Ok(_)) if peak > most => Some(format!("it took {peak} bytes of memory, {most} at most")),
            Ok(Ok(Answer::Taken)) => {
                taken += 1;
                None
            }
            Ok(Ok(Answer::Refused(words))) => {
                ways.insert(way(&words));
                None
            }
        };
        if let Some(fault) = fault {
            return Err(format!("case {count}: {fault}; it is in `{}`", leave(target.name, &case).display()).into());
        }
        count += 1;
        let is_over = end.map_or(count >= target.cases, |end| Instant::now() >= end);
        if is_over && count >= seeds.len() as u64 {
            let seconds = began.elapsed().as_secs_f64();
            let (name, ways) = (target.name, ways.len());
            println!(
                "fuzz {name}: {count} cases in {seconds:.1} s, {taken} of them taken, the others refused in {ways} ways"
            );
            return Ok(());
        }
    }
}

/// Returns a refusal without what differs from one case to the next: numbers, and text in quotes.
fn way(words: &str) -> String {
    let mut quote = None;
    let kept = words.chars().filter(|each| match quote {
        Some(open) => {
            quote = quote.filter(|_| *each != open);
            false
        }
        None => {
            quote = Some(*each).filter(|each| matches!(each, '`' | '"'));
            quote.is_none() && !each.is_ascii_digit()
        }
    });
    kept.take(WAY_CHARACTERS).collect()
}

fn set(current: &Current, case: Option<(Instant, Vec<u8>)>) {
    *current.lock().unwrap_or_else(PoisonError::into_inner) = case;
}

fn pick<'a>(seeds: &'a [Vec<u8>], random: &mut SmallRng) -> &'a [u8] {
    let place = random.next_u64() % (seeds.len() as u64);
    &seeds[usize::try_from(place).unwrap_or_default()]
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without words").to_owned()
}

/// Ends the program when a case takes too long: nothing else ends a thread.
fn watch(name: &'static str, current: Current) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some((_, case)) = now.filter(|(began, _)| began.elapsed() > CASE_TIMEOUT) {
                let path = leave(name, &case);
                eprintln!("fuzz {name}: a case took more than {CASE_TIMEOUT:?}; it is in `{}`", path.display());
                std::process::abort();
            }
        }
    });
}

fn leave(target: &str, case: &[u8]) -> PathBuf {
    let folder = root().join("target/fuzz").join(target);
    let path = folder.join(format!("{:032x}", twox_hash::XxHash3_128::oneshot(case)));
    let left = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, case));
    left.unwrap_or_else(|error| eprintln!("`{}`: {error}", path.display()));
    path
}

/// The files of a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}
