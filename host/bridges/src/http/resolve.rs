//! Resolution of host names: the host looks them up, checks each address, and connects only to checked addresses.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
};

use cellar_engine::bridges::{CallError, CallErrorKind};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::addresses::{Objection, objection};

/// The addresses of a name; port 0 stands for that of the URL.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolution of host names.
pub trait Lookup: Send + Sync {
    /// Looks up a name in lower case, without a dot at its end.
    fn lookup(&self, name: &str) -> LookupFuture;
}

/// Looks names up as other programs of this machine do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, name: &str) -> LookupFuture {
        let name = name.to_owned();
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    }
}

/// Resolver of the HTTP client, which connects only to the addresses that it returns.
pub(super) struct CheckedLookup {
    pub(super) lookup: Arc<dyn Lookup>,
    /// True if private networks are granted.
    pub(super) private: bool,
}

impl Resolve for CheckedLookup {
    fn resolve(&self, name: Name) -> Resolving {
        let (addresses, private) = (self.lookup.lookup(name.as_str()), self.private);
        Box::pin(async move {
            let failed = |why: String| {
                let message = format!("the host `{}` was not found: {why}", name.as_str());
                CallError::new(CallErrorKind::Failed, message)
            };
            let addresses = addresses.await.map_err(|error| failed(error.to_string()))?;
            if addresses.is_empty() {
                return Err(failed("it has no address".to_owned()).into());
            }
            // One bad address spoils them all: a name that has both is either a mistake or an attack.
            for address in &addresses {
                check(name.as_str(), address.ip(), private)?;
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Checks an address of `host`.
///
/// # Errors
/// `Denied`, with the objection. The message does not contain the address, which may be a secret of the host's network.
pub(super) fn check(host: &str, address: IpAddr, private: bool) -> Result<(), CallError> {
    let message = match objection(address) {
        None => return Ok(()),
        Some(Objection::Private(_)) if private => return Ok(()),
        Some(Objection::Private(kind)) => format!(
            "`{host}` has a {kind} address, which is not granted: set private = true for that host under [http] allow in \
             cellar.toml"
        ),
        Some(Objection::Never(kind)) => format!("`{host}` has an address that is never granted: {kind}"),
    };
    Err(CallError::new(CallErrorKind::Denied, message))
}
