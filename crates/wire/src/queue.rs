//! Requests kept for later, in order: what a transaction runs at its end.

use crate::request::Request;
use crate::span::Span;

/// Requests, copied and packed one behind the other.
///
/// ```
/// # use tembo_wire::{Limits, Parsed, RequestParser, RequestQueue};
/// # let mut parser = RequestParser::new();
/// let mut queue = RequestQueue::default();
/// if let Parsed::Request(request) = parser.parse(b"GET key\r\n", &Limits::default())? {
///     queue.push(&request);
/// }
/// assert_eq!(&queue.get(0).unwrap()[1], b"key");
/// # Ok::<(), tembo_wire::ProtocolError>(())
/// ```
#[derive(Debug, Default)]
pub struct RequestQueue {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Where each request's arguments end in `spans`.
    ends: Vec<usize>,
}

impl RequestQueue {
    /// Appends a copy of `request`.
    pub fn push(&mut self, request: &Request<'_>) {
        for arg in request.args() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(arg);
            self.spans.push(Span { start, end: self.bytes.len() });
        }
        self.ends.push(self.spans.len());
    }

    /// Begins a request of words that come one by one.
    pub fn begin(&mut self) -> Words<'_> {
        Words { queue: self }
    }

    /// Removes all requests, and keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.ends.clear();
    }

    /// The request at `index`, as it came; it consumes nothing.
    pub fn get(&self, index: usize) -> Option<Request<'_>> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(Request::kept(&self.bytes, &self.spans[start..end]))
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many bytes the requests take in memory, without the memory that is set aside for further ones.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.spans[..]) + size_of_val(&self.ends[..])
    }

    /// The growth of [`memory_bytes`](Self::memory_bytes) when `request` is pushed.
    pub fn memory_bytes_of(request: &Request<'_>) -> usize {
        let args = request.args().map(|arg| arg.len() + size_of::<Span>());
        args.sum::<usize>() + size_of::<usize>()
    }
}

/// A request that is appended to a queue, word by word. It is there once it is ended.
#[derive(Debug)]
pub struct Words<'a> {
    queue: &'a mut RequestQueue,
}

impl Words<'_> {
    /// Appends a word: the command's name first.
    pub fn push(&mut self, word: &[u8]) {
        let start = self.queue.bytes.len();
        self.queue.bytes.extend_from_slice(word);
        self.queue.spans.push(Span { start, end: self.queue.bytes.len() });
    }

    /// Ends the request.
    pub fn end(self) {
        self.queue.ends.push(self.queue.spans.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Parsed, RequestParser};

    #[test]
    fn requests_come_back_as_they_were_pushed_and_are_counted() {
        let mut queue = RequestQueue::default();
        assert!(queue.is_empty() && queue.get(0).is_none());
        let inputs: [&[u8]; 3] =
            [b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", b"set key 'a b'\r\n", b"*1\r\n$4\r\nPI\0G\r\n"];
        for input in inputs {
            let mut parser = RequestParser::new();
            let Ok(Parsed::Request(request)) = parser.parse(input, &Limits::default()) else {
                panic!("{}", input.escape_ascii())
            };
            let before = queue.memory_bytes();
            queue.push(&request);
            assert_eq!(queue.memory_bytes() - before, RequestQueue::memory_bytes_of(&request));
        }
        let args = |index| -> Vec<Vec<u8>> { queue.get(index).unwrap().args().map(<[u8]>::to_vec).collect() };
        assert_eq!(queue.len(), 3);
        assert_eq!(args(0), [&b"GET"[..], b""]);
        assert_eq!(args(1), [&b"set"[..], b"key", b"a b"]);
        assert_eq!(args(2), [b"PI\0G"]);
        assert!(queue.get(3).is_none());
        queue.clear();
        let mut words = queue.begin();
        words.push(b"set");
        words.push(b"k");
        words.end();
        assert_eq!(queue.get(0).map(|request| request[1].to_vec()), Some(b"k".to_vec()));
        assert_eq!(queue.len(), 1);
    }
}
