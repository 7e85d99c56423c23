//! What a tenant may use: processor time and tokens of models in a day, memory, disk.
//!
//! A day is one of UTC. What was used of it is kept in the tenant's store, so that a server that starts again goes on counting.
//! What lies on the disk is looked for from time to time; what cells write meanwhile is added as they write it.

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

/// Where it is kept what was used of a day, by a name that no session can have.
const USED: &str = ".used.json";
/// Seconds of a day.
const DAY: u64 = 24 * 3_600;
/// How soon what cells use is looked at again, and what lies on the disk at the soonest.
const LOOK: Duration = Duration::from_secs(1);
const DISK_LOOK: Duration = Duration::from_secs(10);
/// Looking for what lies on the disk takes one part in so many of the time.
const DISK_SHARE: u32 = 50;
/// How soon a tenant may come again that has no memory left: then some of its kernels may have ended, or fallen asleep.
const MEMORY_WAIT: Duration = Duration::from_secs(5);

const CPU: &str = "cpu_seconds_per_day";
const TOKENS: &str = "model_tokens_per_day";
const MEMORY: &str = "memory_mib";
const DISK: &str = "disk_mib";

/// How much a tenant may use. What is absent is not bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Seconds of processor time that its cells may use in a day.
    pub cpu_seconds_per_day: Option<u64>,
    /// Tokens that models may be asked and answer with for its cells in a day.
    pub model_tokens_per_day: Option<u64>,
    /// MiB that its kernels may have beyond their guests' images.
    pub memory_mib: Option<u64>,
    /// MiB that its store may hold.
    pub disk_mib: Option<u64>,
}

/// What a tenant has used, and may. A cheap handle.
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
    /// Tokens of all days since this was opened, and before on the first of them.
    tokens: AtomicU64,
}

/// What was used before a day began, or before this process did.
#[derive(Debug)]
struct Day {
    number: u64,
    /// Nanoseconds that are counted besides those of the share, and those of the share that are of another day.
    cpu_before: u64,
    cpu_of_others: u64,
    tokens_of_others: u64,
    /// What the file says.
    noted: Used,
}

/// What was used of a day, as it is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Used {
    /// Days since the Unix epoch.
    day: u64,
    cpu_ms: u64,
    tokens: u64,
}

impl Quotas {
    /// Those of a tenant whose store is there.
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

    /// What all of the tenant's sessions share.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            share: Some(self.0.share.clone()),
            memory: self.0.memory.clone(),
            disk: self.0.disk.clone(),
            tokens: Some(Arc::new(self.clone())),
            admission: Some(Arc::new(self.clone())),
        }
    }

    /// Processor time that its cells have used since the server started.
    pub(crate) fn cpu(&self) -> Duration {
        self.0.share.used()
    }

    /// Makes sure that more may be kept on the disk.
    pub(crate) fn admit_bytes(&self) -> Result<(), Problem> {
        match self.0.check_disk() {
            Ok(()) => Ok(()),
            Err(error) => Err(problem::of_quota(&error)),
        }
    }

    /// What it has used of each quota that it has, by the name of the quota.
    pub(crate) fn json(&self) -> Value {
        let used = self.0.used();
        let quotas = self.0.list(used).into_iter().map(|(name, limit, used)| {
            let resets_at = matches!(name, CPU | TOKENS).then(|| (now() / DAY).saturating_add(1).saturating_mul(DAY));
            (name.to_owned(), json!({ "limit": limit, "used": used, "resetsAt": resets_at }))
        });
        Value::Object(quotas.collect::<Map<_, _>>())
    }

    /// Each quota by name, with what it allows and what was used.
    pub(crate) fn list(&self) -> Vec<(&'static str, u64, u64)> {
        self.0.list(self.0.used())
    }

    /// Whether cells that run must end: they have used more of a day than they may.
    pub(crate) fn is_over(&self) -> bool {
        self.0.quota.cpu_seconds_per_day.is_some_and(|limit| self.0.used().cpu_ms > limit.saturating_mul(1_000))
    }

    /// Notes in the store what was used, if that has changed. Blocks.
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

    /// Looks for what lies on the disk. Blocks.
    pub(crate) fn measure(&self) {
        if let Some(disk) = &self.0.disk {
            disk.set_bytes(bytes_below(&self.0.store));
        }
    }
}

impl Inner {
    /// What was used of this day.
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

/// Keeps the quotas of a server's tenants: ends what has used too much, looks at the disk, notes what was used. Does not
/// return.
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

/// Bytes of all files below a folder. Links are not followed.
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
