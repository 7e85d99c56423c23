//! The remote store of artifacts that a configuration names: an object store.

use std::{
    future::Future,
    io,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
};

use cellar_connectors::{Objects, ObjectsOptions};
use cellar_engine::artifacts::RemoteStore;
use tokio::runtime::{Builder, Runtime};

/// Object store for callers that block. Its requests run on threads of its own, so that it can be used wherever
/// blocking is allowed, with and without a runtime.
#[derive(Debug)]
pub struct ObjectRemote {
    objects: Objects,
    /// `Some` until it is dropped.
    runtime: Option<Runtime>,
}

impl ObjectRemote {
    /// Opens the store that these options describe, without a request to it.
    ///
    /// # Errors
    /// A description of the fault, without credentials.
    pub fn open(options: &ObjectsOptions) -> Result<Arc<ObjectRemote>, String> {
        let objects = options.open()?;
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).thread_name("artifacts-objects").enable_all().build();
        let runtime = runtime.map_err(|error| format!("its threads cannot be started: {error}"))?;
        Ok(Arc::new(ObjectRemote { objects, runtime: Some(runtime) }))
    }

    /// Blocks until a request to the store has ended.
    fn wait<T: Send + 'static>(&self, asked: impl Future<Output = io::Result<T>> + Send + 'static) -> io::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        let Some(runtime) = &self.runtime else { return Err(io::ErrorKind::NotConnected.into()) };
        runtime.spawn(async move {
            // Whoever asked waits.
            let _ = answer.send(asked.await);
        });
        answered.recv().unwrap_or_else(|_| Err(io::Error::other("what reaches it has panicked")))
    }
}

impl Drop for ObjectRemote {
    fn drop(&mut self) {
        // Waiting for its threads would block whoever drops this.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl RemoteStore for ObjectRemote {
    fn upload(&self, key: &str, file: &Path) -> io::Result<()> {
        let (objects, key, file) = (self.objects.clone(), key.to_owned(), PathBuf::from(file));
        self.wait(async move { objects.upload(&key, &file).await })
    }

    fn download(&self, key: &str, file: &Path, bytes_max: u64) -> io::Result<bool> {
        let (objects, key, file) = (self.objects.clone(), key.to_owned(), PathBuf::from(file));
        self.wait(async move { objects.download(&key, &file, bytes_max).await })
    }

    fn list(&self, prefix: &str) -> io::Result<Option<Vec<String>>> {
        let (objects, prefix) = (self.objects.clone(), prefix.to_owned());
        self.wait(async move { objects.list(&prefix).await.map(Some) })
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        let (objects, key) = (self.objects.clone(), key.to_owned());
        self.wait(async move { objects.remove(&key).await })
    }
}
