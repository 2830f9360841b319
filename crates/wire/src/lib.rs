//! RESP codecs: bytes to requests and replies to bytes, with no I/O.
