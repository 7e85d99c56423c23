//! Checks for all files that a stranger may have written: their lists are bounded.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};

/// A list of at most `MAX` items. A longer one is refused when it has come so far, before more memory is spent on it.
///
/// # Errors
/// An item is wrong, or there are too many.
pub(crate) fn bounded<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Bounded::<T, MAX>(PhantomData))
}

struct Bounded<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Bounded<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() >= MAX {
                return Err(A::Error::custom(format!("a list has more than {MAX} items")));
            }
            list.push(item);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Short {
        #[serde(deserialize_with = "bounded::<_, _, 3>")]
        items: Vec<u8>,
    }

    #[test]
    fn a_list_ends_where_it_must() {
        let read = |bytes: &[u8]| postcard::from_bytes::<Short>(bytes);
        assert_eq!(read(&[3, 1, 2, 3]).expect("three items").items, [1, 2, 3]);
        assert!(read(&[4, 1, 2, 3, 4]).is_err());
    }
}
