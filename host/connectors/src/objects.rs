//! Object stores: S3 and compatible stores, Google Cloud Storage, Azure, and folders.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::{
    Error, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutPayload, RetryConfig, WriteMultipart,
    aws::AmazonS3Builder, azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, local::LocalFileSystem,
    path::Path, prefix::PrefixStore,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Url;

use crate::Secret;

/// Options that are credentials by their names, which no configuration has in plain text.
const CREDENTIALS: [&str; 5] = ["key", "secret", "token", "password", "sas"];
/// Maximum size in bytes of a single upload; larger files are sent in pieces of this size.
const PIECE_BYTES: usize = 8 << 20;
/// Maximum number of pieces that are sent concurrently.
const PIECES_AT_ONCE: usize = 4;
/// Maximum number of keys in a listing.
const LISTED_MAX: usize = 1_000_000;
/// Period during which a failed request is retried.
const RETRIED_FOR: Duration = Duration::from_secs(20);
const RETRIES_MAX: usize = 4;
/// Timeout of transferring a file, and of any other request.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);
const TIMEOUT: Duration = Duration::from_secs(60);

/// Address and options of an object store.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectsOptions {
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///folder`.
    pub url: String,
    /// Options, named as in the crate `object_store`: `endpoint`, `region`, `access_key_id`.
    pub options: BTreeMap<String, Secret>,
}

impl fmt::Debug for ObjectsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectsOptions").field("url", &self.url).finish_non_exhaustive()
    }
}

/// An object store below a prefix. Cheap to clone.
#[derive(Clone)]
pub struct Objects(Arc<dyn ObjectStore>);

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Objects").finish_non_exhaustive()
    }
}

impl ObjectsOptions {
    /// Checks the options as far as that is possible without a credential.
    ///
    /// # Errors
    /// The options are invalid: a message without credentials.
    pub fn check(&self) -> Result<(), String> {
        let (url, scheme) = self.parsed()?;
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err("the address has more than a bucket and a prefix: the rest is said with `options`".to_owned());
        }
        for (name, value) in &self.options {
            let is_credential = name.split('_').any(|word| CREDENTIALS.contains(&word)) && !name.ends_with("_id");
            if is_credential && matches!(value, Secret::Plain(_)) {
                return Err(format!(
                    "`{name}` is a credential: give `{name}_env`, a variable that has it, or `{name}_file`"
                ));
            }
            if !is_known(&scheme, name) {
                return Err(format!("`{name}` is no option of this kind of store"));
            }
        }
        Ok(())
    }

    /// The folder, where the address is that of one.
    pub fn folder(&self) -> Option<PathBuf> {
        Url::parse(&self.url).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()
    }

    /// The files that have its credentials.
    pub fn credential_files(&self) -> Vec<PathBuf> {
        self.options.values().filter_map(Secret::file).map(FilePath::to_owned).collect()
    }

    fn parsed(&self) -> Result<(Url, ObjectStoreScheme), String> {
        let expected = || "expected `s3://bucket/prefix`, or one of `gs://`, `az://`, `file://`".to_owned();
        let url = Url::parse(&self.url).map_err(|_| expected())?;
        let (scheme, _) = ObjectStoreScheme::parse(&url).map_err(|_| expected())?;
        let is_known = matches!(url.scheme(), "s3" | "gs" | "az" | "file");
        if is_known { Ok((url, scheme)) } else { Err(expected()) }
    }

    /// Opens the store. No request is sent before it is used. Without configured credentials, those of the conventional
    /// variables are used, such as `AWS_ACCESS_KEY_ID`. They are treated as credentials from then on.
    ///
    /// # Errors
    /// An option is invalid or missing: a message without credentials.
    pub fn open(&self) -> Result<Objects, String> {
        self.check()?;
        let (url, scheme) = self.parsed()?;
        let (_, prefix) = ObjectStoreScheme::parse(&url).map_err(|_| "the address names no store".to_owned())?;
        let mut options = usual(&scheme);
        for (name, value) in &self.options {
            options.insert(name.clone(), value.value()?);
        }
        for (name, value) in &options {
            if name.split('_').any(|word| CREDENTIALS.contains(&word)) {
                cellar_secrets::learn(value);
            }
        }
        // It fails when there is a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store =
            made(&scheme, &url, options).map_err(|error| format!("the store cannot be used: {}", what(&error)))?;
        Ok(Objects(if prefix.as_ref().is_empty() { store } else { Arc::new(PrefixStore::new(store, prefix)) }))
    }
}

/// Returns true if a kind of store has the option.
fn is_known(scheme: &ObjectStoreScheme, name: &str) -> bool {
    match scheme {
        ObjectStoreScheme::AmazonS3 => name.parse::<object_store::aws::AmazonS3ConfigKey>().is_ok(),
        ObjectStoreScheme::GoogleCloudStorage => name.parse::<object_store::gcp::GoogleConfigKey>().is_ok(),
        ObjectStoreScheme::MicrosoftAzure => name.parse::<object_store::azure::AzureConfigKey>().is_ok(),
        _ => false,
    }
}

/// Reads the options of this kind of store from its conventional environment variables.
fn usual(scheme: &ObjectStoreScheme) -> BTreeMap<String, String> {
    let prefix = match scheme {
        ObjectStoreScheme::AmazonS3 => "AWS_",
        ObjectStoreScheme::GoogleCloudStorage => "GOOGLE_",
        ObjectStoreScheme::MicrosoftAzure => "AZURE_",
        _ => return BTreeMap::new(),
    };
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let named =
        variables.filter(|(name, _)| name.starts_with(prefix)).map(|(name, value)| (name.to_ascii_lowercase(), value));
    named.filter(|(name, _)| is_known(scheme, name)).collect()
}

fn made(
    scheme: &ObjectStoreScheme,
    url: &Url,
    mut options: BTreeMap<String, String>,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    for (name, usual) in [("timeout", "300s"), ("read_timeout", "20s"), ("connect_timeout", "5s")] {
        options.entry(name.to_owned()).or_insert_with(|| usual.to_owned());
    }
    let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRIED_FOR, ..RetryConfig::default() };
    Ok(match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let mut builder = AmazonS3Builder::new().with_url(url.as_str()).with_retry(retry);
            for (name, value) in options {
                builder = builder.with_config(name.parse()?, value);
            }
            Arc::new(builder.build()?)
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let mut builder = GoogleCloudStorageBuilder::new().with_url(url.as_str()).with_retry(retry);
            for (name, value) in options {
                builder = builder.with_config(name.parse()?, value);
            }
            Arc::new(builder.build()?)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let mut builder = MicrosoftAzureBuilder::new().with_url(url.as_str()).with_retry(retry);
            for (name, value) in options {
                builder = builder.with_config(name.parse()?, value);
            }
            Arc::new(builder.build()?)
        }
        _ => Arc::new(LocalFileSystem::new()),
    })
}

impl Objects {
    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.0
    }

    /// Keeps the bytes of a file under a key.
    ///
    /// # Errors
    /// The file cannot be read, or the store does not take it; the message tells no credential.
    pub async fn upload(&self, key: &str, file: &FilePath) -> io::Result<()> {
        within(TRANSFER_TIMEOUT, self.send(key, file)).await
    }

    async fn send(&self, key: &str, file: &FilePath) -> io::Result<()> {
        let mut from = tokio::fs::File::open(file).await?;
        let size = from.metadata().await?.len();
        let path = Path::from(key);
        if size <= PIECE_BYTES as u64 {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).await?;
            self.0.put(&path, PutPayload::from(bytes)).await.map_err(fault)?;
            return Ok(());
        }
        let upload = self.0.put_multipart(&path).await.map_err(fault)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PIECE_BYTES);
        let sent = async {
            loop {
                let mut piece = Vec::with_capacity(1 << 20);
                if (&mut from).take(1 << 20).read_to_end(&mut piece).await? == 0 {
                    return io::Result::Ok(());
                }
                upload.wait_for_capacity(PIECES_AT_ONCE).await.map_err(fault)?;
                upload.put(Bytes::from(piece));
            }
        };
        match sent.await {
            Ok(()) => upload.finish().await.map(drop).map_err(fault),
            Err(error) => {
                // What was sent of it is no use, and costs.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    /// Writes the object under a key into a file. Returns false if there is no such object.
    ///
    /// # Errors
    /// The object has more than `bytes_max` bytes, or the store fails; the message contains no credential.
    pub async fn download(&self, key: &str, file: &FilePath, bytes_max: u64) -> io::Result<bool> {
        within(TRANSFER_TIMEOUT, self.receive(key, file, bytes_max)).await
    }

    async fn receive(&self, key: &str, file: &FilePath, bytes_max: u64) -> io::Result<bool> {
        let found = match self.0.get(&Path::from(key)).await {
            Err(Error::NotFound { .. }) => return Ok(false),
            found => found.map_err(fault)?,
        };
        let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, "it has more bytes than it can have");
        if found.meta.size > bytes_max {
            return Err(too_large());
        }
        let mut to = tokio::fs::File::options().write(true).truncate(true).open(file).await?;
        let mut left = bytes_max;
        let mut pieces = found.into_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(fault)?;
            left = left.checked_sub(piece.len() as u64).ok_or_else(too_large)?;
            to.write_all(&piece).await?;
        }
        to.flush().await?;
        Ok(true)
    }

    /// The keys that begin with this, which ends with a slash.
    ///
    /// # Errors
    /// There are too many, or the store does not tell; the message tells no credential.
    pub async fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let listed = self.0.list(Some(&Path::from(prefix))).take(LISTED_MAX.saturating_add(1));
        let keys = listed.map_ok(|found| found.location.to_string()).try_collect();
        let keys: Vec<String> = within(TIMEOUT, async { keys.await.map_err(fault) }).await?;
        if keys.len() > LISTED_MAX {
            return Err(io::Error::other(format!("there are more than {LISTED_MAX} keys")));
        }
        Ok(keys)
    }

    /// Removes the object under a key, if there is one.
    ///
    /// # Errors
    /// The store fails; the message contains no credential.
    pub async fn remove(&self, key: &str) -> io::Result<()> {
        let path = Path::from(key);
        let removed = within(TIMEOUT, async { Ok(self.0.delete(&path).await) }).await?;
        match removed {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(fault(error)),
        }
    }
}

async fn within<T>(most: Duration, asked: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time");
    tokio::time::timeout(most, asked).await.unwrap_or_else(|_| Err(late()))
}

fn fault(error: Error) -> io::Error {
    io::Error::other(what(&error))
}

/// Describes an error. The messages of the store and the client are left out, because they contain addresses, and some of
/// them keys.
pub(crate) fn what(error: &Error) -> String {
    match error {
        Error::NotFound { .. } => "there is no such bucket or object".to_owned(),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => "it refuses the credentials".to_owned(),
        Error::UnknownConfigurationKey { key, .. } => format!("`{key}` is no option of it"),
        Error::NotSupported { .. } | Error::NotImplemented { .. } => "it does not do that".to_owned(),
        other => {
            let text = other.to_string();
            let status = text.split("status code: ").nth(1).and_then(|rest| rest.get(..3));
            match status.filter(|status| status.bytes().all(|byte| byte.is_ascii_digit())) {
                Some(status) => format!("it answers with {status}"),
                None if text.contains("timed out") => "it does not answer in time".to_owned(),
                None if text.contains("redential") => "there are no credentials for it".to_owned(),
                None => "it cannot be reached".to_owned(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str, options: &[(&str, Secret)]) -> ObjectsOptions {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        ObjectsOptions { url: url.to_owned(), options }
    }

    #[test]
    fn an_address_names_a_store_and_holds_no_credential() {
        let plain = |text: &str| Secret::Plain(text.to_owned());
        for url in ["s3://bucket", "s3://bucket/a/b", "gs://bucket/x", "az://container/x", "file:///srv/lake"] {
            options(url, &[]).check().expect(url);
        }
        for url in ["", "bucket", "https://host/x", "memory:///", "s3://key:secret@bucket/x", "s3://bucket?x=1"] {
            options(url, &[]).check().expect_err(url);
        }
        let region = [("region", plain("eu-central-1")), ("access_key_id", plain("id"))];
        options("s3://bucket", &region).check().expect("no credential");
        let told = options("s3://bucket", &[("secret_access_key", plain("s3cr3t"))]).check().expect_err("a credential");
        assert!(told.contains("secret_access_key_env") && !told.contains("s3cr3t"), "{told}");
        let unknown = options("s3://bucket", &[("colour", plain("red"))]).check().expect_err("no option");
        assert_eq!(unknown, "`colour` is no option of this kind of store");
    }

    #[tokio::test]
    async fn a_folder_keeps_finds_lists_and_forgets() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let inner = folder.path().join("lake");
        std::fs::create_dir(&inner).expect("made");
        let objects = options(&format!("file://{}", inner.display()), &[]).open().expect("opened");
        let file = folder.path().join("file");
        // Larger than what is sent at once.
        let bytes: Vec<u8> = (0..PIECE_BYTES + 100).map(|place| u8::try_from(place % 251).expect("a byte")).collect();
        std::fs::write(&file, &bytes).expect("written");
        objects.upload("a/b", &file).await.expect("kept");
        assert_eq!(objects.list("a/").await.expect("listed"), ["a/b"]);
        std::fs::write(&file, "what was there before").expect("written");
        assert!(objects.download("a/b", &file, bytes.len() as u64).await.expect("found"));
        assert!(std::fs::read(&file).expect("read") == bytes);
        let error = objects.download("a/b", &file, 100).await.expect_err("too large");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        objects.remove("a/b").await.expect("forgotten");
        objects.remove("a/b").await.expect("forgotten already");
        assert!(!objects.download("a/b", &file, 100).await.expect("nothing"));
    }
}
