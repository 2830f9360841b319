//! The arguments of commands, as COMMAND DOCS describes them. The table and its notation are in
//! `arguments.txt`.

use tembo_wire::ReplyWriter;

const TABLE: &str = include_str!("arguments.txt");

/// An argument, or several.
#[derive(Debug, Default)]
pub(super) struct Argument {
    name: &'static str,
    kind: &'static str,
    /// Which of the command's specifications of keys it belongs to.
    specification: Option<i64>,
    token: Option<&'static str>,
    since: Option<&'static str>,
    deprecated_since: Option<&'static str>,
    flags: &'static str,
    arguments: Vec<Argument>,
}

/// The arguments of a command; none if there are none.
pub(super) fn arguments_of(command: &str) -> Vec<Argument> {
    let row = TABLE.lines().find_map(|line| line.strip_prefix(command)?.strip_prefix(' '));
    row.map_or_else(Vec::new, |mut row| read_all(&mut row))
}

/// Reads arguments up to the end of the text, or of the parentheses.
fn read_all(text: &mut &'static str) -> Vec<Argument> {
    let mut arguments = Vec::new();
    loop {
        *text = text.trim_start();
        if text.is_empty() {
            return arguments;
        }
        if let Some(rest) = text.strip_prefix(')') {
            *text = rest;
            return arguments;
        }
        let (head, rest) = text.split_at(text.find([' ', '(', ')']).unwrap_or(text.len()));
        let mut argument = read_head(head);
        *text = rest;
        if let Some(rest) = rest.strip_prefix('(') {
            *text = rest;
            argument.arguments = read_all(text);
        }
        arguments.push(argument);
    }
}

fn read_head(text: &'static str) -> Argument {
    let head = text.trim_end_matches(['?', '*', '+']);
    let flags = &text[head.len()..];
    let cut = |text: &'static str, mark| match text.rsplit_once(mark) {
        Some((rest, value)) => (rest, Some(value)),
        None => (text, None),
    };
    let (head, deprecated_since) = cut(head, '^');
    let (head, since) = cut(head, '~');
    let (head, token) = cut(head, '=');
    let (name, kind) = head.rsplit_once(':').unwrap_or((head, "s"));
    let (letter, number) = kind.split_at(1);
    let kind = match letter {
        "k" => "key",
        "i" => "integer",
        "d" => "double",
        "p" => "pattern",
        "u" => "unix-time",
        "t" => "pure-token",
        "b" => "block",
        "o" => "oneof",
        _ => "string",
    };
    let specification = number.parse().ok();
    Argument { name, kind, specification, token, since, deprecated_since, flags, arguments: Vec::new() }
}

/// Writes the arguments of a command or of another argument.
pub(super) fn write(reply: &mut ReplyWriter<'_>, arguments: &[Argument]) {
    reply.array(arguments.len());
    for argument in arguments {
        let texts = [
            ("token", argument.token),
            ("since", argument.since),
            ("deprecated_since", argument.deprecated_since),
        ];
        let texts: Vec<_> = texts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
        let has_flags = !argument.flags.is_empty();
        let has_arguments = !argument.arguments.is_empty();
        let more = [argument.specification.is_some(), has_flags, has_arguments];
        reply.map(2 + texts.len() + more.into_iter().filter(|is_there| *is_there).count());
        for (name, text) in [("name", argument.name), ("type", argument.kind)] {
            reply.bulk(name);
            reply.bulk(text);
        }
        if let Some(specification) = argument.specification {
            reply.bulk("key_spec_index");
            reply.integer(specification);
        }
        for (name, text) in texts {
            reply.bulk(name);
            reply.bulk(text);
        }
        if has_flags {
            reply.bulk("flags");
            reply.set(argument.flags.len());
            for flag in argument.flags.chars() {
                reply.simple(match flag {
                    '?' => "optional",
                    '*' => "multiple",
                    _ => "multiple_token",
                });
            }
        }
        if has_arguments {
            reply.bulk("arguments");
            write(reply, &argument.arguments);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::Registry;

    #[test]
    fn every_row_is_whole_and_of_a_command_that_takes_arguments() {
        let registry = Registry::new();
        for row in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let (name, _) = row.split_once(' ').unwrap();
            assert!(!arguments_of(name).is_empty(), "{name}");
            if let Some(command) = registry.get_full(name.as_bytes()) {
                assert!(!command.takes(1) || command.arity < 0, "{name}");
            }
        }
    }

    #[test]
    fn a_row_is_read() {
        let mut row = "ip:port:s=ADDR~6.2.0^7.0.0?*+ order:o(asc:t=ASC key:k2)";
        let arguments = read_all(&mut row);
        let [first, second] = &arguments[..] else { panic!("{arguments:?}") };
        assert_eq!((first.name, first.kind, first.token), ("ip:port", "string", Some("ADDR")));
        assert_eq!((first.since, first.deprecated_since, first.flags), (Some("6.2.0"), Some("7.0.0"), "?*+"));
        assert_eq!((second.name, second.kind, second.arguments.len()), ("order", "oneof", 2));
        assert_eq!(row, "");
        assert_eq!((second.arguments[1].kind, second.arguments[1].specification), ("key", Some(2)));
    }
}
