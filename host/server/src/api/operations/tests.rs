//! The list of operations.

use super::*;

#[test]
fn paths_find_what_they_are_for() {
    let check = |path: &str, expected: &[&str]| {
        let names: Vec<&str> = path.split('/').collect();
        let found: Vec<&str> = at(&names).map(|(operation, _)| operation.method).collect();
        assert_eq!(found, expected, "{path}");
    };
    check("eval", &["POST"]);
    check("sessions", &["GET", "POST"]);
    check("sessions/a", &["GET", "PATCH", "DELETE"]);
    check("sessions/a/files", &["GET", "PUT", "DELETE"]);
    check("sessions/a/files/b/c", &["GET", "PUT", "DELETE"]);
    check("sessions/a/b", &[]);
    check("runs", &[]);
    check("runs/a/events/b", &[]);
    check("", &[]);
}
#[test]
fn handlers_take_the_names_of_their_paths() {
    for operation in OPERATIONS {
        let named = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(named.collect::<Vec<_>>(), operation.names(), "{} {}", operation.method, operation.path);
    }
    let names = |path: &[&str]| at(path).map(|(_, names)| names).next();
    let names_are = |named: &[&str], rest: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Some(Names { named: owned(named), rest: owned(rest) })
    };
    assert_eq!(names(&["sessions", "a", "variables", "x"]), names_are(&["a", "x"], &[]));
    assert_eq!(names(&["sessions", "a", "files", "b", ""]), names_are(&["a"], &["b", ""]));
    assert_eq!(names(&["sessions", "a", "files"]), names_are(&["a"], &[]));
}

#[test]
fn no_operation_stands_there_twice() {
    let mut all: Vec<_> = OPERATIONS.iter().map(|operation| (operation.path, operation.method)).collect();
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
}
