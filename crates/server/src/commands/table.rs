//! The shape of a command: the facts that COMMAND reports to clients, and the facts that the server needs.

/// Facts about a command, as bits.
pub(crate) mod flag {
    /// Changes keys.
    pub(crate) const WRITE: u32 = 1;
    /// Reads keys.
    pub(crate) const READONLY: u32 = 1 << 1;
    /// Needs memory.
    pub(crate) const DENYOOM: u32 = 1 << 2;
    /// For administrators.
    pub(crate) const ADMIN: u32 = 1 << 3;
    /// Not for scripts.
    pub(crate) const NOSCRIPT: u32 = 1 << 4;
    /// Allowed while data is being loaded.
    pub(crate) const LOADING: u32 = 1 << 5;
    /// Allowed on stale replicas.
    pub(crate) const STALE: u32 = 1 << 6;
    /// Takes constant or logarithmic time.
    pub(crate) const FAST: u32 = 1 << 7;
    /// Allowed before authentication.
    pub(crate) const NO_AUTH: u32 = 1 << 8;
    /// Allowed while a script is hanging.
    pub(crate) const ALLOW_BUSY: u32 = 1 << 9;
    /// Not in transactions.
    pub(crate) const NO_MULTI: u32 = 1 << 10;
    /// Not in the log of slow commands.
    pub(crate) const SKIP_SLOWLOG: u32 = 1 << 11;
    /// The keys are where an argument says.
    pub(crate) const MOVABLE_KEYS: u32 = 1 << 12;

    /// See [`KEYSPACE`].
    pub(crate) const HASH: u32 = 1 << 13;
    /// See [`KEYSPACE`].
    pub(crate) const SET: u32 = 1 << 14;
    /// Not allowed while new data is being loaded and the old data still served.
    pub(crate) const NO_ASYNC_LOADING: u32 = 1 << 15;
    /// Categories that no other bit implies.
    pub(crate) const KEYSPACE: u32 = 1 << 16;
    /// See [`KEYSPACE`].
    pub(crate) const STRING: u32 = 1 << 17;
    /// See [`KEYSPACE`].
    pub(crate) const CONNECTION: u32 = 1 << 18;
    /// See [`KEYSPACE`].
    pub(crate) const DANGEROUS: u32 = 1 << 19;
    /// See [`KEYSPACE`].
    pub(crate) const TRANSACTION: u32 = 1 << 20;
    /// See [`KEYSPACE`].
    pub(crate) const SCRIPTING: u32 = 1 << 21;

    /// For administrators, without the flag of that name.
    pub(crate) const ADMIN_ONLY: u32 = 1 << 23;
    /// About messages; also a flag.
    pub(crate) const PUBSUB: u32 = 1 << 22;

    /// Runs at once within MULTI, where other commands are queued. Of no concern to clients, like those
    /// below.
    pub(crate) const AT_ONCE: u32 = 1 << 24;
    /// Runs the commands that were queued since MULTI.
    pub(crate) const RUNS_QUEUE: u32 = 1 << 25;
    /// Goes through the keys of a database.
    pub(crate) const WALKS: u32 = 1 << 26;
    /// The command's reply waits for the commit, as the replies of commands that read keys do.
    pub(crate) const AFTER_COMMIT: u32 = 1 << 27;
    /// Allowed to subscribers that speak RESP2.
    pub(crate) const FOR_SUBSCRIBERS: u32 = 1 << 28;
    /// Ends subscriptions.
    pub(crate) const UNSUBSCRIBES: u32 = 1 << 29;
    /// The arguments at the places of keys only choose a slot of a cluster, as keys would.
    pub(crate) const NOT_KEYS: u32 = 1 << 30;
    /// May wait for a key.
    pub(crate) const BLOCKING: u32 = 1 << 31;

    /// Runs a script: no other commands are about scripts and have keys.
    pub(crate) const RUNS_SCRIPT: u32 = MOVABLE_KEYS | SCRIPTING;
}

/// Names of the flags, in the order of COMMAND's reply.
const FLAG_NAMES: &[(u32, &str)] = &[
    (flag::WRITE, "write"),
    (flag::READONLY, "readonly"),
    (flag::DENYOOM, "denyoom"),
    (flag::ADMIN, "admin"),
    (flag::PUBSUB, "pubsub"),
    (flag::NOSCRIPT, "noscript"),
    (flag::BLOCKING, "blocking"),
    (flag::LOADING, "loading"),
    (flag::STALE, "stale"),
    (flag::RUNS_SCRIPT, "skip_monitor"),
    (flag::SKIP_SLOWLOG, "skip_slowlog"),
    (flag::FAST, "fast"),
    (flag::NO_AUTH, "no_auth"),
    (flag::NO_ASYNC_LOADING, "no_async_loading"),
    (flag::NO_MULTI, "no_multi"),
    (flag::RUNS_SCRIPT, "no_mandatory_keys"),
    (flag::ALLOW_BUSY, "allow_busy"),
    (flag::MOVABLE_KEYS, "movablekeys"),
];

/// Which arguments are keys: from `first` to `last` (negative: from the end), each `step`-th. All 0 if none
/// are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyRange {
    pub(crate) first: i32,
    pub(crate) last: i32,
    pub(crate) step: i32,
}

impl KeyRange {
    /// The positions of the keys in a request of `count` arguments; empty if there are none.
    pub(crate) fn positions(self, count: usize) -> impl Iterator<Item = usize> {
        let first = usize::try_from(self.first).unwrap_or(0);
        let last = match usize::try_from(self.last) {
            Ok(last) => last.min(count - 1),
            Err(_) => count.saturating_sub(self.last.unsigned_abs() as usize),
        };
        let step = usize::try_from(self.step).unwrap_or(0).max(1);
        (first..=last).step_by(step).filter(|&position| position > 0)
    }
}

/// One command, or one subcommand, whose name then is `container|subcommand`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// How many arguments it takes, its name included; at least this many if negative.
    pub(crate) arity: i32,
    pub(crate) flags: u32,
    /// A look at a key does not count as a use for eviction.
    pub(crate) only_looks: bool,
    pub(crate) keys: KeyRange,
    pub(crate) tips: &'static [&'static str],
    pub(crate) summary: &'static str,
    pub(crate) since: &'static str,
    pub(crate) group: &'static str,
    pub(crate) subcommands: &'static [Command],
}

impl Command {
    pub(super) const fn new(name: &'static str, arity: i32, flags: u32) -> Self {
        let keys = KeyRange { first: 0, last: 0, step: 0 };
        Command {
            name,
            arity,
            flags,
            only_looks: false,
            keys,
            tips: &[],
            summary: "",
            since: "",
            group: "server",
            subcommands: &[],
        }
    }

    /// Where its keys are.
    pub(super) const fn keys(mut self, first: i32, last: i32, step: i32) -> Self {
        self.keys = KeyRange { first, last, step };
        self
    }

    /// The command's look at a key does not count as a use of the key.
    pub(super) const fn only_looks(mut self) -> Self {
        self.only_looks = true;
        self
    }

    pub(super) const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    /// The contents of COMMAND DOCS: the group, the first version of Redis that had the command, and its
    /// purpose.
    pub(super) const fn doc(
        mut self,
        group: &'static str,
        since: &'static str,
        summary: &'static str,
    ) -> Self {
        (self.group, self.since, self.summary) = (group, since, summary);
        self
    }

    pub(super) const fn subcommands(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self
    }

    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether the executor runs a script for it, instead of its handler.
    #[inline]
    pub(crate) fn runs_script(&self) -> bool {
        self.flags & flag::RUNS_SCRIPT == flag::RUNS_SCRIPT
    }

    /// Whether a request of `count` arguments is well formed.
    pub(crate) fn takes(&self, count: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { count >= wanted } else { count == wanted }
    }

    pub(crate) fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        FLAG_NAMES.iter().filter(|(flags, _)| self.flags & flags == *flags).map(|(_, name)| *name)
    }

    /// The ACL categories it belongs to, in Redis's order.
    pub(crate) fn categories(&self) -> impl Iterator<Item = &'static str> {
        let fast = self.has(flag::FAST);
        // SORT takes collections of all these types.
        let sorts = matches!(self.name, "sort" | "sort_ro");
        [
            (self.has(flag::KEYSPACE), "keyspace"),
            (self.has(flag::READONLY) && !self.has(flag::SCRIPTING), "read"),
            (self.has(flag::WRITE), "write"),
            (self.has(flag::STRING), "string"),
            (self.has(flag::HASH), "hash"),
            (self.has(flag::SET), "set"),
            (self.group == "sorted-set" || sorts, "sortedset"),
            (self.group == "list" || sorts, "list"),
            (self.group == "bitmap", "bitmap"),
            (self.group == "hyperloglog", "hyperloglog"),
            (self.group == "geo", "geo"),
            (self.has(flag::ADMIN | flag::ADMIN_ONLY), "admin"),
            (self.has(flag::PUBSUB), "pubsub"),
            (fast, "fast"),
            (!fast, "slow"),
            (self.has(flag::BLOCKING), "blocking"),
            (self.has(flag::ADMIN | flag::DANGEROUS), "dangerous"),
            (self.has(flag::CONNECTION), "connection"),
            (self.has(flag::TRANSACTION), "transaction"),
            (self.has(flag::SCRIPTING), "scripting"),
        ]
        .into_iter()
        .filter_map(|(is_in, name)| is_in.then_some(name))
    }

    /// The part of a subcommand's name that the client sends.
    pub(crate) fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, name)| name)
    }

    /// The subcommand that a client calls `name`.
    pub(crate) fn subcommand(&self, name: &[u8]) -> Option<&'static Command> {
        self.subcommands.iter().find(|command| command.own_name().as_bytes().eq_ignore_ascii_case(name))
    }
}
