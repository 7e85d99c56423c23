//! Declarations of operations: what a request needs before anything is done for it.

use http::Method;

use crate::access::Scope;

/// Declaration of an operation of an interface.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) method: &'static str,
    /// Path behind that of the interface, in which `{name}` is any one name.
    pub(crate) path: &'static str,
    /// Scope that a token needs.
    pub(crate) scope: Scope,
}

impl Declared {
    /// An operation that looks at what is there, and runs no code.
    pub(crate) const fn look(path: &'static str) -> Declared {
        Declared { method: "GET", path, scope: Scope::Read }
    }

    /// An operation that changes something, or has code run.
    pub(crate) const fn act(method: &'static str, path: &'static str) -> Declared {
        Declared { method, path, scope: Scope::Run }
    }

    fn is_for(&self, method: &Method, names: &[&str]) -> bool {
        let mut names = names.iter();
        let fits = |part: &str| names.next().is_some_and(|name| part.starts_with('{') || part == *name);
        self.method == method.as_str() && self.path.split('/').all(fits) && names.next().is_none()
    }

    /// Returns the operation that a request is for: `names` are those that the operation is carried out by, without
    /// their `%XX` where the interface decodes them.
    pub(crate) fn find(all: &'static [Declared], method: &Method, names: &[&str]) -> Option<&'static Declared> {
        all.iter().find(|declared| declared.is_for(method, names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_found_by_method_and_names_and_by_nothing_else() {
        static ALL: [Declared; 2] = [Declared::look("a/{id}"), Declared::act("POST", "a/{id}/b")];
        let scope = |method: Method, names: &[&str]| Declared::find(&ALL, &method, names).map(|found| found.scope);
        assert_eq!(scope(Method::GET, &["a", "x"]), Some(Scope::Read));
        assert_eq!(scope(Method::POST, &["a", "x", "b"]), Some(Scope::Run));
        for (method, names) in
            [(Method::GET, &["a"][..]), (Method::GET, &["a", "x", "b"]), (Method::POST, &["a", "x", "b", ""])]
        {
            assert_eq!(scope(method, names), None, "{names:?}");
        }
    }
}
