//! CONFIG REWRITE: the settings as they are, in the file that they came from.
//!
//! A line of a setting that can change gets the value that the setting has; further lines of it go. Other
//! lines stay as they are. Settings that the file does not have are added if they differ from the defaults.
//! The new file replaces the old one as a whole, so that a crash leaves one of them.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::quotation::write_quoted;

/// The line in front of settings that were added.
const ADDED: &str = "# Added by CONFIG REWRITE";

type Setting = (&'static str, String);

/// Writes the settings into the file.
///
/// # Errors
/// The system's. The file is then as before.
pub(crate) fn rewrite(file: &Path, current: &[Setting], defaults: &[Setting]) -> io::Result<()> {
    let old = match std::fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let text = rewritten(&old, current, defaults);
    replace_file(file, &text)
}

/// Writes a file in the place of another one, durably and as a whole.
///
/// # Errors
/// The system's. The file is then as before.
pub(crate) fn replace_file(file: &Path, text: &[u8]) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let fresh = folder.join(format!(".{name}.{}", std::process::id()));
    let written = write_fresh(&fresh, file, text).and_then(|()| std::fs::rename(&fresh, file));
    if written.is_err() {
        // The half of a file is of no use; that it could not be written is the error to report.
        let _ = std::fs::remove_file(&fresh);
        return written;
    }
    File::open(folder)?.sync_all()
}

/// Writes a file with the permissions of another, which may keep a password from others.
fn write_fresh(fresh: &Path, like: &Path, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(fresh)?;
    if let Ok(metadata) = like.metadata() {
        file.set_permissions(metadata.permissions())?;
    }
    file.write_all(text)?;
    file.sync_all()
}

fn rewritten(old: &[u8], current: &[Setting], defaults: &[Setting]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut seen = vec![false; current.len()];
    let old = old.strip_suffix(b"\n").unwrap_or(old);
    for line in old.split(|&byte| byte == b'\n').filter(|_| !old.is_empty()) {
        let name = line.trim_ascii().split(u8::is_ascii_whitespace).next().unwrap_or_default();
        let at = current.iter().position(|(setting, _)| setting.as_bytes().eq_ignore_ascii_case(name));
        match at {
            None => text.extend_from_slice(&[line, b"\n"].concat()),
            Some(at) if seen[at] => {}
            Some(at) => {
                seen[at] = true;
                write_setting(&mut text, &current[at]);
            }
        }
    }
    let is_default = |setting: &Setting| defaults.contains(setting);
    let missing = current.iter().zip(&seen).filter(|(setting, seen)| !**seen && !is_default(setting));
    let mut has_heading = old.windows(ADDED.len()).any(|part| part == ADDED.as_bytes());
    for (setting, _) in missing {
        if !std::mem::replace(&mut has_heading, true) {
            text.extend_from_slice(format!("{ADDED}\n").as_bytes());
        }
        write_setting(&mut text, setting);
    }
    text
}

fn write_setting(text: &mut Vec<u8>, (name, value): &Setting) {
    if *name == "user" {
        // A line for each of them, whose words are quoted where they need be.
        for line in value.lines() {
            text.extend_from_slice(format!("user {line}\n").as_bytes());
        }
        return;
    }
    text.extend_from_slice(name.as_bytes());
    text.push(b' ');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/%".contains(&byte);
    match *name {
        // Several values.
        "client-output-buffer-limit" => text.extend_from_slice(value.as_bytes()),
        _ if !value.is_empty() && value.bytes().all(is_plain) => text.extend_from_slice(value.as_bytes()),
        _ => write_quoted(text, value.as_bytes()),
    }
    text.push(b'\n');
}

/// Separates a line at blanks, and quotes the words that a line could not hold as they are.
pub(crate) fn quoted_words(line: &[u8]) -> String {
    let is_plain = |byte: &u8| matches!(byte, b'!'..=b'~') && !b"\"'\\".contains(byte);
    let show = |word: &[u8]| match !word.is_empty() && word.iter().all(is_plain) {
        true => String::from_utf8_lossy(word).into_owned(),
        false => {
            let mut quoted = Vec::new();
            write_quoted(&mut quoted, word);
            String::from_utf8_lossy(&quoted).into_owned()
        }
    };
    line.split(|&byte| byte == b' ').map(show).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_settings_find_their_lines_and_the_others_stay() {
        let settings = |values: &[(&'static str, &str)]| -> Vec<Setting> {
            values.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
        };
        let defaults = settings(&[("timeout", "0"), ("requirepass", ""), ("maxclients", "10000")]);
        let current = settings(&[("timeout", "7"), ("requirepass", "a \"b"), ("maxclients", "10000")]);
        let old = b"# mine\nTimeout 1\nsave 3600 1\n\ntimeout 2";
        let new = rewritten(old, &current, &defaults);
        let expected =
            "# mine\ntimeout 7\nsave 3600 1\n\n# Added by CONFIG REWRITE\nrequirepass \"a \\\"b\"\n";
        assert_eq!(String::from_utf8_lossy(&new), expected);
        assert_eq!(rewritten(&new, &current, &defaults), new, "a second time changes nothing");
        assert_eq!(rewritten(b"", &defaults, &defaults), b"");
    }
}
