//! Live arrays and tables in the data guest: captured, forked, put to sleep, and drawn at random.

use cellar_engine::{GuestName, Host, Language, Session, SessionConfig, Snapshot, config::KernelOptions};

use super::snapshots::{host, on_runtime, text};

/// Tables and what refers to them, none of which a pickle would keep as it is: views, groups, iterators, generators.
const STATE: &str =
    "frame = pd.DataFrame({'n': range(1000), 'key': list('abcd') * 250, 'word': ['ø' * (i % 7) for i in range(1000)]})
frame['key'] = frame['key'].astype('category')
frame.index = pd.date_range('2024-01-01', periods=1000, freq='h', tz='Europe/Oslo')
view = frame['n'].to_numpy()[::2]
groups = frame.groupby('key', observed=True)
rows = frame.itertuples()
random = np.random.default_rng(5)
next(rows).n, int(random.integers(1000))";
/// Expression whose value shows that they were kept.
const QUESTION: &str = "int(view.sum()), groups.n.sum().to_dict(), next(rows).n, int(random.integers(1000)), \
                        str(frame.index[-1]), frame.word.str.len().sum()";

fn config() -> SessionConfig {
    SessionConfig {
        kernels: KernelOptions { guests: vec![GuestName::PythonData], ..KernelOptions::default() },
        ..SessionConfig::default()
    }
}

fn open(host: &Host) -> Session {
    host.session(config()).expect("a session")
}

async fn python(session: &Session, code: &str) -> String {
    text(session, Language::Python, code).await
}

#[test]
fn tables_are_there_after_sleep_and_in_another_process() {
    on_runtime(async {
        let here = host();
        let [session, other] = [open(&here), open(&here)];
        for session in [&session, &other] {
            assert_eq!(python(session, STATE).await, "(0, 670)");
        }
        let expected = python(&other, QUESTION).await;
        assert!(expected.starts_with("(249500,"), "{expected}");
        session.hibernate().await.expect("asleep");
        let bytes = session.snapshot().await.expect("a snapshot").to_bytes();
        assert_eq!(python(&session, QUESTION).await, expected);
        let there = host();
        let restored = there.restore(&Snapshot::from_bytes(&bytes).expect("a snapshot"), config());
        assert_eq!(python(&restored.expect("a session"), QUESTION).await, expected);
    });
}

#[test]
fn a_fork_has_tables_of_its_own() {
    on_runtime(async {
        let host = host();
        let session = open(&host);
        python(&session, STATE).await;
        let fork = session.fork(None).await.expect("a fork");
        python(&fork, "frame.iloc[0, 0] = 10**6\nframe['more'] = frame.n * 2").await;
        let sum = "int(frame.n.sum()), len(frame.columns)";
        assert_eq!(
            (python(&session, sum).await, python(&fork, sum).await),
            ("(499500, 3)".into(), "(1499500, 4)".into())
        );
    });
}

#[test]
fn numbers_drawn_at_random_differ_between_sessions_and_forks() {
    on_runtime(async {
        let host = host();
        let [session, other] = [open(&host), open(&host)];
        for draw in ["tuple(np.random.rand(2))", "tuple(np.random.default_rng().random(2))"] {
            assert_ne!(python(&session, draw).await, python(&other, draw).await, "{draw}");
            python(&session, "np.random.seed(1)").await;
            let fork = session.fork(None).await.expect("a fork");
            assert_ne!(python(&session, draw).await, python(&fork, draw).await, "{draw} in a fork");
        }
    });
}
