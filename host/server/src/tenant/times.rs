//! Times of sessions: last use, sleep, and end. Sleep loses nothing; the end does.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cellar_core::sync::lock;

use super::Tenant;
use crate::access::now;

/// Interval of looks for sessions whose time is over.
const LOOK: Duration = Duration::from_secs(1);
/// Seconds after which the removal of a session is tried again that another process uses.
const BUSY_SECONDS: u64 = 60;

/// The times of a tenant's sessions.
#[derive(Debug, Default)]
pub(crate) struct Times(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Sessions that are open.
    open: HashMap<String, Use>,
    /// Seconds since the Unix epoch, of those that end, open or not.
    ends: HashMap<String, u64>,
    in_order: BTreeSet<(u64, String)>,
    /// Seconds without use after which those end that end for that.
    unused_for: HashMap<String, u64>,
}

#[derive(Debug)]
struct Use {
    at: Instant,
    idle_after: Duration,
    is_asleep: bool,
}

impl Times {
    /// A session was opened.
    pub(crate) fn opened(&self, name: &str, idle_after: Duration) {
        let usage = Use { at: Instant::now(), idle_after, is_asleep: false };
        lock(&self.0).open.insert(name.to_owned(), usage);
    }

    /// A session is used.
    pub(crate) fn used(&self, name: &str) {
        if let Some(usage) = lock(&self.0).open.get_mut(name) {
            (usage.at, usage.is_asleep) = (Instant::now(), false);
        }
    }

    /// A session is put to sleep when it was not used for so long.
    pub(crate) fn sleeps_after(&self, name: &str, idle_after: Duration) {
        if let Some(usage) = lock(&self.0).open.get_mut(name) {
            usage.idle_after = idle_after;
        }
    }

    /// A session ends then, or never.
    pub(crate) fn ends(&self, name: &str, end: Option<u64>) {
        let mut table = lock(&self.0);
        table.unused_for.remove(name);
        if let Some(before) = table.ends.remove(name) {
            table.in_order.remove(&(before, name.to_owned()));
        }
        if let Some(end) = end {
            table.ends.insert(name.to_owned(), end);
            table.in_order.insert((end, name.to_owned()));
        }
    }

    /// A session ends then, unless it is used before: each use gives it `unused_for` seconds.
    pub(crate) fn ends_unused(&self, name: &str, end: u64, unused_for: u64) {
        self.ends(name, Some(end));
        lock(&self.0).unused_for.insert(name.to_owned(), unused_for);
    }

    /// End of a session that ends when it is not used, and the seconds that each use gives it.
    pub(crate) fn unused_end(&self, name: &str) -> Option<(u64, u64)> {
        let table = lock(&self.0);
        Some((*table.ends.get(name)?, *table.unused_for.get(name)?))
    }

    /// True if the end of a session has come.
    pub(crate) fn is_over(&self, name: &str, now: u64) -> bool {
        lock(&self.0).ends.get(name).is_some_and(|end| *end <= now)
    }

    /// A session is not open any more.
    pub(crate) fn closed(&self, name: &str) {
        lock(&self.0).open.remove(name);
    }

    /// A session is not there any more.
    pub(crate) fn forget(&self, name: &str) {
        self.closed(name);
        self.ends(name, None);
    }

    /// Sessions that are open, the one that was used longest ago first.
    pub(crate) fn by_use(&self) -> Vec<String> {
        let table = lock(&self.0);
        let mut names: Vec<(Instant, &String)> = table.open.iter().map(|(name, usage)| (usage.at, name)).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// Sessions that are open and were not put to sleep.
    pub(crate) fn awake(&self) -> usize {
        lock(&self.0).open.values().filter(|usage| !usage.is_asleep).count()
    }

    /// Sessions whose end has come.
    fn over(&self, now: u64) -> Vec<String> {
        let table = lock(&self.0);
        table.in_order.iter().take_while(|(end, _)| *end <= now).map(|(_, name)| name.clone()).collect()
    }

    /// Takes the sessions that are to be put to sleep, once each. Sessions at work count as used.
    fn idle(&self, at_work: impl Fn(&str) -> bool) -> Vec<String> {
        let mut table = lock(&self.0);
        let mut idle = Vec::new();
        for (name, usage) in table.open.iter_mut().filter(|(_, usage)| !usage.is_asleep) {
            if at_work(name) {
                usage.at = Instant::now();
            } else if usage.at.elapsed() >= usage.idle_after {
                usage.is_asleep = true;
                idle.push(name.clone());
            }
        }
        idle
    }
}

/// Puts sessions to sleep that nobody uses, and ends those whose time is over. Does not return.
pub(crate) async fn keep(tenants: Vec<Arc<Tenant>>) {
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        for tenant in &tenants {
            remove_over(tenant).await;
            let runs: HashMap<String, Vec<String>> = tenant.hub.sessions().into_iter().collect();
            let idle = tenant.times.idle(|name| runs.get(name).is_some_and(|runs| !runs.is_empty()));
            for name in idle {
                let Ok(entry) = tenant.hub.session(&name) else {
                    tenant.times.closed(&name);
                    continue;
                };
                // One that takes its time holds up no other.
                tokio::spawn(async move {
                    if let Err(error) = entry.session.hibernate().await {
                        tracing::warn!(session = name, %error, "a session was not put to sleep");
                    }
                });
            }
        }
    }
}

/// Removes the sessions of a tenant whose time is over.
async fn remove_over(tenant: &Tenant) {
    for name in tenant.times.over(now()) {
        if !tenant.is_over_by_record(&name, now()) {
            continue;
        }
        match tenant.delete(&name).await {
            Err(problem) if problem.status() == http::StatusCode::CONFLICT => {
                tracing::debug!(session = name, "another process uses a session whose time is over");
                tenant.times.ends(&name, Some(now().saturating_add(BUSY_SECONDS)));
                continue;
            }
            Err(problem) if problem.status() != http::StatusCode::NOT_FOUND => {
                tracing::warn!(session = name, problem = problem.words(), "a session was not removed");
                continue;
            }
            _ => {}
        }
        tenant.times.forget(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_sleep_when_they_are_not_used_and_end_when_their_time_is_over() {
        let times = Times::default();
        times.opened("a", Duration::ZERO);
        times.opened("b", Duration::from_secs(3_600));
        times.opened("c", Duration::ZERO);
        assert_eq!(times.idle(|name| name == "c"), ["a"]);
        assert!(times.idle(|name| name == "c").is_empty(), "it sleeps already");
        times.used("a");
        assert_eq!(times.idle(|name| name == "c"), ["a"]);
        assert_eq!(times.by_use()[0], "b");
        times.ends("a", Some(10));
        times.ends("gone", Some(5));
        times.ends("b", Some(7));
        times.ends("b", None);
        assert_eq!(times.over(9), ["gone"]);
        assert_eq!(times.over(10), ["gone", "a"]);
        assert!(times.is_over("a", 10) && !times.is_over("a", 9) && !times.is_over("b", 100));
        times.forget("a");
        assert_eq!(times.over(10), ["gone"]);
        times.ends_unused("stray", 20, 5);
        assert_eq!(times.unused_end("stray"), Some((20, 5)));
        times.ends("stray", Some(30));
        assert_eq!(times.unused_end("stray"), None, "it ends then, whether it is used or not");
    }
}
