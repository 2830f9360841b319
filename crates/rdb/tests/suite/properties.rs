//! Properties that hold for any input. Both the fuzzing target `rdb` (in `fuzz/`) and ordinary tests drive
//! these functions.

use std::io::Read;

use tembo_rdb::{Element, Encodings, Event, Kind, Reader, Writer};

/// Gives the bytes in pieces of up to this many.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.len().min(self.1).min(out.len());
        out[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

/// Longest string of these tests: what decompresses does not take all memory.
const STRING_BYTES_MAX: u64 = 1 << 20;

/// All that a reader says, as text, up to an error.
fn transcript<R: Read>(reader: Result<Reader<R>, tembo_rdb::Error>, bytes: usize) -> Vec<String> {
    let mut said = Vec::new();
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return vec![format!("{error}")],
    };
    reader.set_string_bytes_max(STRING_BYTES_MAX);
    loop {
        match reader.next() {
            Ok(Some(event)) => said.push(format!("{event:?}")),
            Ok(None) => return said,
            Err(error) => {
                assert!(error.offset() <= bytes as u64, "an error behind the end: {error}");
                assert!(matches!(reader.next(), Ok(None)), "an error is the end");
                said.push(format!("{error}"));
                return said;
            }
        }
    }
}

/// Any bytes are read to their end or to an error, in the same way whole and in pieces.
pub(crate) fn files(data: &[u8]) {
    let whole = transcript(Reader::new(data), data.len());
    for piece in [1, 7] {
        assert_eq!(transcript(Reader::new(Pieces(data, piece)), data.len()), whole);
    }
}

/// Any bytes are a payload or none.
pub(crate) fn payloads(data: &[u8]) {
    transcript(Reader::payload(data), data.len());
}

/// A file that was read, written anew, is the same.
pub(crate) fn rewritten(data: &[u8]) {
    let Some(first) = rewrite(data) else { return };
    let second = rewrite(&first).expect("a file that was written is read");
    assert_eq!(first, second, "it was written in another way");
}

/// The keys of a file, written anew; none if it cannot be read.
fn rewrite(data: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader::new(data).ok()?;
    reader.set_string_bytes_max(STRING_BYTES_MAX);
    let mut writer = Writer::new(Vec::new(), Encodings::default()).unwrap();
    let mut value: Option<(Vec<u8>, tembo_rdb::KeyMeta, Kind)> = None;
    let mut elements: Vec<[Vec<u8>; 2]> = Vec::new();
    let mut scores = Vec::new();
    while let Some(event) = reader.next().ok()? {
        match event {
            Event::Key(key) => value = Some((key.name.to_vec(), key.meta, key.kind)),
            Event::Element(Element::Text(text) | Element::Item(text)) => {
                elements.push([text.to_vec(), Vec::new()]);
            }
            Event::Element(Element::Field { field, value, .. }) => {
                elements.push([field.to_vec(), value.to_vec()]);
            }
            Event::Element(Element::Scored { member, score }) => {
                elements.push([member.to_vec(), Vec::new()]);
                scores.push(score);
            }
            Event::KeyEnd => {
                let (name, meta, kind) = value.take().expect("a key ends that has begun");
                writer.begin(&name, meta, kind, elements.len() as u64).unwrap();
                for (n, [first, second]) in elements.iter().enumerate() {
                    let element = match kind {
                        Kind::String => Element::Text(first),
                        Kind::List | Kind::Set => Element::Item(first),
                        Kind::Hash => Element::Field { field: first, value: second, deadline_ms: None },
                        Kind::SortedSet => Element::Scored { member: first, score: scores[n] },
                    };
                    writer.element(element).unwrap();
                }
                writer.end().unwrap();
                elements.clear();
                scores.clear();
            }
            _ => {}
        }
    }
    Some(writer.finish().unwrap())
}
