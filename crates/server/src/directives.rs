//! Configuration files in Redis's form: a directive and its values on each line.
//!
//! Every directive of Redis 7.0 is one of these:
//!
//! - a *setting* of this server ([`crate::commands::config`]);
//! - *without meaning* here, for a reason that [`crate::foreign_directives`] gives; it is taken and changes
//!   nothing;
//! - *refused*: to go on without it would be dangerous, as with commands that were to have other names.
//!
//! Anything else is an error that names the nearest directive.

use std::path::{Path, PathBuf};

use tembo_wire::{Limits, Parsed, Request, RequestParser};

use crate::commands::config as settings;
use crate::config::Config;
use crate::foreign_directives::{REFUSED, WITHOUT_MEANING, why_not};

/// Files that include each other.
const INCLUDES_MAX: usize = 16;

/// Why a configuration file was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A line is wrong. The message has no values: they may be secret.
    #[error("{}:{line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The mistake.
        why: String,
    },
}

/// The directive whose name is most like this one.
fn nearest(name: &str) -> Option<&'static str> {
    let known = WITHOUT_MEANING.iter().flat_map(|(_, names)| names.iter().copied());
    let known = known.chain(REFUSED.iter().map(|(name, _)| *name)).chain(settings::names());
    let likeness = |known: &str| strsim::jaro_winkler(known, &name.to_ascii_lowercase());
    let nearest = known.chain(["include", "user"]).max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(nearest) > 0.7).then_some(nearest)
}

/// Splits a line into words by the rules of inline commands.
fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let line = [line, b"\n"].concat();
    let limits = Limits { max_line_bytes: usize::MAX, ..Limits::default() };
    match RequestParser::new().parse(&line, &limits) {
        Ok(Parsed::Request(request)) => Ok(Request::args(&request).map(<[u8]>::to_vec).collect()),
        Ok(_) => Ok(Vec::new()),
        Err(_) => Err("the quotes are not balanced".to_owned()),
    }
}

impl Config {
    /// Takes the settings of a file with Redis's directives. Those that are without meaning here are named in
    /// the log when the server starts.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read, or a line is wrong, unknown or refused. The configuration
    /// has then some of the settings.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        self.file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        self.read_included(path, 0)
    }

    fn read_included(&mut self, path: &Path, depth: usize) -> Result<(), ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        let text = std::fs::read(path).map_err(read)?;
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let wrong = |why| ConfigError::Line { path: path.to_owned(), line: index + 1, why };
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let words = words(line).map_err(wrong)?;
            let Some((name, values)) = words.split_first() else {
                continue;
            };
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            if name == "include" {
                for value in values {
                    if depth == INCLUDES_MAX {
                        return Err(wrong("files include each other too deeply".to_owned()));
                    }
                    self.read_included(Path::new(&*String::from_utf8_lossy(value)), depth + 1)?;
                }
                continue;
            }
            if name == "user" {
                self.take_user(values).map_err(wrong)?;
                continue;
            }
            self.take_directive(&name, &values.join(&b' ')).map_err(wrong)?;
        }
        Ok(())
    }

    /// Takes a `user` directive: a name and rules.
    fn take_user(&mut self, words: &[Vec<u8>]) -> Result<(), String> {
        if let Some(name) = words.first()
            && !self.user_lines.insert(name.clone())
        {
            let name = name.escape_ascii();
            return Err(format!(
                "Error in user declaration '{name}': Duplicate user found. A user can only be defined once in config files"
            ));
        }
        self.users.take_directive(words, self.acl.all_channels)
    }

    /// Takes one directive, as a line of a configuration file would have it.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn take_directive(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        if let Some(set) = settings::setter_at_start(name) {
            return set(self, value).map_err(|why| format!("{name}: {why}"));
        }
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            return Err(format!("{name} cannot be obeyed here: {why}"));
        }
        if why_not(name).is_some() {
            self.without_meaning.push(name.to_owned());
            return Ok(());
        }
        let hint = nearest(name).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        Err(format!("unknown directive {name}{hint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest() {
        let mut config = Config::default();
        for (name, near) in [("maxmemroy", "maxmemory"), ("requirepas", "requirepass"), ("bindd", "bind")] {
            let why = config.take_directive(name, b"x").unwrap_err();
            assert_eq!(why, format!("unknown directive {name}; did you mean {near}?"));
        }
        assert_eq!(config.take_directive("qqqqq", b"").unwrap_err(), "unknown directive qqqqq");
    }

    #[test]
    fn what_would_be_dangerous_to_ignore_is_refused() {
        let mut config = Config::default();
        for name in ["rename-command", "loadmodule"] {
            let why = config.take_directive(name, b"secret").unwrap_err();
            assert!(why.starts_with(&format!("{name} cannot be obeyed here: ")) && !why.contains("secret"));
        }
        config.take_directive("maxmemory-policy", b"allkeys-lru").unwrap();
    }

    #[test]
    fn a_directive_has_one_place() {
        let mut names: Vec<_> = WITHOUT_MEANING.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        names.extend(REFUSED.iter().map(|(name, _)| *name));
        for name in &names {
            assert!(settings::setter_at_start(name).is_none(), "{name} is a setting");
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
