//! Tables of the data guest on their way out: displayed, kept as files, and read back a page at a time.

use cellar_engine::{
    Cell, GuestName, Language, RunResult, Session, SessionConfig,
    artifacts::{ArtifactQuota, ArtifactStore},
    config::{KernelOptions, OutputOptions},
    results::{Block, Output, OutputTypes, View},
};

use super::snapshots::{host, on_runtime};

/// A row for each thing that gets lost on such ways: no value, no number, a clock that is put back, marks of CSV.
const FRAME: &str = "frame = pd.DataFrame({
    'whole': pd.array([1, None, 2**62], dtype='Int64'),
    'real': [0.5, float('nan'), float('inf')],
    'text': ['a,\"b\"', None, 'ø☃'],
    'when': pd.to_datetime(['2024-10-27T00:30Z', None, '2024-10-27T01:30Z'], utc=True).tz_convert('Europe/Oslo'),
    'group': pd.Categorical(['x', 'y', None]),
    'flag': [True, None, False],
}, index=pd.Index(['k', 'l', 'm'], name='key'))
frame";
const ROWS: &str = "key,whole,real,text,when,group,flag
k,1,0.5,\"a,\"\"b\"\"\",2024-10-27T02:30:00+02:00,x,true
l,,NaN,,,y,
m,4611686018427387904,inf,ø☃,2024-10-27T02:30:00+01:00,,false
";

async fn run(session: &Session, code: &str) -> RunResult {
    session.run(vec![Cell::new(Language::Python, code)]).expect("a run").collect_result().await
}

/// The first output of a cell, which is a table, and where its file is.
fn table(result: &RunResult) -> (Output, String) {
    let outputs = result.cells[0].outputs(&OutputTypes::default());
    let [output @ Output::DataFrame(frame), ..] = outputs.as_slice() else { panic!("{outputs:?}\n{}", result.text()) };
    (output.clone(), frame.path.clone().unwrap_or_else(|| panic!("not kept: {:?}", frame.notice)))
}

#[test]
fn a_table_is_a_file_that_cells_and_models_read() {
    on_runtime(async {
        let folder = tempfile::tempdir().expect("a folder");
        let store = ArtifactStore::open(folder.path().join("store"), ArtifactQuota::default()).expect("a store");
        let config = SessionConfig {
            kernels: KernelOptions { guests: vec![GuestName::PythonData], ..KernelOptions::default() },
            outputs: OutputOptions { artifacts: Some(store.clone()), ..OutputOptions::default() },
            ..SessionConfig::default()
        };
        let session = host().session(config).expect("a session");
        let (output, path) = table(&run(&session, FRAME).await);
        assert_eq!(
            run(&session, &format!("print(tool.read(path='{path}'), end='')")).await.text().trim_end(),
            ROWS.trim_end()
        );
        let [_, second, third] = ROWS.lines().skip(1).collect::<Vec<_>>()[..] else { panic!("three rows") };
        let header = ROWS.lines().next().expect("a header");
        let part = run(&session, &format!("print(tool.read(path='{path}', offset=2, limit=1))")).await.text();
        assert_eq!(part.trim_end(), format!("{header}\n{second}"));
        let page = output.to_llm(&View { from: 2, artifacts: session.artifacts().ok(), ..View::default() });
        assert_eq!((&page.blocks[1], page.next), (&Block::Text(format!("{header}\n{third}\n")), None));
        let Block::Text(head) = &page.blocks[0] else { panic!("{page:?}") };
        assert!(head.ends_with("key str, whole Int64, real float64, text str, when datetime64[us, Europe/Oslo], group category, flag object"), "{head}");
        // The same table is the same file, however it is looked at.
        let value = session.value(Language::Python, "frame").await.expect("a look").expect("a value");
        let Output::DataFrame(looked_at) = OutputTypes::default().output(&value) else { panic!("{value:?}") };
        assert_eq!(looked_at.path.as_deref(), Some(path.as_str()));
        let kept = store.list().expect("a list");
        assert_eq!(
            kept.iter().map(|artifact| artifact.mime_type.as_str()).collect::<Vec<_>>(),
            ["application/vnd.apache.parquet"]
        );
    });
}

#[test]
fn a_table_that_is_too_large_is_shown_and_not_kept() {
    on_runtime(async {
        let mut config = SessionConfig {
            kernels: KernelOptions { guests: vec![GuestName::PythonData], ..KernelOptions::default() },
            ..SessionConfig::default()
        };
        let session = host().session(config.clone()).expect("a session");
        let result = run(&session, "pd.DataFrame({'n': np.arange(9_000_000)})").await;
        let [Output::DataFrame(large)] = &result.cells[0].outputs(&OutputTypes::default())[..] else {
            panic!("{}", result.text())
        };
        assert_eq!((large.rows, &large.path), (9_000_000, &None));
        assert_eq!(large.notice.as_deref(), Some("not kept as a file: its columns are larger than 63 MiB"));
        let wide = run(&session, "pd.DataFrame(np.zeros((1, 2001), dtype='int8'))").await;
        let [Output::DataFrame(wide)] = &wide.cells[0].outputs(&OutputTypes::default())[..] else { panic!("a table") };
        assert_eq!((wide.columns, wide.columns_left_out, wide.schema.fields.len()), (2001, 1951, 500));
        let notice = "not kept as a file: it has 2001 columns, at most 2000 are kept";
        assert_eq!(wide.notice.as_deref(), Some(notice));
        // The most that is kept, in one crossing.
        let (_, path) = table(&run(&session, "pd.DataFrame({'n': np.arange(8_000_000)})").await);
        let rows = run(&session, &format!("print(tool.read(path='{path}', offset=7_999_999, limit=9))")).await.text();
        assert_eq!(rows.trim_end(), "n\n7999998\n7999999");
        config.limits.display_bytes = 64 << 10;
        let small = host().session(config).expect("a session");
        let text = run(&small, "pd.DataFrame({'n': np.arange(40_000)})").await.text();
        assert!(text.contains("a table of 320") && text.contains("at most 262144 are allowed"), "{text}");
    });
}
