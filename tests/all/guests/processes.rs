//! Processes of cells when their run ends before them.

use std::{path::Path, time::Duration};

use cellar_engine::{Cell, Language, SessionConfig, config::FolderGrants};
use futures::StreamExt;

use super::snapshots::{host, on_runtime, text};
use crate::support::PATIENCE;

/// Starts a process that writes again and again, in place or besides, and goes on.
const IN_PLACE: &str = "subprocess.run([sys.executable, '-c', BEAT])";
const BESIDES: &str = "process = subprocess.Popen([sys.executable, '-c', BEAT])\nwhile True: pass";
const NESTED: &str = "subprocess.run([sys.executable, '-c', NEST, BEAT])";

const BEGIN: &str = "
import subprocess, sys
BEAT = '''
while True:
    with open('beat', 'a') as file:
        file.write('x')
'''
NEST = 'import subprocess, sys; subprocess.run([sys.executable, \"-c\", sys.argv[1]])'
";

/// Code that checks whether the process has stopped: the file grows no more.
const HAS_ENDED: &str = "
import os, time
def grows():
    before = os.stat('beat').st_size
    time.sleep(0.1)
    return os.stat('beat').st_size > before
tries = 0
while grows() and tries < 100:
    tries += 1
ended = not grows()
os.remove('beat')
ended
";

async fn until_there(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn processes_end_with_the_run_that_started_them() {
    on_runtime(async {
        let folder = tempfile::tempdir().expect("a folder");
        let config = SessionConfig {
            folders: FolderGrants { workspace: Some(folder.path().to_owned()), ..FolderGrants::default() },
            ..SessionConfig::default()
        };
        let session = host().session(config).expect("a session");
        text(&session, Language::Python, BEGIN).await;
        for code in [IN_PLACE, BESIDES, NESTED] {
            for is_dropped in [false, true] {
                let mut run = session.run(vec![Cell::new(Language::Python, code)]).expect("a run");
                let beat = folder.path().join("beat");
                let begun = tokio::time::timeout(PATIENCE, async {
                    tokio::select! {
                        () = until_there(&beat) => true,
                        () = async { while run.next().await.is_some() {} } => false,
                    }
                });
                assert_eq!(begun.await, Ok(true), "{code}");
                if is_dropped {
                    drop(run);
                } else {
                    run.cancel();
                    run.collect_result().await;
                }
                assert_eq!(text(&session, Language::Python, HAS_ENDED).await, "True", "{code}");
            }
        }
    });
}
