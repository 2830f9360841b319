//! The first line of a script, which may say what it does: `#!lua flags=no-writes`.

/// A script's own description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The script has this line, and its flags hold. A script without the line may do what its commands may
    /// do.
    pub has_flags: bool,
    /// The script runs no command that writes.
    pub no_writes: bool,
    /// The script may run while there is no memory.
    pub allow_oom: bool,
    /// The script may run on a replica whose data is stale.
    pub allow_stale: bool,
    /// The script does not run on a node of a cluster.
    pub no_cluster: bool,
    /// The script's keys may have several slots of a cluster.
    pub allow_cross_slot: bool,
}

impl Header {
    /// Reads the header of a script; returns the text that is Lua, too, which keeps the numbers of its lines.
    ///
    /// # Errors
    /// The header is wrong, with the line for the client.
    pub fn read(text: &[u8]) -> Result<(Header, &[u8]), Vec<u8>> {
        if !text.starts_with(b"#!") {
            return Ok((Header::default(), text));
        }
        let end = text.iter().position(|&byte| byte == b'\n');
        let end = end.ok_or_else(|| b"ERR Invalid script shebang".to_vec())?;
        let mut words = text[..end].split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let engine = words.next().unwrap_or_default();
        if engine != b"#!lua" {
            return Err([b"ERR Unexpected engine in script shebang: ", engine].concat());
        }
        let mut header = Header { has_flags: true, ..Header::default() };
        for word in words {
            let Some(flags) = word.strip_prefix(b"flags=") else {
                return Err([b"ERR Unknown lua shebang option: ", word].concat());
            };
            for flag in flags.split(|&byte| byte == b',').filter(|flag| !flag.is_empty()) {
                match flag {
                    b"no-writes" => header.no_writes = true,
                    b"allow-oom" => header.allow_oom = true,
                    b"allow-stale" => header.allow_stale = true,
                    b"no-cluster" => header.no_cluster = true,
                    b"allow-cross-slot-keys" => header.allow_cross_slot = true,
                    _ => return Err([b"ERR Unexpected flag in script shebang: ", flag].concat()),
                }
            }
        }
        Ok((header, &text[end..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_lines_keep_their_numbers() {
        let (header, body) = Header::read(b"#!lua flags=no-writes,allow-stale\nreturn 1").unwrap();
        let expected = Header { has_flags: true, no_writes: true, allow_stale: true, ..Header::default() };
        assert_eq!((header, body), (expected, &b"\nreturn 1"[..]));
        let (header, _) = Header::read(b"#!lua flags=no-cluster,allow-cross-slot-keys\n").unwrap();
        assert!(header.no_cluster && header.allow_cross_slot);
        assert_eq!(Header::read(b"return 1"), Ok((Header::default(), &b"return 1"[..])));
        for (text, why) in [
            (&b"#!lua"[..], "ERR Invalid script shebang"),
            (b"#!foo\n", "ERR Unexpected engine in script shebang: #!foo"),
            (b"#!lua x=1\n", "ERR Unknown lua shebang option: x=1"),
            (b"#!lua flags=foo\n", "ERR Unexpected flag in script shebang: foo"),
        ] {
            assert_eq!(Header::read(text), Err(why.as_bytes().to_vec()));
        }
    }
}
