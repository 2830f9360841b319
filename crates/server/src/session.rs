//! What the server knows about one client, apart from its socket and buffers.

use std::net::SocketAddr;
use std::time::Instant;

use tembo_wire::Protocol;

/// A client's state.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// The socket's file descriptor, for CLIENT LIST.
    pub(crate) fd: i32,
    pub(crate) since: Instant,
    /// When it last sent something or took output.
    pub(crate) active: Instant,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    pub(crate) name: Vec<u8>,
    pub(crate) library_name: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    /// The command it ran last.
    pub(crate) command: &'static str,
    pub(crate) no_evict: bool,
    /// It is to be disconnected once its output is sent.
    pub(crate) quitting: bool,
    /// It is to be disconnected now.
    pub(crate) killed: bool,
}

impl Session {
    pub(crate) fn new(id: u64, peer: SocketAddr, local: SocketAddr, fd: i32, now: Instant) -> Self {
        Session {
            id,
            peer,
            local,
            fd,
            since: now,
            active: now,
            database: 0,
            protocol: Protocol::Resp2,
            name: Vec::new(),
            library_name: Vec::new(),
            library_version: Vec::new(),
            command: "NULL",
            no_evict: false,
            quitting: false,
            killed: false,
        }
    }

    /// Whether the client runs on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.peer.ip().to_canonical().is_loopback()
    }
}

/// How much a connection buffers, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BufferSizes {
    pub(crate) input: usize,
    pub(crate) input_capacity: usize,
    pub(crate) output: usize,
    pub(crate) output_capacity: usize,
}

impl Session {
    /// A line of CLIENT LIST, with its line end.
    pub(crate) fn describe(&self, now: Instant, buffers: BufferSizes) -> Vec<u8> {
        let seconds = |since| now.saturating_duration_since(since).as_secs();
        let flags = if self.quitting { "c" } else { "N" };
        let input_free = buffers.input_capacity - buffers.input;
        let memory = buffers.input_capacity + buffers.output_capacity + size_of::<Self>();
        let name = String::from_utf8_lossy(&self.name);
        let library_name = String::from_utf8_lossy(&self.library_name);
        let library_version = String::from_utf8_lossy(&self.library_version);
        format!(
            "id={} addr={} laddr={} fd={} name={name} age={} idle={} flags={flags} db={} sub=0 psub=0 ssub=0 \
             multi=-1 qbuf={} qbuf-free={input_free} argv-mem=0 multi-mem=0 rbs={} rbp=0 obl={} oll=0 omem={} \
             tot-mem={memory} events=rw cmd={} user=default redir=-1 resp={} lib-name={library_name} \
             lib-ver={library_version}\n",
            self.id,
            self.peer,
            self.local,
            self.fd,
            seconds(self.since),
            seconds(self.active),
            self.database,
            buffers.input,
            buffers.output_capacity,
            buffers.output,
            buffers.output,
            self.command,
            self.protocol.version(),
        )
        .into_bytes()
    }
}
