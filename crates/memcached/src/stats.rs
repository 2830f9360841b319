//! Counters, which start with the server.

/// The counters of `stats`, by memcached's names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) curr_connections: u64,
    pub(crate) total_connections: u64,
    pub(crate) rejected_connections: u64,
    pub(crate) cmd_get: u64,
    pub(crate) cmd_set: u64,
    pub(crate) cmd_flush: u64,
    pub(crate) cmd_touch: u64,
    pub(crate) cmd_meta: u64,
    pub(crate) get_hits: u64,
    pub(crate) get_misses: u64,
    pub(crate) delete_hits: u64,
    pub(crate) delete_misses: u64,
    pub(crate) incr_hits: u64,
    pub(crate) incr_misses: u64,
    pub(crate) decr_hits: u64,
    pub(crate) decr_misses: u64,
    pub(crate) cas_hits: u64,
    pub(crate) cas_misses: u64,
    pub(crate) cas_badval: u64,
    pub(crate) touch_hits: u64,
    pub(crate) touch_misses: u64,
    pub(crate) auth_cmds: u64,
    pub(crate) auth_errors: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) total_items: u64,
    pub(crate) reclaimed: u64,
    pub(crate) store_too_large: u64,
    pub(crate) store_no_memory: u64,
}

/// Figures of a server, for those who monitor it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// The number of present items.
    pub items: u64,
    /// Clients that are connected.
    pub clients: u64,
    /// Connections that were made and served.
    pub connections: u64,
    /// Connections beyond the limit.
    pub rejected_connections: u64,
    /// Keys that a client asked for and that had an item.
    pub hits: u64,
    /// Keys that had none.
    pub misses: u64,
    /// Items that were stored.
    pub stored_items: u64,
    /// Items that made room for others.
    pub evicted_items: u64,
    /// Items whose time had come and that were removed.
    pub expired_items: u64,
    /// Clients that gave a wrong account.
    pub failed_authentications: u64,
    /// Bytes from clients.
    pub received_bytes: u64,
    /// Bytes to clients.
    pub sent_bytes: u64,
}

impl Stats {
    /// The figures, with the number of items, and the number of items that were evicted.
    pub(crate) fn figures(&self, items: u64, evicted_items: u64) -> Figures {
        Figures {
            items,
            clients: self.curr_connections,
            connections: self.total_connections,
            rejected_connections: self.rejected_connections,
            hits: self.get_hits,
            misses: self.get_misses,
            stored_items: self.total_items,
            evicted_items,
            expired_items: self.reclaimed,
            failed_authentications: self.auth_errors,
            received_bytes: self.bytes_read,
            sent_bytes: self.bytes_written,
        }
    }

    /// Names and values, in memcached's order.
    pub(crate) fn counters(&self) -> [(&'static str, u64); 29] {
        [
            ("curr_connections", self.curr_connections),
            ("total_connections", self.total_connections),
            ("rejected_connections", self.rejected_connections),
            ("cmd_get", self.cmd_get),
            ("cmd_set", self.cmd_set),
            ("cmd_flush", self.cmd_flush),
            ("cmd_touch", self.cmd_touch),
            ("cmd_meta", self.cmd_meta),
            ("get_hits", self.get_hits),
            ("get_misses", self.get_misses),
            ("delete_misses", self.delete_misses),
            ("delete_hits", self.delete_hits),
            ("incr_misses", self.incr_misses),
            ("incr_hits", self.incr_hits),
            ("decr_misses", self.decr_misses),
            ("decr_hits", self.decr_hits),
            ("cas_misses", self.cas_misses),
            ("cas_hits", self.cas_hits),
            ("cas_badval", self.cas_badval),
            ("touch_hits", self.touch_hits),
            ("touch_misses", self.touch_misses),
            ("store_too_large", self.store_too_large),
            ("store_no_memory", self.store_no_memory),
            ("auth_cmds", self.auth_cmds),
            ("auth_errors", self.auth_errors),
            ("bytes_read", self.bytes_read),
            ("bytes_written", self.bytes_written),
            ("total_items", self.total_items),
            ("reclaimed", self.reclaimed),
        ]
    }

    /// Sets all counters back, except that of connected clients.
    pub(crate) fn reset(&mut self) {
        *self = Stats { curr_connections: self.curr_connections, ..Stats::default() };
    }

    pub(crate) fn note_get(&mut self, is_hit: bool) {
        self.cmd_get += 1;
        *(if is_hit { &mut self.get_hits } else { &mut self.get_misses }) += 1;
    }

    pub(crate) fn note_touch(&mut self, is_hit: bool) {
        self.cmd_touch += 1;
        *(if is_hit { &mut self.touch_hits } else { &mut self.touch_misses }) += 1;
    }

    pub(crate) fn note_delete(&mut self, is_hit: bool) {
        *(if is_hit { &mut self.delete_hits } else { &mut self.delete_misses }) += 1;
    }

    pub(crate) fn note_arithmetic(&mut self, is_decrement: bool, is_hit: bool) {
        let counter = match (is_decrement, is_hit) {
            (false, true) => &mut self.incr_hits,
            (false, false) => &mut self.incr_misses,
            (true, true) => &mut self.decr_hits,
            (true, false) => &mut self.decr_misses,
        };
        *counter += 1;
    }
}
