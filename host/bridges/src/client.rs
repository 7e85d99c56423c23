//! The HTTP client of everything that leaves this crate: encrypted by rustls, with the certificates that the system trusts.

use reqwest::{Certificate, ClientBuilder};

/// Creates a builder of HTTP clients that identify themselves as Cellar, and trust these certificates (PEM) in addition to
/// the system's.
///
/// # Errors
/// The certificates are invalid: the reason in words.
pub fn builder(certificates: &[u8]) -> Result<ClientBuilder, String> {
    // It fails when there is a provider already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = ClientBuilder::new().user_agent("cellar");
    if certificates.is_empty() {
        return Ok(builder);
    }
    let certificates =
        Certificate::from_pem_bundle(certificates).map_err(|error| cellar_core::text::describe(&error))?;
    Ok(builder.tls_certs_merge(certificates))
}
