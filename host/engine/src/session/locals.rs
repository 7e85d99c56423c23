//! Values that bridges keep for a session, for example budgets. They live as long as the session; no snapshot contains them.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, Mutex},
};

use cellar_core::sync::lock;

/// One value of each type.
#[derive(Debug, Default)]
pub(crate) struct Locals(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Locals {
    /// The value of this type, made when it is first asked for.
    pub(crate) fn get<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut values = lock(&self.0);
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        // The map is keyed by `TypeId`, so this downcast cannot fail.
        value.clone().downcast().unwrap_or_default()
    }
}
