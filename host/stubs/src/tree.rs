//! Functions below the names that cells reach them by: `tool`, `runtime` with packs, connectors.

use crate::{Function, Group};

/// Names that one function lies below.
const SEGMENTS_MAX: usize = 8;

/// A name with what lies below it.
#[derive(Debug, Default)]
pub(crate) struct Node<'a> {
    /// The function that is called by the name itself.
    pub(crate) call: Option<&'a Function>,
    pub(crate) functions: Vec<(&'a str, &'a Function)>,
    pub(crate) inner: Vec<(&'a str, Node<'a>)>,
}

/// Returns the functions below the names that are global in cells.
pub(crate) fn of<'a>(functions: &[&'a Function]) -> Vec<(&'a str, Node<'a>)> {
    let mut root = Node::default();
    for function in functions {
        let mut path = match &function.group {
            Group::Tool => vec!["tool", &function.name],
            Group::Connector(of) => vec![of.as_str(), &function.name],
            Group::Pack(of) => {
                ["runtime", of.as_str()].into_iter().chain(function.name.splitn(SEGMENTS_MAX, '.')).collect()
            }
        };
        let last = path.pop().unwrap_or_default();
        path.into_iter().fold(&mut root, Node::below).functions.push((last, function));
    }
    root.settle();
    root.inner
}

impl<'a> Node<'a> {
    fn below(&mut self, name: &'a str) -> &mut Node<'a> {
        let at = self.inner.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            self.inner.push((name, Node::default()));
            self.inner.len().saturating_sub(1)
        });
        &mut self.inner[at].1
    }

    /// Gives functions that have others below them to these.
    fn settle(&mut self) {
        for (name, node) in &mut self.inner {
            if let Some(at) = self.functions.iter().position(|(known, _)| known == name) {
                node.call = Some(self.functions.remove(at).1);
            }
            node.settle();
        }
    }
}
