//! Seconds of what `cargo fuzz run wire` does for as long as it is let: bytes that are almost a protocol.

use crate::properties::{self, Choices};

/// Pieces that streams are made of.
const WORDS: &[&[u8]] = &[
    b"*",
    b"$",
    b"+",
    b"-",
    b":",
    b"_",
    b"#",
    b",",
    b"(",
    b"%",
    b"~",
    b">",
    b"|",
    b"=",
    b"!",
    b"\r\n",
    b"\r\n",
    b"\r",
    b"\n",
    b"0",
    b"1",
    b"2",
    b"3",
    b"10",
    b"-1",
    b"+1",
    b"00",
    b"99999999999999999999",
    b"$1\r\nx\r\n",
    b"*1\r\n",
    b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    b"PING\r\n",
    b"\"",
    b"'",
    b"\\",
    b"\\x4",
    b"\\'",
    b" ",
    b"a",
    b"t",
    b"inf",
    b"nan",
    b"1.5",
    b"e",
    b".",
    b"txt:",
    b"\0",
    b"\xff",
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// Runs `property` on `rounds` streams. A failure prints the stream's seed.
fn run(rounds: u64, property: fn(&[u8])) {
    for seed in 0..rounds {
        let mut choices = Choices(seed);
        let mut data = seed.to_le_bytes().to_vec();
        for _ in 0..choices.below(24) {
            data.extend_from_slice(WORDS[choices.below(WORDS.len())]);
        }
        if std::panic::catch_unwind(|| property(&data)).is_err() {
            panic!("seed {seed}: {}", data.escape_ascii());
        }
    }
}

#[test]
fn requests() {
    run(300_000, properties::requests);
}

#[test]
fn replies() {
    run(300_000, properties::replies);
}

#[test]
fn numbers() {
    run(300_000, |data| {
        let text: Vec<u8> =
            data[8..].iter().copied().filter(|byte| b"0123456789+-.einf".contains(byte)).take(24).collect();
        properties::numbers(&text);
        properties::numbers(&data[8..]);
    });
}
