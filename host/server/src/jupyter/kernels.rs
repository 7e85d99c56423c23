//! The kernels of a tenant.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use cellar_config::Folders;
use cellar_core::sync::lock;
use cellar_engine::{GuestName, limits::TIMEOUT_MAX};
use cellar_hub::{Hub, OpenRequest, OwnSession};
use cellar_jupyter::WebKernel;
use chrono::{DateTime, SecondsFormat, Utc};
use rand::Rng;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    problem::Problem,
    tenant::{Opening, Tenant},
};

/// Kernels of a tenant.
const KERNELS_MAX: usize = 256;
/// Connections of clients to them.
const CONNECTIONS_MAX: usize = 512;
/// Time since the last message after which a kernel without clients is ended to make room for another.
const FORSAKEN_AFTER: Duration = Duration::from_secs(3_600);
/// Environment variables that a kernel may be started with.
const VARIABLES_MAX: usize = 256;

/// The kernels of a tenant, by their ids.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) tenant: Arc<Tenant>,
    by_id: Mutex<BTreeMap<String, Arc<Entry>>>,
    /// Permits for connections of clients.
    connections: Arc<Semaphore>,
}

/// A kernel, and the session that it runs cells in.
#[derive(Debug)]
pub(super) struct Entry {
    id: String,
    /// The kernelspec.
    name: String,
    pub(super) kernel: WebKernel,
    /// After the kernel: what runs there must not find its session gone.
    _session: Kept,
}

/// The session of a kernel, which goes when this is dropped, or as soon as it has been opened.
struct Kept {
    hub: Hub,
    name: String,
    is_wanted: Arc<AtomicBool>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.is_wanted.store(false, Ordering::SeqCst);
        // It may not have been opened yet, or may not have been able to.
        let _ = self.hub.close(&self.name);
    }
}

impl Entry {
    /// Returns the kernel's description for clients.
    pub(super) fn model(&self) -> Value {
        let last: DateTime<Utc> = self.kernel.last_activity().into();
        json!({
            "id": self.id,
            "name": self.name,
            "last_activity": last.to_rfc3339_opts(SecondsFormat::Micros, true),
            "execution_state": self.kernel.state().name(),
            "connections": self.kernel.connections(),
        })
    }

    /// Returns the time since the last message, if no client is connected.
    fn forsaken(&self) -> Option<Duration> {
        let since = SystemTime::now().duration_since(self.kernel.last_activity()).unwrap_or_default();
        (self.kernel.connections() == 0).then_some(since)
    }
}

impl Kernels {
    pub(super) fn new(tenant: Arc<Tenant>) -> Kernels {
        Kernels { tenant, by_id: Mutex::default(), connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Entry>>> {
        lock(&self.by_id)
    }

    /// Takes a permit for one more connection, if there is any.
    pub(super) fn connection(&self) -> Option<OwnedSemaphorePermit> {
        self.connections.clone().try_acquire_owned().ok()
    }

    /// Returns the descriptions of all kernels.
    pub(super) fn list(&self) -> Vec<Value> {
        self.entries().values().map(|entry| entry.model()).collect()
    }

    /// Returns the kernel of this id.
    pub(super) fn get(&self, id: &str) -> Result<Arc<Entry>, Problem> {
        self.entries().get(id).cloned().ok_or_else(|| Problem::unknown("kernel"))
    }

    /// Starts a kernel, and returns its description. Its session is opened meanwhile.
    pub(super) fn start(
        self: &Arc<Kernels>,
        name: &str,
        guest: GuestName,
        environment: Map<String, Value>,
    ) -> Result<Value, Problem> {
        if environment.len() > VARIABLES_MAX {
            return Err(Problem::bad(format!("a kernel is started with {VARIABLES_MAX} variables at most")));
        }
        let tenant = &self.tenant;
        let id = made_up_id();
        // Clients pass on variables of their own machine, which name its folders; those that are meant for the kernel are
        // marked so.
        let is_meant = |name: &String| name.starts_with("KERNEL_");
        let texts = environment.into_iter().filter(|(name, _)| is_meant(name));
        let texts = texts.filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
        let opening =
            Opening { guests: vec![guest.name().to_owned()], environment: texts.collect(), ..Opening::default() };
        let mut config = opening.config(tenant.hub.file())?.unwrap_or_else(|| tenant.hub.file().clone());
        // Nobody at a prompt expects a limit of which nothing was said.
        let most = u64::try_from(TIMEOUT_MAX.as_millis()).unwrap_or(u64::MAX);
        config.limits.timeout.get_or_insert(config.limits.timeout_max.unwrap_or(most));
        let is_wanted = Arc::new(AtomicBool::new(true));
        let kept = Kept { hub: tenant.hub.clone(), name: id.clone(), is_wanted: is_wanted.clone() };
        let (hub, session) = (tenant.hub.clone(), id.clone());
        let opened = async move {
            let (name, config) = (Some(session), Some(config));
            let open = OpenRequest { name, input: Some(true), config, ..OpenRequest::default() };
            let name = hub.open_session(open, None).await?;
            // Whoever gave it up meanwhile did not find it.
            if !is_wanted.load(Ordering::SeqCst) {
                let _ = hub.close(&name);
            }
            OwnSession::of(hub, &name)
        };
        let folders = Folders { guests: None, cache: None, store: Some(tenant.store().to_owned()) };
        let mut entries = self.entries();
        if entries.len() >= KERNELS_MAX {
            let forsaken = entries.values().filter_map(|entry| Some((entry.forsaken()?, entry.id.clone()))).max();
            let Some((_, id)) = forsaken.filter(|(since, _)| *since > FORSAKEN_AFTER) else {
                let detail = format!("{KERNELS_MAX} kernels run already; delete some of them");
                return Err(Problem::limit("kernels", detail, Duration::from_secs(60)));
            };
            entries.remove(&id);
        }
        let kernel = WebKernel::start(guest.language(), folders, opened);
        let ended = kernel.ended();
        let entry = Arc::new(Entry { id: id.clone(), name: name.to_owned(), kernel, _session: kept });
        let model = entry.model();
        entries.insert(id.clone(), entry);
        drop(entries);
        let kernels = Arc::downgrade(self);
        tokio::spawn(async move {
            ended.await;
            if let Some(kernels) = kernels.upgrade() {
                let _ = kernels.remove(&id);
            }
        });
        Ok(model)
    }

    /// Ends a kernel, and its session with it.
    pub(super) fn remove(&self, id: &str) -> Result<(), Problem> {
        let removed = self.entries().remove(id);
        removed.map(drop).ok_or_else(|| Problem::unknown("kernel"))
    }
}

/// An id as clients expect it: a UUID of random digits.
fn made_up_id() -> String {
    let random: u128 = rand::rng().random();
    let digits = format!("{random:032x}");
    format!("{}-{}-4{}-a{}-{}", &digits[..8], &digits[8..12], &digits[13..16], &digits[17..20], &digits[20..])
}
