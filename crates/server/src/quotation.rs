//! Arguments as they are shown: quoted, and without secrets.

use tembo_wire::Request;

use crate::commands::table::Command;

/// Whether an argument is a password, or the name of its user.
pub(crate) fn is_secret(command: &Command, request: &Request<'_>, at: usize) -> bool {
    let is_auth = |arg: &[u8]| arg.eq_ignore_ascii_case(b"AUTH");
    match command.name {
        "auth" => at > 0,
        // Rules may be passwords.
        "acl|setuser" => at > 1,
        // The values of CONFIG SET, of which one may be the password.
        "config|set" => at > 2 && at % 2 == 1,
        "hello" => (1..=2).any(|back| at > 1 + back && is_auth(&request[at - back])),
        _ => false,
    }
}

/// Appends a text in double quotes, with escapes for unprintable bytes.
pub(crate) fn write_quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_as_redis_shows_them() {
        let mut out = Vec::new();
        write_quoted(&mut out, b"a \"\\\n\r\t\x07\x08\0\xff");
        assert_eq!(out, br#""a \"\\\n\r\t\a\b\x00\xff""#);
    }
}
