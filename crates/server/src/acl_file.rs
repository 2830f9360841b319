//! The users' files: the ACL file, which ACL LOAD and ACL SAVE read and write, and the users of the
//! configuration.

use std::path::{Path, PathBuf};

use crate::acl::user::DEFAULT;
use crate::acl::users::Users;
use crate::config::Config;
use crate::config_file::replace_file;
use crate::error::Error;
use crate::password::Password;

/// The users that a server begins with.
pub(crate) fn users_at_start(config: &Config) -> Result<Users, Error> {
    if config.acl_file.is_some() && !config.user_lines.is_empty() {
        let why =
            "users are defined in the configuration file and in an ACL file (aclfile): choose one of them";
        return Err(Error::Users(why.to_owned()));
    }
    if let Some(file) = &config.acl_file {
        let cannot = |why: Vec<u8>| Error::Users(String::from_utf8_lossy(&why).into_owned());
        return load(file, config).map_err(cannot);
    }
    let mut users = config.users.clone();
    if !config.user_lines.contains(DEFAULT) {
        users.put(users.with_password(config.password.as_ref().map(Password::bytes)));
    }
    Ok(users)
}

/// Reads an ACL file: all of it, or the text of the error, which has no secrets.
pub(crate) fn load(file: &Path, config: &Config) -> Result<Users, Vec<u8>> {
    let name = file.display().to_string();
    let cannot = |error| format!("Error loading ACLs, opening file '{name}': {}", of_system(&error));
    let text = std::fs::read(file).map_err(|error| cannot(error).into_bytes())?;
    Users::read(&text, &name, config.acl.all_channels, config.password.as_ref().map(Password::bytes))
}

/// Writes the users into an ACL file, durably, and as a whole: a crash leaves the old file or the new one.
pub(crate) fn save(file: &Path, users: &Users) -> std::io::Result<()> {
    let text: Vec<u8> = users.lines().flat_map(|line| [&line[..], b"\n"].concat()).collect();
    replace_file(file, &text)
}

/// The path of an ACL file as a directive names it.
pub(crate) fn path_of(value: &[u8]) -> Option<PathBuf> {
    (!value.is_empty()).then(|| PathBuf::from(&*String::from_utf8_lossy(value)))
}

/// An error of the system, without its number.
fn of_system(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl Config {
    /// Whether a server can begin with these users, and with those of the ACL file.
    ///
    /// # Errors
    /// [`Error::Users`], as [`Server::with_listener`](crate::Server::with_listener) returns it.
    pub fn check_users(&self) -> Result<(), Error> {
        users_at_start(self).map(drop)
    }
}
