//! LZF, the compression of long strings.
//!
//! A compressed string is a sequence of runs. A byte below 32 is followed by one byte more than its value,
//! which stand for themselves. Any other byte has the length of a copy in its upper three bits (7: one more
//! byte has the rest), and the upper five bits of the distance in the others; the lower eight follow. A
//! length counts from 2, a distance from 1.
//!
//! The compressor makes the choices of the one in Redis 7.0, so that a value has the same payload here and
//! there: it looks each place of three bytes up in a table of the last place with the same hash, takes the
//! copy if there is one, and enters the last two places of a copy only. Redis does not clear its table
//! between strings, so that it may, rarely, know a place that this compressor does not.

/// Bits of the hash of a place.
const HASH_BITS: u32 = 16;
/// Longest run of bytes that stand for themselves.
const LITERALS_MAX: usize = 32;
/// Longest distance of a copy.
const DISTANCE_MAX: usize = 1 << 13;
/// Longest copy.
const COPY_MAX: usize = (1 << 8) + (1 << 3);
/// Bytes that are compared at once where the string is long enough.
const AT_ONCE: usize = 16;
/// Bytes by which an earlier place is found: the shortest copy.
const PLACE_BYTES: usize = 3;

/// Appends the decompressed bytes of `compressed` to `out`, which must become `len` bytes longer.
///
/// Memory grows with what has been decompressed, not with what was announced.
pub(crate) fn decompress(compressed: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let start = out.len();
    let mut input = compressed.iter().copied();
    let mut next = || input.next().ok_or("it ends in the middle of a run");
    let left = |out: &Vec<u8>| len - (out.len() - start);
    while let Ok(control) = next().map(usize::from) {
        if control < LITERALS_MAX {
            if control + 1 > left(out) {
                return Err("it is longer than announced");
            }
            for _ in 0..=control {
                out.push(next()?);
            }
            continue;
        }
        let mut count = (control >> 5) + 2;
        if count == 7 + 2 {
            count += usize::from(next()?);
        }
        let distance = ((control & 0x1f) << 8 | usize::from(next()?)) + 1;
        if distance > out.len() - start {
            return Err("a copy is of bytes before the beginning");
        }
        if count > left(out) {
            return Err("it is longer than announced");
        }
        for at in out.len() - distance..out.len() - distance + count {
            out.push(out[at]);
        }
    }
    if left(out) > 0 { Err("it is shorter than announced") } else { Ok(()) }
}

/// Compresses `input` into `out` if that takes no more than `bytes_max`; tells whether it did.
pub(crate) fn compress(input: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> bool {
    out.clear();
    let mut places = Places { last: vec![0; 1 << HASH_BITS] };
    let mut runs = Runs { out, literals: 0, bytes_max };
    runs.out.push(0);
    let (mut at, copies_end) = (0, input.len().saturating_sub(PLACE_BYTES - 1));
    while at < copies_end {
        let place = places.enter(input, at);
        match copy_at(input, at, place) {
            Some(len) => {
                if !runs.copy(at - place, len) {
                    return false;
                }
                at += len;
                if at >= copies_end {
                    break;
                }
                places.enter(input, at - 2);
                places.enter(input, at - 1);
            }
            None => {
                if !runs.literal(input[at]) {
                    return false;
                }
                at += 1;
            }
        }
    }
    if runs.out.len() + 3 > bytes_max {
        return false;
    }
    for &byte in &input[at..] {
        runs.push(byte);
    }
    runs.end_literals();
    true
}

/// The last place with each hash. 0 also stands for none, since nothing is copied from the first byte.
struct Places {
    last: Vec<u32>,
}

impl Places {
    /// Enters the place `at` under its bytes; returns the place that was entered there before.
    fn enter(&mut self, input: &[u8], at: usize) -> usize {
        let place = u32::from_be_bytes([0, input[at], input[at + 1], input[at + 2]]);
        let hash = (place >> (24 - HASH_BITS)).wrapping_sub(place.wrapping_mul(5));
        let slot = &mut self.last[(hash & ((1 << HASH_BITS) - 1)) as usize];
        std::mem::replace(slot, at as u32) as usize
    }
}

/// The length of the copy from `place` to `at`, if there is one.
fn copy_at(input: &[u8], at: usize, place: usize) -> Option<usize> {
    let is_near = place > 0 && at - place <= DISTANCE_MAX;
    if !is_near || input[place..place + PLACE_BYTES] != input[at..at + PLACE_BYTES] {
        return None;
    }
    let len_max = (input.len() - at - 2).min(COPY_MAX);
    let same = |n: &usize| input[place + n] == input[at + n];
    // The bytes that are compared at once may go beyond the longest copy.
    let at_once = if len_max > AT_ONCE { AT_ONCE } else { 0 };
    let begun = PLACE_BYTES..PLACE_BYTES + at_once;
    let len = PLACE_BYTES + begun.clone().take_while(same).count();
    if len < begun.end {
        return Some(len);
    }
    Some(len + (len..len_max).take_while(same).count())
}

/// The runs written so far, and the run of literals that has begun: its length byte, then its bytes.
struct Runs<'a> {
    out: &'a mut Vec<u8>,
    literals: usize,
    bytes_max: usize,
}

impl Runs<'_> {
    fn literal(&mut self, byte: u8) -> bool {
        if self.out.len() >= self.bytes_max {
            return false;
        }
        self.push(byte);
        true
    }

    fn push(&mut self, byte: u8) {
        self.out.push(byte);
        self.literals += 1;
        if self.literals == LITERALS_MAX {
            self.end_literals();
            self.out.push(0);
        }
    }

    /// Ends the run of literals, or takes it back if it has none.
    fn end_literals(&mut self) {
        if self.literals == 0 {
            self.out.pop();
        } else {
            let head = self.out.len() - self.literals - 1;
            self.out[head] = (self.literals - 1) as u8;
        }
        self.literals = 0;
    }

    fn copy(&mut self, distance: usize, len: usize) -> bool {
        if self.out.len() - usize::from(self.literals == 0) + 4 >= self.bytes_max {
            return false;
        }
        self.end_literals();
        let (count, distance) = (len - 2, distance - 1);
        self.out.push((distance >> 8) as u8 | (count.min(7) << 5) as u8);
        if count >= 7 {
            self.out.push((count - 7) as u8);
        }
        self.out.push(distance as u8);
        self.out.push(0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(input: &[u8]) -> Option<usize> {
        let (mut compressed, mut out) = (Vec::new(), b"before".to_vec());
        let did = compress(input, input.len().saturating_sub(4), &mut compressed);
        if did {
            decompress(&compressed, input.len(), &mut out).unwrap();
            assert_eq!(&out[6..], input);
        }
        did.then_some(compressed.len())
    }

    #[test]
    fn strings_decompress_to_what_was_compressed() {
        assert_eq!(round_trip(&[b'a'; 1000]), Some(18));
        assert!(round_trip(&b"a string, a string, and then a string again".repeat(40)).is_some());
        let noise: Vec<u8> = (0..4000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        round_trip(&noise);
        for len in 0..300 {
            round_trip(&vec![b'x'; len]);
            round_trip(&(0..len).map(|n| (n * n / 7) as u8).collect::<Vec<_>>());
        }
        let far = [&b"0 unlike all else 9"[..], &noise, &noise, b"0 unlike all else 9"].concat();
        assert!(round_trip(&far).is_some());
    }

    #[test]
    fn damaged_strings_are_refused() {
        let mut out = Vec::new();
        for (bytes, len) in [
            (&b"\x05abc"[..], 6),
            (b"\x02abc", 4),
            (b"\x02abc", 2),
            (b"\x00a\x20\x05", 4),
            (b"\x00a\xe0", 100),
            (b"\x00a\x20", 4),
            (b"\x00a\x20\x00\x20\x00", 4),
        ] {
            out.clear();
            assert!(decompress(bytes, len, &mut out).is_err(), "{bytes:?}");
        }
    }
}
