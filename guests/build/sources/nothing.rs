//! Empty: the package beside this file exists for its lock file alone.
