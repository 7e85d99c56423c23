//! Fields of events that have another form in JSON.

use std::{borrow::Cow, marker::PhantomData, time::Duration};

use cellar_core::{
    cell::Cell,
    event::{Bridge, Fetch, KeptText},
    mime::MimeBundle,
    origin::Origin,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Number, Value};

use super::{
    CellJson, FetchJson, KeptJson, OriginJson, StreamJson, bundle_from_json, bundle_json, duration, milliseconds,
};

/// Writes and reads a field in the form `F`: `#[serde(with = "As::<F>")]`.
pub(super) struct As<F>(PhantomData<F>);

impl<F> As<F> {
    pub(super) fn serialize<T, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error>
    where
        F: Form<T>,
    {
        F::of(value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, T, D: Deserializer<'de>>(from: D) -> Result<T, D::Error>
    where
        F: Form<T>,
    {
        F::deserialize(from).map(F::value)
    }
}

impl<F: JsonSchema> JsonSchema for As<F> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        F::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<F>()
    }
}

/// Form of values of the type `T` in JSON.
pub(super) trait Form<T>: Serialize + DeserializeOwned {
    fn of(value: &T) -> Self;

    fn value(self) -> T;
}

impl<T, F: Form<T>> Form<Option<T>> for Option<F> {
    fn of(value: &Option<T>) -> Option<F> {
        value.as_ref().map(F::of)
    }

    fn value(self) -> Option<T> {
        self.map(F::value)
    }
}

impl<T, F: Form<T>> Form<Vec<T>> for Vec<F> {
    fn of(values: &Vec<T>) -> Vec<F> {
        values.iter().map(F::of).collect()
    }

    fn value(self) -> Vec<T> {
        self.into_iter().map(F::value).collect()
    }
}

impl<T, F: Form<T>> Form<Box<T>> for Box<F> {
    fn of(value: &Box<T>) -> Box<F> {
        Box::new(F::of(value))
    }

    fn value(self) -> Box<T> {
        Box::new(F::value(*self))
    }
}

/// Forms, each of a type, with what makes it of a value and the value of it.
macro_rules! forms {
    ($($form:ty, $type:ty: $of:expr, $value:expr;)+) => { $(
        impl Form<$type> for $form {
            fn of(value: &$type) -> $form {
                ($of)(value)
            }

            fn value(self) -> $type {
                ($value)(self)
            }
        }
    )+ };
}

forms! {
    CellJson, Cell: CellJson::from, Cell::from;
    KeptJson, KeptText: KeptJson::from, KeptText::from;
    FetchJson, Fetch: FetchJson::from, Fetch::from;
    OriginJson, Origin: OriginJson::from, Origin::from;
    Map<String, Value>, MimeBundle: bundle_json, bundle_from_json;
    String, Bridge: |bridge: &Bridge| bridge.as_str().to_owned(), bridge_from_json;
    StreamJson, bool: |is_stderr: &bool| StreamJson::new(*is_stderr), |stream| stream == StreamJson::Stderr;
    Number, Duration: |time: &Duration| milliseconds(*time), |time: Number| duration(&time);
    u64, Duration: Duration::as_secs, Duration::from_secs;
}

fn bridge_from_json(word: String) -> Bridge {
    const BRIDGES: [Bridge; 7] =
        [Bridge::Tool, Bridge::Llm, Bridge::Agent, Bridge::Input, Bridge::Http, Bridge::Runtime, Bridge::Connector];
    BRIDGES.into_iter().find(|bridge| bridge.as_str() == word).unwrap_or(Bridge::Tool)
}
