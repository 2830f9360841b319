//! A small collection, in one value: its items one after the other, in order of insertion; those of a sorted
//! set in the order of scores and members.

use crate::keyspace::format::{Kind, Malformed};

/// The items of a packed collection, which are well formed.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    bytes: Vec<u8>,
    count: usize,
    /// Each element is a field and a value.
    pairs: bool,
    /// The elements are in the order of their values, then of their fields.
    sorted: bool,
}

/// An element and the bytes that it takes.
struct ElementPlace<'a> {
    start: usize,
    value_start: usize,
    end: usize,
    value: &'a [u8],
}

impl Packed {
    pub(crate) fn new(kind: Kind) -> Self {
        Packed {
            bytes: Vec::new(),
            count: 0,
            pairs: matches!(kind, Kind::Hash | Kind::SortedSet),
            sorted: kind == Kind::SortedSet,
        }
    }

    /// Reads a payload.
    pub(crate) fn decode(kind: Kind, payload: &[u8]) -> Result<Self, Malformed> {
        let mut packed = Packed { bytes: payload.to_vec(), ..Packed::new(kind) };
        let mut at = 0;
        while at < payload.len() {
            for _ in 0..if packed.pairs { 2 } else { 1 } {
                at = item(payload, at).ok_or(Malformed)?.1;
            }
            packed.count += 1;
        }
        if packed.count == 0 { Err(Malformed) } else { Ok(packed) }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The elements: fields with their values, or members with nothing.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (field, value, end) = self.element(at)?;
            at = end;
            Some((field, value))
        })
    }

    fn element(&self, at: usize) -> Option<(&[u8], &[u8], usize)> {
        let (field, end) = item(&self.bytes, at)?;
        if !self.pairs {
            return Some((field, &[], end));
        }
        let (value, end) = item(&self.bytes, end)?;
        Some((field, value, end))
    }

    fn find(&self, field: &[u8]) -> Option<ElementPlace<'_>> {
        let mut start = 0;
        loop {
            let (found, value, end) = self.element(start)?;
            if found == field {
                let value_start = item(&self.bytes, start)?.1;
                return Some(ElementPlace { start, value_start, end, value });
            }
            start = end;
        }
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.find(field).map(|place| place.value)
    }

    /// Puts an element, behind the others if it is new; returns whether it is not.
    pub(crate) fn put(&mut self, field: &[u8], value: &[u8]) -> bool {
        if self.sorted {
            return self.put_sorted(field, value);
        }
        let Some(ElementPlace { value_start, end, .. }) = self.find(field) else {
            push(&mut self.bytes, field);
            if self.pairs {
                push(&mut self.bytes, value);
            }
            self.count += 1;
            return false;
        };
        if self.pairs {
            let mut encoded = Vec::with_capacity(value.len() + 5);
            push(&mut encoded, value);
            self.bytes.splice(value_start..end, encoded);
        }
        true
    }

    /// Puts an element at its place in the order.
    fn put_sorted(&mut self, field: &[u8], value: &[u8]) -> bool {
        let replaced = self.remove(field);
        let mut at = 0;
        while let Some((other, its, end)) = self.element(at)
            && (its, other) < (value, field)
        {
            at = end;
        }
        let mut encoded = Vec::with_capacity(field.len() + value.len() + 10);
        push(&mut encoded, field);
        push(&mut encoded, value);
        self.bytes.splice(at..at, encoded);
        self.count += 1;
        replaced
    }

    /// Removes an element; returns whether it was there.
    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(ElementPlace { start, end, .. }) = self.find(field) else {
            return false;
        };
        self.bytes.drain(start..end);
        self.count -= 1;
        true
    }
}

/// The elements of a list, by their places.
impl Packed {
    /// Where the element of an index begins; the end, if there are not so many.
    fn offset(&self, index: usize) -> usize {
        (0..index).fold(0, |at, _| item(&self.bytes, at).map_or(self.bytes.len(), |(_, end)| end))
    }

    pub(crate) fn nth(&self, index: usize) -> Option<&[u8]> {
        item(&self.bytes, self.offset(index)).map(|(element, _)| element)
    }

    /// Inserts an element before that of an index, or at the end.
    pub(crate) fn insert(&mut self, index: usize, element: &[u8]) {
        if index == self.count {
            push(&mut self.bytes, element);
        } else {
            let at = self.offset(index);
            let mut encoded = Vec::with_capacity(element.len() + LENGTH_BYTES_MAX);
            push(&mut encoded, element);
            self.bytes.splice(at..at, encoded);
        }
        self.count += 1;
    }

    /// Removes the elements of a range of indices, which are there.
    pub(crate) fn cut(&mut self, range: std::ops::Range<usize>) {
        let (start, end) = (self.offset(range.start), self.offset(range.end));
        self.bytes.drain(start..end);
        self.count -= range.len();
    }

    /// Where each element begins.
    pub(crate) fn starts(&self) -> Vec<usize> {
        let mut at = 0;
        let next = |_| {
            let start = at;
            at = item(&self.bytes, at).map_or(self.bytes.len(), |(_, end)| end);
            start
        };
        (0..self.count).map(next).collect()
    }

    /// Removes the last element, which begins at `start`; gives it to `visit` before.
    pub(crate) fn cut_last(&mut self, start: usize, visit: impl FnOnce(&[u8])) {
        if let Some((element, _)) = item(&self.bytes, start) {
            visit(element);
        }
        self.bytes.truncate(start);
        self.count -= 1;
    }

    /// The bytes that an element takes.
    pub(crate) fn bytes_of(element: &[u8]) -> usize {
        let bits = usize::BITS - (element.len() | 1).leading_zeros();
        element.len() + bits.div_ceil(7) as usize
    }
}

/// The elements of a packed list, without a copy. It ends where the bytes are malformed.
pub(crate) fn elements(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (element, end) = item(bytes, at)?;
        at = end;
        Some(element)
    })
}

/// Most bytes of a length.
const LENGTH_BYTES_MAX: usize = 5;

/// Appends an item: its length in groups of seven bits, the lowest first, then its bytes.
fn push(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut len = bytes.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(bytes);
}

/// The item at `at`, and where it ends.
fn item(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let (mut len, mut at) = (0, at);
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(at)?;
        at += 1;
        len |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            let end = at.checked_add(len)?;
            return Some((bytes.get(at..end)?, end));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_list_is_changed_by_index() {
        let mut packed = Packed::new(Kind::List);
        let long = vec![b'x'; 200];
        for (index, element) in [(0, &b"b"[..]), (0, b"a"), (2, &long), (1, b"b"), (4, b"")] {
            packed.insert(index, element);
        }
        assert_eq!(elements(packed.as_bytes()).collect::<Vec<_>>(), [&b"a"[..], b"b", b"b", &long, b""]);
        assert_eq!((packed.nth(3), packed.nth(4), packed.nth(5)), (Some(&long[..]), Some(&b""[..]), None));
        packed.cut(1..4);
        assert_eq!((packed.count(), packed.as_bytes()), (2, &b"\x01a\0"[..]));
        for len in [0, 1, 127, 128, 16383, 16384] {
            let mut packed = Packed::new(Kind::List);
            packed.insert(0, &vec![0; len]);
            assert_eq!(packed.as_bytes().len(), Packed::bytes_of(&vec![0; len]));
        }
    }

    #[test]
    fn a_packed_hash_keeps_the_order_of_insertion() {
        let mut packed = Packed::new(Kind::Hash);
        let long = vec![b'x'; 300];
        for (field, value) in [(&b"b"[..], &b"1"[..]), (b"a", &long), (b"", b""), (b"c", b"3")] {
            assert!(!packed.put(field, value));
        }
        assert!(packed.put(b"b", &long));
        assert!(packed.put(b"a", b"2"));
        assert_eq!(packed.get(b"b"), Some(&long[..]));
        let order = |packed: &Packed| packed.iter().map(|(field, _)| field.to_vec()).collect::<Vec<_>>();
        assert_eq!(order(&packed), [&b"b"[..], b"a", b"", b"c"]);
        assert!(packed.remove(b"a") && !packed.remove(b"a"));
        assert_eq!(order(&packed), [&b"b"[..], b"", b"c"]);
        let read = Packed::decode(Kind::Hash, packed.as_bytes()).unwrap();
        assert_eq!((read.count(), read.get(b"c"), read.get(b"a")), (3, Some(&b"3"[..]), None));
    }

    #[test]
    fn malformed_payloads_are_refused() {
        for payload in
            [&b""[..], b"\x01a", b"\x01a\x02b", b"\xff", b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f"]
        {
            assert!(Packed::decode(Kind::Hash, payload).is_err(), "{payload:?}");
        }
        assert!(Packed::decode(Kind::Set, b"\x01a").is_ok());
        assert!(Packed::decode(Kind::Set, b"\x02a").is_err());
    }
}
