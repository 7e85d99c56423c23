//! Descriptors over a snapshot: told as paths, and made again from them.

use super::error::FileError;
use super::slot::{Descriptor, Node, OpenFile, Slot};
use super::stat::Stat;
use super::tree::{self, Place, Right, Seek};
use super::{Files, descriptor_of, index_of};

impl Files {
    /// All open descriptors but the root, lowest first, for a snapshot.
    pub fn table(&self) -> Vec<OpenFile> {
        let open = self.slots.iter().enumerate().skip(1);
        let open = open.filter_map(|(index, slot)| slot.as_ref().map(|slot| (descriptor_of(index), slot)));
        open.map(|(descriptor, slot)| OpenFile {
            descriptor,
            path: if slot.path.is_empty() { "/".to_owned() } else { slot.path.clone() },
            how: slot.how,
            stale: self.is_stale(slot),
        })
        .collect()
    }

    /// Makes the descriptors what [`Files::table`] said they were: closes all, and opens each again by its path, with
    /// nothing made and nothing emptied. Returns those that could not be; the guest gets their error at each use until
    /// it closes them.
    pub fn reopen(&mut self, table: &[OpenFile]) -> Vec<(Descriptor, FileError)> {
        self.close_all();
        let mut failed = Vec::new();
        for open in table {
            let max = self.descriptors_max();
            let free = index_of(open.descriptor).filter(|index| (1..=max).contains(index) && self.is_free(*index));
            let Some(index) = free else {
                failed.push((open.descriptor, FileError::BadDescriptor));
                continue;
            };
            let how = open.how.lasting();
            let opened = if open.stale { Err(FileError::NotFound) } else { self.open_from("", &open.path, how) };
            let slot = opened.unwrap_or_else(|error| {
                failed.push((open.descriptor, error));
                let mut path = String::new();
                tree::push_names(&mut path, &open.path);
                Slot { path, how, right: Right::Read, node: Node::Lost { error, stale: open.stale } }
            });
            self.put(index, slot);
        }
        failed
    }

    /// Closes all but the root.
    pub fn close_all(&mut self) {
        self.slots.truncate(1);
    }

    fn is_stale(&self, slot: &Slot) -> bool {
        if let Node::Lost { stale, .. } = slot.node {
            return stale;
        }
        let named = match self.tree.resolve("", if slot.path.is_empty() { "/" } else { &slot.path }, true, Seek::Look) {
            Ok(Place::Mounted(spot)) => spot.stat(),
            Ok(Place::Ancestor(path)) => Ok(Stat::of_ancestor(&path)),
            Err(error) => Err(error),
        };
        match (named, slot.stat()) {
            (Ok(named), Ok(open)) => named.id() != open.id(),
            _ => true,
        }
    }
}
