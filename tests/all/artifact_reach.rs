//! Artifacts that the cells of a session can read, on the probe guest.

use cellar_engine::{
    Error, Host, Session, SessionConfig, Snapshot,
    artifacts::{ArtifactQuota, ArtifactStore, Description},
    config::OutputOptions,
    store::{SessionStore, StoredSession},
};
use tempfile::TempDir;

use crate::sessions::{host, on_one_thread, open, result, text};

/// Some sessions of one store.
struct Bed {
    folder: TempDir,
    store: ArtifactStore,
    host: Host,
}

impl Bed {
    fn new() -> Bed {
        let folder = TempDir::new().expect("a folder");
        let store = ArtifactStore::open(folder.path().join("artifacts"), ArtifactQuota::default()).expect("a store");
        Bed { folder, store, host: host() }
    }

    fn config(&self, name: &str) -> SessionConfig {
        SessionConfig {
            id: Some(name.to_owned()),
            outputs: OutputOptions { artifacts: Some(self.store.clone()), ..OutputOptions::default() },
            ..SessionConfig::default()
        }
    }

    fn session(&self, name: &str) -> Session {
        open(&self.host, self.config(name))
    }

    /// A stored session, once the kernels of whoever had it before are gone.
    async fn claimed(&self, name: &str) -> StoredSession {
        let sessions = SessionStore::open(self.folder.path().join("sessions")).expect("a store of sessions");
        loop {
            match sessions.claim(name) {
                Ok(home) => return home,
                Err(Error::SessionBusy(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn stored(&self, name: &str) -> Session {
        self.host.open_stored(self.claimed(name).await, self.config(name)).expect("it opens")
    }
}

/// Has a cell print so many lines, which are too many for a result. Returns where they are kept.
async fn flood(session: &Session, lines: u32) -> String {
    result(session, &format!("flood {lines}")).await.kept_text().expect("kept").id.clone()
}

fn read(uri: &str) -> String {
    format!("call read {{\"path\":\"{uri}\",\"limit\":1}}")
}

/// Returns the first line of an artifact as a cell reads it, or the reason why the cell may not. Checks that the session still works.
async fn asked(session: &Session, id: &str) -> String {
    let result = result(session, &read(&format!("artifact://{id}"))).await;
    let answer = match &result.cells[0].failure {
        Some(failure) => failure.message.clone(),
        None => result.text(),
    };
    assert_eq!(text(session, "emit alive").await, "alive");
    answer
}

fn absent(id: &str) -> String {
    format!("`artifact://{id}` cannot be read: no artifact `{id}` is stored; it may have made room for later ones")
}

async fn reaches(session: &Session, id: &str) -> bool {
    let answer = asked(session, id).await;
    assert!(answer.contains("line 1") || answer.contains(&absent(id)), "{answer}");
    answer.contains("line 1")
}

#[test]
fn a_cell_is_told_of_what_others_made_as_of_what_is_not_there() {
    on_one_thread(async {
        let bed = Bed::new();
        let (victim, attacker, namesake) = (bed.session("victim"), bed.session("attacker"), bed.session("victim"));
        let id = flood(&victim, 20_000).await;
        assert!(reaches(&victim, &id).await);
        for other in [&attacker, &namesake] {
            assert!(!reaches(other, &id).await);
            assert!(!reaches(other, &"0".repeat(32)).await);
        }
        for digits in [6, 8, 31] {
            let start = &id[..digits];
            for session in [&victim, &attacker] {
                let answer = asked(session, start).await;
                let named = format!("`artifact://{start}` is no artifact: an id has 32 hexadecimal digits");
                assert!(answer.ends_with(&named), "{answer}");
            }
        }
        // Whoever makes the same is told another id, and nothing of the first.
        let same = flood(&attacker, 20_000).await;
        assert_ne!(same, id);
        assert!(reaches(&attacker, &same).await && !reaches(&victim, &same).await);
    });
}

#[test]
fn a_fork_reaches_what_there_was_and_not_what_its_parent_makes_later() {
    on_one_thread(async {
        let bed = Bed::new();
        let parent = bed.session("parent");
        let before = flood(&parent, 20_000).await;
        let fork = parent.fork(None).await.expect("a fork");
        let snapshot = parent.snapshot().await.expect("a snapshot");
        let after = flood(&parent, 30_000).await;
        let restored = bed.host.restore(&snapshot, bed.config("restored")).expect("it is restored");
        for other in [&fork, &restored] {
            assert!(reaches(other, &before).await && !reaches(other, &after).await);
        }
        let own = flood(&fork, 40_000).await;
        assert!(reaches(&fork, &own).await && !reaches(&parent, &own).await && !reaches(&restored, &own).await);
        parent.rewind(&snapshot).expect("it goes back");
        assert!(reaches(&parent, &after).await, "it is still the session that made it");
    });
}

#[test]
fn a_stored_session_reaches_what_it_made_and_a_state_that_claims_its_name_does_not() {
    on_one_thread(async {
        let bed = Bed::new();
        let session = bed.stored("victim").await;
        let id = flood(&session, 20_000).await;
        session.save().await.expect("stored");
        drop(session);
        let session = bed.stored("victim").await;
        assert!(reaches(&session, &id).await);
        drop(session);
        // A stranger's snapshot says that it is of the victim.
        let stranger = bed.session("attacker");
        let own = flood(&stranger, 30_000).await;
        let snapshot = stranger.snapshot().await.expect("a snapshot").named("victim");
        let snapshot = Snapshot::from_bytes(&snapshot.to_bytes()).expect("a snapshot");
        bed.claimed("victim").await.save(&snapshot).expect("stored");
        let session = bed.stored("victim").await;
        assert!(!reaches(&session, &id).await);
        assert!(reaches(&session, &own).await, "what the state itself brings is reached");
    });
}

#[test]
fn what_a_caller_hands_a_session_is_reached_by_it_alone() {
    on_one_thread(async {
        let bed = Bed::new();
        let description = Description { mime_type: "text/plain", title: None };
        let handed = bed.store.put("work", b"line 1\nline 2\n", description).expect("stored").id;
        assert!(reaches(&bed.session("work"), &handed).await);
        assert!(!reaches(&bed.session("play"), &handed).await);
    });
}

/// Sessions without a store share a folder of temporary files, and nothing in it.
#[test]
fn temporary_artifacts_are_a_sessions_own() {
    on_one_thread(async {
        let host = host();
        let config = || SessionConfig { id: Some("same name".to_owned()), ..SessionConfig::default() };
        let (victim, attacker) = (open(&host, config()), open(&host, config()));
        let id = flood(&victim, 20_000).await;
        assert!(reaches(&victim, &id).await && !reaches(&attacker, &id).await);
        let fork = victim.fork(None).await.expect("a fork");
        assert!(reaches(&fork, &id).await);
    });
}
