//! Kernelspecs: the files by which clients find kernels.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use cellar_core::files::{Durability, replace_with};
use cellar_engine::Language;
use serde_json::{Value, json};

use crate::{error::KernelError, profile};

/// Logo of a kernel, as SVG.
pub const LOGO: &str = include_str!("logo.svg");
/// Characters of the name of a kernel, at most.
const NAME_CHARACTERS_MAX: usize = 100;

/// Kernel to install.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The name that notebooks have for it.
    pub name: String,
    /// The name that people see.
    pub display_name: String,
    /// Language of its cells.
    pub language: Language,
    /// The command that starts it; `{connection_file}` stands for the connection file.
    pub command: Vec<String>,
    /// True if the command has secret values: then only this user can read the kernelspec and use the kernel.
    pub is_private: bool,
}

impl Spec {
    /// Returns the content of `kernel.json`.
    pub fn document(&self) -> Value {
        json!({
            "argv": self.command,
            "display_name": self.display_name,
            "language": profile::language_name(self.language),
            // The kernel is told by a message, which keeps its state, and not by a signal.
            "interrupt_mode": "message",
            "metadata": {"debugger": false},
        })
    }
}

/// Users that a kernel is installed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// For this user.
    User,
    /// For whoever uses the programs below this folder: `/usr`, a virtual environment.
    Prefix(PathBuf),
    /// For whoever uses the virtual environment that is active.
    Environment,
}

impl Place {
    /// The folder of the kernelspecs.
    fn folder(&self) -> Result<PathBuf, KernelError> {
        let usage = |message: &str, hint: &str| KernelError::Usage { message: message.into(), hint: hint.into() };
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let data = match self {
            Place::User => match variable("JUPYTER_DATA_DIR") {
                Some(data) => data,
                // As jupyter_core has it.
                None if cfg!(target_os = "macos") => {
                    let home =
                        dirs::home_dir().ok_or_else(|| usage("this user has no home folder", "say --prefix DIR"))?;
                    home.join("Library/Jupyter")
                }
                None => {
                    let data = dirs::data_dir();
                    data.ok_or_else(|| usage("this user has no data folder", "say --prefix DIR"))?.join("jupyter")
                }
            },
            Place::Prefix(prefix) => prefix.join("share/jupyter"),
            Place::Environment => {
                let prefix = variable("VIRTUAL_ENV").or_else(|| variable("CONDA_PREFIX"));
                let prefix = prefix.ok_or_else(|| {
                    usage(
                        "no virtual environment is active",
                        "activate one, or say --prefix DIR, what Python calls sys.prefix",
                    )
                })?;
                prefix.join("share/jupyter")
            }
        };
        Ok(data.join("kernels"))
    }
}

/// Writes a kernelspec, replacing an earlier one, and returns its folder.
///
/// # Errors
/// Its name is none that Jupyter takes, or the file cannot be written.
pub fn install(spec: &Spec, place: &Place) -> Result<PathBuf, KernelError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !spec.name.is_empty() && spec.name.len() <= NAME_CHARACTERS_MAX && spec.name.chars().all(is_plain);
    if !is_name || spec.name.starts_with('.') {
        return Err(KernelError::Usage {
            message: format!("`{}` cannot name a kernel", spec.name),
            hint: "use letters, digits, `.`, `-` and `_`, 100 at most, and no `.` at the beginning".to_owned(),
        });
    }
    let folder = place.folder()?.join(&spec.name);
    let document = spec.document();
    let failed = |source| KernelError::Save { path: folder.clone(), source };
    let (folder_mode, mode) = if spec.is_private { (0o700, 0o600) } else { (0o755, 0o644) };
    fs::create_dir_all(&folder).map_err(failed)?;
    // Set in any case: an earlier kernel of this name may have been for others.
    fs::set_permissions(&folder, fs::Permissions::from_mode(folder_mode)).map_err(failed)?;
    write(&folder.join("logo-svg.svg"), LOGO, mode).map_err(failed)?;
    write(&folder.join("kernel.json"), &format!("{document:#}\n"), mode).map_err(failed)?;
    Ok(folder)
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    replace_with(path, text.as_bytes(), mode, Durability::Cached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernelspec_is_what_clients_read() {
        let prefix = tempfile::tempdir().expect("a folder");
        let command = ["cellar", "kernel", "run", "{connection_file}"].map(str::to_owned).to_vec();
        let spec = Spec {
            name: "cellar-python".to_owned(),
            display_name: "Python".to_owned(),
            language: Language::Python,
            command,
            is_private: false,
        };
        let folder = install(&spec, &Place::Prefix(prefix.path().to_owned())).expect("installed");
        assert_eq!(folder, prefix.path().join("share/jupyter/kernels/cellar-python"));
        let text = fs::read_to_string(folder.join("kernel.json")).expect("text");
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((read["language"].as_str(), read["interrupt_mode"].as_str()), (Some("python"), Some("message")));
        for name in ["", "a b", "../x", ".x"] {
            let spec = Spec { name: name.to_owned(), ..spec.clone() };
            assert!(install(&spec, &Place::Prefix(prefix.path().to_owned())).is_err(), "{name}");
        }
    }

    #[test]
    fn a_kernel_with_values_is_for_one_user() {
        let prefix = tempfile::tempdir().expect("a folder");
        let mut spec = Spec {
            name: "mine".to_owned(),
            display_name: "Mine".to_owned(),
            language: Language::Python,
            command: vec!["cellar".to_owned()],
            is_private: false,
        };
        // Also in the place of one that was for all.
        for (is_private, modes) in [(false, (0o755, 0o644)), (true, (0o700, 0o600)), (false, (0o755, 0o644))] {
            spec.is_private = is_private;
            let folder = install(&spec, &Place::Prefix(prefix.path().to_owned())).expect("installed");
            let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
            assert_eq!((mode(&folder), mode(&folder.join("kernel.json"))), modes);
        }
    }
}
