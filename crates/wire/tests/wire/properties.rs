//! Properties that hold for any input. Both the fuzzing target `wire` (in `fuzz/`) and ordinary tests, in
//! the test module `fuzz_seconds`, drive these functions.

use std::collections::VecDeque;
use tembo_wire::{
    Limits, Parsed, ProtocolError, ReplyError, ReplyLimits, ReplyParser, RequestParser, Value, keys_ahead,
    write_request,
};

/// Cuts of a stream into pieces, and other choices, from a seed (splitmix64).
pub(crate) struct Choices(pub(crate) u64);

impl Choices {
    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    /// Cuts `stream` into pieces, of one byte or of any size.
    pub(crate) fn pieces<'a>(&mut self, mut stream: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        let longest = [1, 3, 16, 1000][self.below(4)];
        while !stream.is_empty() {
            let (piece, rest) = stream.split_at(1 + self.below(longest.min(stream.len())));
            pieces.push(piece);
            stream = rest;
        }
        pieces
    }
}

/// All that a server's parser makes of a stream.
#[derive(Debug, PartialEq)]
pub(crate) struct Transcript<T, E> {
    pub(crate) items: Vec<T>,
    pub(crate) consumed: usize,
    pub(crate) error: Option<E>,
}

/// One request's arguments.
pub(crate) type Command = Vec<Vec<u8>>;

/// Receives `pieces` as a server does, dropping consumed bytes from the front of its buffer.
pub(crate) fn receive_requests(pieces: &[&[u8]], limits: &Limits) -> Transcript<Command, ProtocolError> {
    let mut transcript = Transcript { items: Vec::new(), consumed: 0, error: None };
    let mut parser = RequestParser::new();
    let mut buffer = Vec::new();
    let mut wanted = 0;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        // Keys that were seen ahead, of requests that are then parsed one after another.
        let mut ahead = keys_ahead(&buffer, usize::MAX).map(<[u8]>::to_vec).collect::<VecDeque<_>>();
        loop {
            let consumed = match parser.parse(&buffer, limits) {
                Ok(Parsed::Request(request)) => {
                    assert_eq!(request.args().len(), request.arg_count());
                    assert!(request.arg_count() > 0 && request.name() == &request[0]);
                    if let Some(seen) = request.get(1).and_then(|key| Some((key, ahead.pop_front()?))) {
                        assert_eq!(seen.0, seen.1, "the hint was of another key");
                    }
                    transcript.items.push(request.args().map(<[u8]>::to_vec).collect());
                    request.consumed()
                }
                Ok(Parsed::Empty { consumed }) => consumed,
                Ok(Parsed::Incomplete { needed }) => {
                    assert!(needed > 0);
                    assert!(buffer.len() >= wanted || buffer.len() + needed == wanted, "the hint was wrong");
                    wanted = buffer.len() + needed;
                    break;
                }
                Err(error) => {
                    assert!(buffer.len() >= wanted, "the hint was wrong");
                    assert_eq!(parser.parse(&buffer, limits).err(), Some(error), "errors are final");
                    transcript.error = Some(error);
                    return transcript;
                }
            };
            assert!(buffer.len() >= wanted, "the hint was wrong");
            assert!(0 < consumed && consumed <= buffer.len());
            transcript.consumed += consumed;
            wanted = 0;
            buffer = buffer.split_off(consumed);
        }
    }
    transcript
}

/// Receives `pieces` as a client does. `consumed` counts whole replies only.
pub(crate) fn receive_replies(pieces: &[&[u8]], limits: ReplyLimits) -> Transcript<Value, ReplyError> {
    let mut transcript = Transcript { items: Vec::new(), consumed: 0, error: None };
    let mut parser = ReplyParser::new(limits);
    let mut buffer = Vec::new();
    let mut consumed = 0;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let decoded = match parser.parse(&buffer) {
                Ok(decoded) => decoded,
                Err(error) => {
                    transcript.error = Some(error);
                    return transcript;
                }
            };
            assert!(decoded.consumed <= buffer.len());
            buffer = buffer.split_off(decoded.consumed);
            consumed += decoded.consumed;
            let Some(value) = decoded.value else {
                break;
            };
            transcript.items.push(value);
            transcript.consumed = consumed;
        }
    }
    transcript
}

/// Limits so low that short inputs reach them.
const LOW_LIMITS: Limits =
    Limits { max_line_bytes: 40, max_bulk_bytes: 20, max_args: 5, max_request_bytes: 90 };
const LOW_REPLY_LIMITS: ReplyLimits = ReplyLimits { max_line_bytes: 24, max_bulk_bytes: 20, max_depth: 3 };

/// A stream of requests, headed by eight bytes that choose limits and cuts, is understood in the same way
/// whole and in pieces; and each request, sent again as a multibulk, is received again as itself.
pub(crate) fn requests(data: &[u8]) {
    let Some((seed, stream)) = data.split_first_chunk() else {
        return;
    };
    let mut choices = Choices(u64::from_le_bytes(*seed));
    let limits = if choices.below(2) == 0 { Limits::default() } else { LOW_LIMITS };
    let whole = receive_requests(&[stream], &limits);
    assert_eq!(receive_requests(&choices.pieces(stream), &limits), whole);

    let mut again = Vec::new();
    whole.items.iter().for_each(|args| write_request(&mut again, args));
    let received = receive_requests(&[&again], &Limits::default());
    assert_eq!(received, Transcript { items: whole.items, consumed: again.len(), error: None });
}

/// A stream of replies, headed likewise, is understood in the same way whole and in pieces.
pub(crate) fn replies(data: &[u8]) {
    let Some((seed, stream)) = data.split_first_chunk() else {
        return;
    };
    let mut choices = Choices(u64::from_le_bytes(*seed));
    let limits = if choices.below(2) == 0 { ReplyLimits::default() } else { LOW_REPLY_LIMITS };
    let whole = receive_replies(&[stream], limits);
    let cut = receive_replies(&choices.pieces(stream), limits);
    // By their text, since NaN is not equal to itself.
    assert_eq!(format!("{cut:?}"), format!("{whole:?}"));
}

/// The readers of numbers accept no text but those that they, or the standard library, would write.
pub(crate) fn numbers(text: &[u8]) {
    use tembo_wire::decimal::Decimal;
    use tembo_wire::number::{parse_f64, parse_i64, parse_u64, write_f64};

    let canonical = |number: Option<String>| number.filter(|number| number.as_bytes() == text);
    let std_text = std::str::from_utf8(text).unwrap_or_default();
    let as_i64 = canonical(std_text.parse::<i64>().ok().map(|number| number.to_string()));
    assert_eq!(parse_i64(text).map(|number| number.to_string()), as_i64);
    let as_u64 = canonical(std_text.parse::<u64>().ok().map(|number| number.to_string()));
    assert_eq!(parse_u64(text).map(|number| number.to_string()), as_u64);
    if let Some(number) = parse_f64(text) {
        let mut written = Vec::new();
        write_f64(&mut written, number);
        assert_eq!(parse_f64(&written).map(f64::to_bits), Some(number.to_bits()));
    }
    if let Ok(number) = Decimal::parse(text) {
        let mut written = Vec::new();
        number.write(&mut written);
        let mut again = Vec::new();
        Decimal::parse(&written).expect("what was written").write(&mut again);
        assert_eq!(again, written, "writing is idempotent");
        let plain = std::str::from_utf8(&written).expect("ASCII");
        let (read, expected) = (plain.parse::<f64>().expect("a number"), std_text.parse::<f64>());
        let expected = expected.expect("the standard library reads it too");
        let tolerance = 1e-17 + expected.abs() * 1e-15;
        assert!(read == expected || (read - expected).abs() <= tolerance, "{read} {expected}");
    }
}
