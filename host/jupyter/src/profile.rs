//! Descriptions of the languages for clients.

use cellar_engine::{GuestName, Language};
use serde_json::{Value, json};

use crate::message::PROTOCOL_VERSION;

/// Returns the name that clients show for the kernel of a guest.
pub fn display_name(guest: GuestName) -> &'static str {
    match guest {
        GuestName::Python => "Python, standard library only (Cellar)",
        GuestName::PythonData => "Python (Cellar)",
        GuestName::JavaScript => "JavaScript (Cellar)",
        _ => "Cellar",
    }
}

/// The name that notebooks have for the kernel of a guest.
pub fn spec_name(guest: GuestName) -> String {
    format!("cellar-{guest}")
}

/// Returns the guest of the kernel that a notebook names, if it is one of ours.
pub fn guest_named(kernel: &str) -> Option<GuestName> {
    let guests = [GuestName::Python, GuestName::PythonData, GuestName::JavaScript];
    guests.into_iter().find(|guest| spec_name(*guest) == kernel)
}

/// Name of the kernel that sees the folder of its notebook, and the name that people see.
pub const FOLDER_KERNEL: (&str, &str) = ("cellar-python-folder", "Python, with the notebook's folder (Cellar)");

/// The name of a language as notebooks have it. Tools such as papermill look for exactly these words.
pub(crate) fn language_name(language: Language) -> &'static str {
    match language {
        Language::Python => "python",
        Language::JavaScript => "javascript",
        Language::Probe => "probe",
    }
}

/// The answer to a `kernel_info_request`.
pub(crate) fn kernel_info(language: Language) -> Value {
    let language_info = match language {
        Language::Python => json!({
            "name": "python",
            // A test compares it with what the guest says of itself.
            "version": "3.13",
            "mimetype": "text/x-python",
            "file_extension": ".py",
            "pygments_lexer": "ipython3",
            "codemirror_mode": {"name": "ipython", "version": 3},
            "nbconvert_exporter": "python",
        }),
        Language::JavaScript => json!({
            "name": "javascript",
            "version": "ES2023",
            "mimetype": "text/javascript",
            "file_extension": ".js",
            "pygments_lexer": "javascript",
            "codemirror_mode": {"name": "javascript"},
            "nbconvert_exporter": "script",
        }),
        Language::Probe => json!({
            "name": "probe", "version": "1", "mimetype": "text/plain", "file_extension": ".probe",
            "pygments_lexer": "text", "codemirror_mode": "text", "nbconvert_exporter": "script",
        }),
    };
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "status": "ok",
        "protocol_version": PROTOCOL_VERSION,
        "implementation": "cellar",
        "implementation_version": version,
        "language_info": language_info,
        "banner": format!(
            "Cellar {version}: {} in a sandbox. What is not granted cannot be reached. `%cellar` says what this kernel does \
             beyond running cells.", language.title()
        ),
        "help_links": [],
        "debugger": false,
        "supported_features": [],
    })
}
