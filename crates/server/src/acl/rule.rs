//! Rules of users: their words, and why one is wrong.

/// Why a rule is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    Syntax,
    /// There is no such command or category.
    Unknown,
    OfSubcommand,
    AfterAllKeys,
    AfterAllChannels,
    NoPassword,
    Hash,
}

impl RuleError {
    /// The words of Redis.
    pub(crate) fn text(self) -> &'static str {
        match self {
            RuleError::Syntax => "Syntax error",
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::OfSubcommand => "Allowing first-arg of a subcommand is not supported",
            RuleError::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
                 Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoPassword => "The password you are trying to remove from the user does not exist",
            RuleError::Hash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
        }
    }
}

/// Whether a user may have this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.iter().any(|byte| matches!(byte, 0 | b' ' | 9..=13))
}

/// Joins the words of selectors: `(+get`, `~x)` is one rule. The error is the place of a parenthesis that
/// nothing closes.
pub(crate) fn join_selectors<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, usize> {
    let mut rules: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (at, word) in words.enumerate() {
        let closes = word.last() == Some(&b')');
        match open.take() {
            Some((since, rule)) => {
                let rule = [&rule[..], b" ", word].concat();
                if closes { rules.push(rule) } else { open = Some((since, rule)) }
            }
            None if word.first() == Some(&b'(') && !closes => open = Some((at, word.to_vec())),
            None => rules.push(word.to_vec()),
        }
    }
    open.map_or(Ok(rules), |(since, _)| Err(since))
}
