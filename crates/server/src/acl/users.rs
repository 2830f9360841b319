//! All users, and their lines in files.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::digest::PasswordDigest;
use super::rule::{RuleError, is_name, join_selectors};
use super::user::{DEFAULT, User};

/// A user that nothing is refused to: the server itself, and its master.
pub(crate) fn superuser() -> Arc<User> {
    static SUPERUSER: LazyLock<Arc<User>> = LazyLock::new(|| Arc::new(User::default_user()));
    SUPERUSER.clone()
}

/// All users.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    by_name: BTreeMap<Box<[u8]>, Arc<User>>,
    default: Arc<User>,
}

impl Users {
    /// The default user alone, with this password if there is one.
    pub(crate) fn new(password: Option<&[u8]>) -> Self {
        let mut user = User::default_user();
        set_password(&mut user, password);
        Users::with_default(user)
    }

    fn with_default(user: User) -> Self {
        let default = Arc::new(user);
        Users { by_name: BTreeMap::from([(DEFAULT.into(), default.clone())]), default }
    }

    pub(crate) fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Whether a client that has not authenticated may do nothing.
    #[inline]
    pub(crate) fn ask_for_password(&self) -> bool {
        !self.default.any_password || !self.default.is_on
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// Puts a user in the place of the one of its name; returns it as sessions have it.
    pub(crate) fn put(&mut self, user: User) -> Arc<User> {
        let user = Arc::new(user);
        self.by_name.insert(user.name.clone(), user.clone());
        if &*user.name == DEFAULT {
            self.default = user.clone();
        }
        user
    }

    /// Removes a user that is not the default one; tells whether it was there.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        name != DEFAULT && self.by_name.remove(name).is_some()
    }

    /// The user of this name, if this is one of its passwords. The check takes as long if no user has the
    /// name.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        let digest = PasswordDigest::of(password);
        let user = self.get(name);
        let is_right = user.unwrap_or(&self.default).has_password(&digest);
        user.filter(|user| is_right && user.is_on)
    }

    /// Gives the default user this password only, or none, as `requirepass` does.
    pub(crate) fn with_password(&self, password: Option<&[u8]>) -> User {
        let mut user = User::clone(&self.default);
        set_password(&mut user, password);
        user
    }

    /// The lines of an ACL file.
    pub(crate) fn lines(&self) -> impl ExactSizeIterator<Item = Vec<u8>> {
        self.iter().map(|user| [b"user ", &user.name[..], b" ", &user.describe()].concat())
    }

    /// Reads an ACL file whose name is `file`: all of it, or the text of its errors, which has no secrets. A
    /// file without a default user leaves that to `requirepass`.
    pub(crate) fn read(
        text: &[u8],
        file: &str,
        all_channels: bool,
        password: Option<&[u8]>,
    ) -> Result<Users, Vec<u8>> {
        let mut users: BTreeMap<Box<[u8]>, User> = BTreeMap::new();
        let mut errors = Vec::new();
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if !line.is_empty() {
                read_line(&mut users, line, (file, index + 1), all_channels, &mut errors);
            }
        }
        if !errors.is_empty() {
            let end =
                "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
            errors.extend_from_slice(end.as_bytes());
            return Err(errors);
        }
        let mut all = users.remove(DEFAULT).map_or_else(|| Users::new(password), Users::with_default);
        users.into_values().for_each(|user| drop(all.put(user)));
        Ok(all)
    }

    /// Takes the words of a `user` directive behind its name.
    pub(crate) fn take_directive(&mut self, words: &[Vec<u8>], all_channels: bool) -> Result<(), String> {
        let Some((name, words)) = words.split_first() else {
            return Err("a user has a name".to_owned());
        };
        let shown = name.escape_ascii();
        if !is_name(name) {
            return Err("Spaces not allowed in ACL usernames".to_owned());
        }
        let mut user = User::new(name, all_channels);
        if name == DEFAULT {
            // The default user existed before; it gets the rules of its line only.
            user.apply(b"reset", all_channels).map_err(|error| error.text().to_owned())?;
        }
        let unmatched = |_| format!("Unmatched parenthesis in a selector of the user named '{shown}'");
        let rules = join_selectors(words.iter().map(|word| &word[..])).map_err(unmatched)?;
        for rule in rules {
            user.apply(&rule, all_channels).map_err(|error| {
                // Only a rule that names an unknown command is surely no secret.
                let rule =
                    if error == RuleError::Unknown { rule.escape_ascii().to_string() } else { String::new() };
                let shown_rule = if rule.is_empty() { String::new() } else { format!(" '{rule}'") };
                format!("Error loading ACL rule{shown_rule} for the user named '{shown}': {}", error.text())
            })?;
        }
        self.put(user);
        Ok(())
    }
}

/// Reads a line of an ACL file.
fn read_line(
    users: &mut BTreeMap<Box<[u8]>, User>,
    line: &[u8],
    (file, number): (&str, usize),
    all_channels: bool,
    errors: &mut Vec<u8>,
) {
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(b"user"), Some(name)) = (words.next(), words.next()) else {
        let text = format!("{file}:{number} should start with user keyword followed by the username. ");
        return errors.extend_from_slice(text.as_bytes());
    };
    if !is_name(name) {
        let text =
            format!("'{file}:{number}: username '{}' contains invalid characters. ", name.escape_ascii());
        return errors.extend_from_slice(text.as_bytes());
    }
    if users.contains_key(name) {
        let text = format!("WARNING: Duplicate user '{}' found on line {number}. ", name.escape_ascii());
        return errors.extend_from_slice(text.as_bytes());
    }
    let mut user = User::new(name, all_channels);
    match join_selectors(words) {
        Ok(rules) => apply_all(&mut user, &rules, (file, number), all_channels, errors),
        Err(_) => {
            let text = format!("{file}:{number}: Unmatched parenthesis in selector definition.");
            errors.extend_from_slice(text.as_bytes());
        }
    }
    users.insert(name.into(), user);
}

/// Applies all rules of a line. Reports each unknown name, and the first other error without its rule, which
/// may be a secret.
fn apply_all(
    user: &mut User,
    rules: &[Vec<u8>],
    (file, number): (&str, usize),
    all_channels: bool,
    errors: &mut Vec<u8>,
) {
    let mut has_other = false;
    for rule in rules {
        match user.apply(rule, all_channels) {
            Ok(()) => {}
            Err(error @ RuleError::Unknown) => {
                let text = format!(
                    "{file}:{number}: Error in applying operation '{}': {}. ",
                    rule.escape_ascii(),
                    error.text()
                );
                errors.extend_from_slice(text.as_bytes());
            }
            Err(_) if has_other => {}
            Err(error) => {
                has_other = true;
                errors.extend_from_slice(format!("{file}:{number}: {}. ", error.text()).as_bytes());
            }
        }
    }
}

fn set_password(user: &mut User, password: Option<&[u8]>) {
    let rule = password.map_or(b"nopass".to_vec(), |password| [b">", password].concat());
    for rule in [&b"resetpass"[..], &rule] {
        // These are rules.
        let _ = user.apply(rule, true);
    }
}
