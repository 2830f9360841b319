//! Settings about users, and their lines in the configuration file.

use std::path::Path;

use super::parameter::{Parameter, integer};
use crate::acl::users::Users;
use crate::acl_file;
use crate::config_file::quoted_words;
use crate::password::Password;
use crate::state::State;

/// Most denials that ACL LOG may have.
const ACL_LOG_LEN_MAX: i64 = 100_000;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::settable(
        "acl-pubsub-default",
        |state| if state.config.acl.all_channels { "allchannels" } else { "resetchannels" }.to_owned(),
        |config, value| {
            config.acl.all_channels = match value.to_ascii_lowercase().as_slice() {
                b"allchannels" => true,
                b"resetchannels" => false,
                _ => {
                    return Err(
                        "argument(s) must be one of the following: allchannels, resetchannels".to_owned()
                    );
                }
            };
            Ok(())
        },
    ),
    Parameter::at_start(
        "aclfile",
        |state| state.config.acl_file.as_deref().unwrap_or(Path::new("")).display().to_string(),
        |config, value| {
            config.acl_file = acl_file::path_of(value);
            Ok(())
        },
    ),
    Parameter::settable(
        "acllog-max-len",
        |state| state.config.acl.log_len_max.to_string(),
        |config, value| {
            config.acl.log_len_max = integer(value, 0, ACL_LOG_LEN_MAX)? as usize;
            Ok(())
        },
    ),
];

/// Adds the users to the settings as they are and to their defaults. Those of an ACL file are saved there.
pub(super) fn add_lines(
    state: &State,
    current: &mut Vec<(&'static str, String)>,
    defaults: &mut Vec<(&'static str, String)>,
) {
    let has_own = state.config.acl_file.is_none();
    let password = state.config.password.as_ref().map(Password::bytes);
    current.push(user_lines(has_own.then_some(&state.users)));
    defaults.push(user_lines(has_own.then(|| Users::new(password)).as_ref()));
}

/// The `user` lines of a configuration file, of which it has as many as there are users.
fn user_lines(users: Option<&Users>) -> (&'static str, String) {
    let lines = users.into_iter().flat_map(Users::lines);
    let lines: Vec<_> = lines.map(|line| quoted_words(&line[b"user ".len()..])).collect();
    ("user", lines.join("\n"))
}
