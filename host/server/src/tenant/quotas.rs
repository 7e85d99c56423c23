//! Quotas of a tenant: processor time and tokens of models in a day, memory, disk.
//!
//! Days are those of UTC. The usage of a day is stored, so that a server that restarts goes on counting. The disk is
//! measured from time to time; bytes that cells write meanwhile are added as they are written.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cellar_bridges::TokenBudget;
use cellar_core::{
    files::{Durability, PRIVATE, replace_with},
    sync::lock,
    time::later,
};
use cellar_engine::{
    Host,
    config::{CpuShare, MemoryBudget},
    files::DiskPool,
};
use cellar_hub::{Admission, Bounds, QuotaError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Tenant;
use crate::{
    access::now,
    problem::{self, Problem},
};

/// Name of the file with the usage of a day, which no session can have.
const USED: &str = ".used.json";
/// Seconds of a day.
const DAY: u64 = 24 * 3_600;
/// Interval of checks of processor time and of saving the usage, and the shortest interval of measurements of the disk.
const LOOK: Duration = Duration::from_secs(1);
const DISK_LOOK: Duration = Duration::from_secs(10);
/// Ratio of the time between measurements of the disk to the time that one takes, at least.
const DISK_SHARE: u32 = 50;
/// Time after which a tenant without memory left may try again: some of its kernels may have ended or fallen asleep by
/// then.
const MEMORY_WAIT: Duration = Duration::from_secs(5);

const CPU: &str = "cpu_seconds_per_day";
const TOKENS: &str = "model_tokens_per_day";
const MEMORY: &str = "memory_mib";
const DISK: &str = "disk_mib";

/// Limits of a tenant's usage. An absent one limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Seconds of processor time that its cells may use in a day.
    pub cpu_seconds_per_day: Option<u64>,
    /// Tokens that its cells may use in a day, prompts and answers together.
    pub model_tokens_per_day: Option<u64>,
    /// MiB of memory that its kernels may use beyond their guests' images.
    pub memory_mib: Option<u64>,
    /// MiB that its store may hold.
    pub disk_mib: Option<u64>,
}

/// Quotas and usage of a tenant. A cheap handle.
#[derive(Clone, Debug)]
pub(crate) struct Quotas(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    quota: Quota,
    share: CpuShare,
    memory: Option<MemoryBudget>,
    disk: Option<DiskPool>,
    store: PathBuf,
    day: Mutex<Day>,
    /// Tokens used since this was opened, and before that on the day of opening.
    tokens: AtomicU64,
}

/// Usage to add or subtract, so that the counters of this process give that of the current day.
#[derive(Debug)]
struct Day {
    number: u64,
    /// Nanoseconds of the day that the share has not counted, and nanoseconds that it has counted on earlier days.
    cpu_before: u64,
    cpu_of_others: u64,
    tokens_of_others: u64,
    /// Usage in the file.
    noted: Used,
}

/// Usage of a day, as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Used {
    /// Days since the Unix epoch.
    day: u64,
    cpu_ms: u64,
    tokens: u64,
}

impl Quotas {
    /// Opens the quotas of a tenant whose store exists.
    pub(crate) fn open(quota: Quota, weight: u32, host: &Host, store: &Path) -> Quotas {
        let noted: Used =
            fs::read(store.join(USED)).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let number = now() / DAY;
        let today = if noted.day == number { noted } else { Used::default() };
        let day = Day {
            number,
            cpu_before: today.cpu_ms.saturating_mul(1_000_000),
            cpu_of_others: 0,
            tokens_of_others: 0,
            noted,
        };
        Quotas(Arc::new(Inner {
            quota,
            share: host.share(weight),
            memory: quota.memory_mib.map(|mib| MemoryBudget::new(mib << 20)),
            disk: quota.disk_mib.map(|mib| DiskPool::new(mib << 20)),
            store: store.to_owned(),
            day: Mutex::new(day),
            tokens: AtomicU64::new(today.tokens),
        }))
    }

    /// Returns the limits that all sessions of the tenant share.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            share: Some(self.0.share.clone()),
            memory: self.0.memory.clone(),
            disk: self.0.disk.clone(),
            tokens: Some(Arc::new(self.clone())),
            admission: Some(Arc::new(self.clone())),
        }
    }

    /// Returns the processor time that its cells have used since the server started.
    pub(crate) fn cpu(&self) -> Duration {
        self.0.share.used()
    }

    /// Checks that more may be stored on the disk.
    pub(crate) fn admit_bytes(&self) -> Result<(), Problem> {
        match self.0.check_disk() {
            Ok(()) => Ok(()),
            Err(error) => Err(problem::of_quota(&error)),
        }
    }

    /// Returns the limit and usage of each quota that it has, by name, and for a quota of a day the time of its reset.
    pub(crate) fn json(&self) -> Value {
        let used = self.0.used();
        let quotas = self.0.list(used).into_iter().map(|(name, limit, used)| {
            let resets_at = matches!(name, CPU | TOKENS).then(|| (now() / DAY).saturating_add(1).saturating_mul(DAY));
            (name.to_owned(), json!({ "limit": limit, "used": used, "resetsAt": resets_at }))
        });
        Value::Object(quotas.collect::<Map<_, _>>())
    }

    /// Returns the name, limit and usage of each quota.
    pub(crate) fn list(&self) -> Vec<(&'static str, u64, u64)> {
        self.0.list(self.0.used())
    }

    /// Returns true if running cells must end, because they have used more processor time than they may in a day.
    pub(crate) fn is_over(&self) -> bool {
        self.0.quota.cpu_seconds_per_day.is_some_and(|limit| self.0.used().cpu_ms > limit.saturating_mul(1_000))
    }

    /// Saves the usage in the store, if it has changed. Blocks.
    pub(crate) fn save(&self) {
        if self.0.quota.cpu_seconds_per_day.is_none() && self.0.quota.model_tokens_per_day.is_none() {
            return;
        }
        let used = self.0.used();
        if lock(&self.0.day).noted == used {
            return;
        }
        let write = || -> io::Result<()> {
            replace_with(&self.0.store.join(USED), &serde_json::to_vec(&used)?, PRIVATE, Durability::Cached)
        };
        match write() {
            Ok(()) => lock(&self.0.day).noted = used,
            Err(error) => tracing::warn!(%error, "what a tenant has used was not noted"),
        }
    }

    /// Measures the disk. Blocks.
    pub(crate) fn measure(&self) {
        if let Some(disk) = &self.0.disk {
            disk.set_bytes(bytes_below(&self.0.store));
        }
    }
}

impl Inner {
    /// Returns the usage of the current day.
    fn used(&self) -> Used {
        let (cpu, tokens) = (nanos(self.share.used()), self.tokens.load(Ordering::Relaxed));
        let mut day = lock(&self.day);
        let number = now() / DAY;
        if number != day.number {
            let noted = day.noted;
            *day = Day { number, cpu_before: 0, cpu_of_others: cpu, tokens_of_others: tokens, noted };
        }
        let cpu = cpu.saturating_sub(day.cpu_of_others).saturating_add(day.cpu_before);
        Used { day: number, cpu_ms: cpu / 1_000_000, tokens: tokens.saturating_sub(day.tokens_of_others) }
    }

    fn list(&self, used: Used) -> Vec<(&'static str, u64, u64)> {
        let Quota { cpu_seconds_per_day, model_tokens_per_day, .. } = self.quota;
        let memory = self.memory.as_ref().map(|memory| (MEMORY, memory.limit_bytes() >> 20, memory.used_bytes() >> 20));
        let disk = self.disk.as_ref().map(|disk| (DISK, disk.bytes_max() >> 20, disk.bytes() >> 20));
        let cpu = cpu_seconds_per_day.map(|limit| (CPU, limit, used.cpu_ms / 1_000));
        let tokens = model_tokens_per_day.map(|limit| (TOKENS, limit, used.tokens));
        [cpu, memory, disk, tokens].into_iter().flatten().collect()
    }

    fn check_disk(&self) -> Result<(), QuotaError> {
        match &self.disk {
            Some(disk) if disk.is_full(1) => Err(QuotaError {
                quota: DISK,
                message: format!("this tenant's store is full: it may hold {} MiB", disk.bytes_max() >> 20),
                retry_after: None,
            }),
            _ => Ok(()),
        }
    }
}

impl Admission for Quotas {
    fn admit(&self) -> Result<(), QuotaError> {
        let inner = &self.0;
        if let Some(limit) = inner.quota.cpu_seconds_per_day
            && inner.used().cpu_ms >= limit.saturating_mul(1_000)
        {
            let message =
                format!("this tenant's cells have used the {limit} s of processor time that they may in a day");
            return Err(QuotaError { quota: CPU, message, retry_after: Some(until_tomorrow()) });
        }
        if let Some(memory) = inner.memory.as_ref().filter(|memory| memory.used_bytes() >= memory.limit_bytes()) {
            let mib = memory.limit_bytes() >> 20;
            let message = format!("this tenant's kernels have the {mib} MiB of memory that they may");
            return Err(QuotaError { quota: MEMORY, message, retry_after: Some(MEMORY_WAIT) });
        }
        inner.check_disk()
    }
}

impl TokenBudget for Quotas {
    fn check(&self) -> Result<(), String> {
        match self.0.quota.model_tokens_per_day {
            Some(limit) if self.0.used().tokens >= limit => Err(format!(
                "this tenant's cells have used the {limit} tokens of models that they may in a day (`{TOKENS}`)"
            )),
            _ => Ok(()),
        }
    }

    fn spend(&self, tokens: u64) {
        self.0.tokens.fetch_add(tokens, Ordering::Relaxed);
    }
}

/// Enforces the quotas of a server's tenants: cancels runs of tenants over their limit, measures the disk, saves the
/// usage. Does not return.
pub(crate) async fn keep(tenants: Vec<Arc<Tenant>>) {
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut look_at = Instant::now();
    loop {
        tick.tick().await;
        for tenant in tenants.iter().filter(|tenant| tenant.quotas.is_over()) {
            for id in tenant.hub.sessions().into_iter().flat_map(|(_, runs)| runs) {
                if let Ok(run) = tenant.hub.run(&id) {
                    run.cancel();
                }
            }
        }
        let is_due = look_at <= Instant::now();
        let quotas: Vec<Quotas> = tenants.iter().map(|tenant| tenant.quotas.clone()).collect();
        let worked = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            quotas.iter().filter(|_| is_due).for_each(Quotas::measure);
            quotas.iter().for_each(Quotas::save);
            began.elapsed()
        });
        if let (Ok(took), true) = (worked.await, is_due) {
            look_at = later(Instant::now(), DISK_LOOK.max(took.saturating_mul(DISK_SHARE)));
        }
    }
}

fn until_tomorrow() -> Duration {
    Duration::from_secs(DAY.saturating_sub(now() % DAY))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the bytes of all files below a folder. Links are not followed.
fn bytes_below(folder: &Path) -> u64 {
    let mut bytes = 0_u64;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                bytes = bytes.saturating_add(entry.metadata().map_or(0, |metadata| metadata.len()));
            }
        }
    }
    bytes
}
