//! Open connections, by whom they are for: which one gives way where there is no room for another.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use cellar_core::sync::lock;
use tokio::sync::{Notify, watch};

use super::shares::strangers;

/// Open connections, by the time at which each began to be idle, or to have a request under way.
#[derive(Debug)]
pub(super) struct Connections {
    /// Connections of those who have shown no token, beyond which one of theirs gives way.
    strangers: usize,
    /// Connections of one tenant, beyond which one of its own gives way.
    share: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    /// Tenant that it was used for last; none before a token was shown.
    owner: Option<Arc<str>>,
    is_idle: bool,
    ended: Arc<Notify>,
}

impl Table {
    /// Changes an entry, which becomes the latest.
    fn change(&mut self, place: &mut u64, change: impl FnOnce(&mut Open)) {
        if let Some(mut open) = self.open.remove(place) {
            change(&mut open);
            *place = self.next;
            self.next = self.next.saturating_add(1);
            self.open.insert(*place, open);
        }
    }
}

impl Connections {
    /// At most `most` connections, for so many tenants.
    pub(super) fn new(most: usize, tenants: usize) -> Arc<Connections> {
        let strangers = strangers(most);
        let share = most.saturating_sub(strangers).checked_div(tenants.max(1)).unwrap_or_default().max(1);
        Arc::new(Connections { strangers, share, table: Mutex::default() })
    }

    /// Adds a connection, which nobody has shown a token on.
    pub(super) fn open(self: &Arc<Connections>) -> Connection {
        let mut table = lock(&self.table);
        let (place, ended) = (table.next, Arc::new(Notify::new()));
        table.next = table.next.saturating_add(1);
        table.open.insert(place, Open { owner: None, is_idle: true, ended: ended.clone() });
        let under_way = watch::Sender::new(0);
        Connection(Arc::new(Inner { connections: self.clone(), place: Mutex::new(place), under_way, ended }))
    }

    /// Closes a connection, so that there is room for another: of whoever is furthest beyond their share, an idle one
    /// before one with a request under way. Where nobody is beyond it, the one that has been idle for longest. Returns
    /// false if none can be.
    pub(super) fn make_room(&self) -> bool {
        // THREAT: T11
        let mut table = lock(&self.table);
        let mut counts: HashMap<Option<Arc<str>>, usize> = HashMap::new();
        for open in table.open.values() {
            let count = counts.entry(open.owner.clone()).or_default();
            *count = count.saturating_add(1);
        }
        let share = |owner: &Option<Arc<str>>| if owner.is_some() { self.share } else { self.strangers };
        let beyond = counts.into_iter().map(|(owner, count)| (count.saturating_sub(share(&owner)), owner));
        let furthest = beyond.filter(|(excess, _)| *excess > 0).max_by_key(|(excess, _)| *excess);
        let chosen = match &furthest {
            Some((_, owner)) => {
                let mut theirs = table.open.iter().filter(|(_, open)| open.owner == *owner);
                let first = theirs.clone().next();
                theirs.find(|(_, open)| open.is_idle).or(first)
            }
            None => table.open.iter().find(|(_, open)| open.is_idle),
        };
        let chosen = chosen.map(|(place, _)| *place);
        let ended = chosen.and_then(|place| table.open.remove(&place)).map(|open| open.ended.notify_one());
        ended.is_some()
    }
}

/// An open connection. A cheap handle.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connections: Arc<Connections>,
    /// Its key in the table.
    place: Mutex<u64>,
    under_way: watch::Sender<usize>,
    /// Notified when it is to close.
    ended: Arc<Notify>,
}

/// Request under way, until this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Inner>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.count(|count| count.saturating_sub(1));
    }
}

impl Inner {
    fn count(&self, change: impl FnOnce(usize) -> usize) {
        let mut place = lock(&self.place);
        let before = *self.under_way.borrow();
        let now = change(before);
        self.under_way.send_replace(now);
        if (before == 0) != (now == 0) {
            lock(&self.connections.table).change(&mut place, |open| open.is_idle = now == 0);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let place = *lock(&self.place);
        lock(&self.connections.table).open.remove(&place);
    }
}

impl Connection {
    /// Begins a request.
    pub(super) fn begin(&self) -> UnderWay {
        self.0.count(|count| count.saturating_add(1));
        UnderWay(self.0.clone())
    }

    /// Notes the tenant whose token was shown on it.
    pub(crate) fn belongs_to(&self, tenant: &str) {
        let place = *lock(&self.0.place);
        if let Some(open) = lock(&self.0.connections.table).open.get_mut(&place)
            && open.owner.as_deref() != Some(tenant)
        {
            open.owner = Some(tenant.into());
        }
    }

    /// Closes it.
    pub(crate) fn end(&self) {
        self.0.ended.notify_one();
    }

    /// Resolves when it is to close.
    pub(super) async fn ended(&self) {
        self.0.ended.notified().await;
    }

    /// Resolves when no request was under way for this time.
    pub(super) async fn idle_for(&self, time: Duration) {
        let mut count = self.0.under_way.subscribe();
        loop {
            let _ = count.wait_for(|count| *count == 0).await;
            if tokio::time::timeout(time, count.wait_for(|count| *count > 0)).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn is_ended(connection: &Connection) -> bool {
        std::pin::pin!(connection.ended()).now_or_never().is_some()
    }

    #[test]
    fn who_has_been_silent_for_longest_goes_first_and_who_asks_stays() {
        let all = Connections::new(64, 1);
        let [first, second, third] = [0; 3].map(|_| all.open());
        let asking = first.begin();
        drop(third);
        assert!(all.make_room());
        assert_eq!((is_ended(&first), is_ended(&second)), (false, true));
        assert!(!all.make_room() && !is_ended(&first), "it asks");
        drop(asking);
        assert!(all.make_room() && is_ended(&first));
    }

    #[test]
    fn whoever_is_beyond_their_share_gives_way_even_where_they_ask_and_nobody_else() {
        // Two belong to strangers, and seven to each tenant.
        let all = Connections::new(16, 2);
        let mut asking = Vec::new();
        let mut of = |tenant: Option<&str>| {
            let connection = all.open();
            tenant.into_iter().for_each(|tenant| connection.belongs_to(tenant));
            asking.push(connection.begin());
            connection
        };
        let blue = of(Some("blue"));
        let reds: Vec<Connection> = (0..9).map(|_| of(Some("red"))).collect();
        let stranger = of(None);
        let idle = all.open();
        idle.belongs_to("blue");
        assert!(all.make_room() && is_ended(&reds[0]) && !is_ended(&reds[1]), "red has two too many");
        assert!(all.make_room() && is_ended(&reds[1]) && !is_ended(&idle));
        assert!(all.make_room() && is_ended(&idle), "nobody is beyond their share: silent ones go");
        assert!(!all.make_room(), "and nobody else");
        let more = [of(None), of(None)];
        assert!(all.make_room() && is_ended(&stranger) && !is_ended(&more[0]) && !is_ended(&blue));
    }
}
