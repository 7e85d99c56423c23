//! The memory that every kernel of a guest starts with, read where its baked component lies.

use std::{borrow::Cow, fmt};

use wasmparser::{Chunk, Data, DataKind, Operator, Parser, Payload};

use super::PAGE_BYTES;

/// The bytes of a component, wherever they are; a mapped file costs no process memory of its own.
type Component = Box<dyn AsRef<[u8]> + Send + Sync>;

/// The memory of a baked guest, as segments of its component; a page that no segment touches is zero.
pub(crate) struct Image {
    component: Component,
    /// By address, none over another. All the rest is zero.
    segments: Vec<Segment>,
}

/// Bytes of the component that lie in memory.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u32,
    /// Offset in the component.
    begin: u32,
    length: u32,
}

impl Segment {
    fn end(&self) -> u64 {
        u64::from(self.address).saturating_add(self.length.into())
    }
}

impl Image {
    /// The memory of the one module in a component that has data.
    ///
    /// # Errors
    /// Says what is not as baking leaves it.
    pub(crate) fn of(component: Component) -> Result<Image, String> {
        let mut segments = Vec::new();
        let mut left = (*component).as_ref();
        let (mut parser, mut outer) = (Parser::new(0), Vec::new());
        loop {
            let (used, payload) = match parser.parse(left, true).map_err(|error| error.to_string())? {
                Chunk::Parsed { consumed, payload } => (consumed, payload),
                Chunk::NeedMoreData(_) => return Err("it ends early".to_owned()),
            };
            left = left.get(used..).unwrap_or_default();
            match payload {
                // Millions of bytes that are not data.
                Payload::CodeSectionStart { size, .. } => {
                    parser.skip_section();
                    left = left.get(size as usize..).ok_or("it ends early")?;
                }
                Payload::ModuleSection { parser: inner, .. } | Payload::ComponentSection { parser: inner, .. } => {
                    outer.push(std::mem::replace(&mut parser, inner));
                }
                Payload::End(_) => match outer.pop() {
                    Some(before) => parser = before,
                    None => break,
                },
                Payload::DataSection(data) if data.count() > 0 => {
                    if !segments.is_empty() {
                        return Err("two of its modules have data".to_owned());
                    }
                    for data in data {
                        segments.extend(segment(&data.map_err(|error| error.to_string())?)?);
                    }
                }
                _ => {}
            }
        }
        segments.sort_unstable_by_key(|segment| segment.address);
        if segments.windows(2).any(|pair| pair[0].end() > u64::from(pair[1].address)) {
            return Err("its data overlaps".to_owned());
        }
        Ok(Image { component, segments })
    }

    /// Returns the content of a page in a new kernel; `None` is zeros.
    pub(crate) fn page(&self, page: u32) -> Option<Cow<'_, [u8]>> {
        let begin = u64::from(page).checked_mul(PAGE_BYTES as u64)?;
        let end = begin.checked_add(PAGE_BYTES as u64)?;
        let first = self.segments.partition_point(|segment| segment.end() <= begin);
        let segments = self.segments.get(first..)?;
        let segments = segments.split_at(segments.partition_point(|segment| u64::from(segment.address) < end)).0;
        match segments {
            [] => None,
            [whole] if u64::from(whole.address) <= begin && whole.end() >= end => {
                self.bytes(whole, begin, end).map(Cow::Borrowed)
            }
            pieces => {
                let mut page = vec![0; PAGE_BYTES];
                for piece in pieces {
                    let from = begin.max(piece.address.into());
                    let bytes = self.bytes(piece, from, end.min(piece.end()))?;
                    let target = usize::try_from(from.checked_sub(begin)?).ok()?;
                    page.get_mut(target..target.checked_add(bytes.len())?)?.copy_from_slice(bytes);
                }
                Some(page.into())
            }
        }
    }

    /// Returns the bytes between two addresses of a segment.
    fn bytes(&self, segment: &Segment, from: u64, to: u64) -> Option<&[u8]> {
        let place = |address: u64| {
            let place = address.checked_sub(segment.address.into())?.checked_add(segment.begin.into())?;
            usize::try_from(place).ok()
        };
        (*self.component).as_ref().get(place(from)?..place(to)?)
    }

    /// Creates an image in which only these bytes, from address 0 on, are not zero.
    #[cfg(test)]
    pub(super) fn of_bytes(bytes: Vec<u8>) -> Image {
        let length = u32::try_from(bytes.len()).expect("a small image");
        let segments = vec![Segment { address: 0, begin: 0, length }];
        Image { component: Box::new(bytes), segments }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("segments", &self.segments.len()).finish_non_exhaustive()
    }
}

/// Returns the segment that a piece of data puts into memory before any code runs; `None` for an empty one.
fn segment(data: &Data<'_>) -> Result<Option<Segment>, String> {
    if data.data.is_empty() {
        return Ok(None);
    }
    let DataKind::Active { memory_index: 0, offset_expr } = &data.kind else {
        return Err("it has data that is not in memory from the start".to_owned());
    };
    let address = match offset_expr.get_operators_reader().read().map_err(|error| error.to_string())? {
        Operator::I32Const { value } => value.cast_unsigned(),
        _ => return Err("it has data at an address that is not constant".to_owned()),
    };
    let end = u32::try_from(data.range.end).map_err(|_| "it has more than 4 GiB".to_owned())?;
    let length = u32::try_from(data.data.len()).unwrap_or(end);
    Ok(Some(Segment { address, begin: end.saturating_sub(length), length }))
}

/// Makes a page what it has in common with its image, and back.
pub(crate) fn toggle(page: &mut [u8], image: &[u8]) {
    let (words, rest) = page.as_chunks_mut::<8>();
    let (image_words, image_rest) = image.as_chunks::<8>();
    for (word, image) in words.iter_mut().zip(image_words) {
        *word = (u64::from_ne_bytes(*word) ^ u64::from_ne_bytes(*image)).to_ne_bytes();
    }
    rest.iter_mut().zip(image_rest).for_each(|(byte, image)| *byte ^= image);
}
