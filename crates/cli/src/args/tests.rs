use super::*;
use clap::CommandFactory;

fn parse(line: &str) -> Result<Command, clap::Error> {
    Arguments::try_parse_from(line.split_whitespace()).map(|arguments| arguments.command)
}

#[test]
fn the_definitions_are_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn serve_has_the_defaults_of_the_documentation() {
    let Ok(Command::Serve(serve)) = parse("tembo serve") else { panic!("not serve") };
    assert_eq!((serve.listen, serve.config), (None, None), "the server's own: 127.0.0.1:6379");
    assert_eq!(serve.pool, None, "the server's own: ./tembo.pool");
    assert_eq!(serve.choices.durability, Durability::Auto);
    assert_eq!((serve.max_bytes, serve.maxclients, serve.choices.flush), (None, None, None));
    assert!(!serve.choices.no_non_temporal);
    assert_eq!((serve.protected_mode, serve.log_level), (None, None));
}

#[test]
fn serve_takes_every_option() {
    let line = "tembo serve --listen [::1]:0 --pool a --durability emulated --no-non-temporal --max-bytes 8G --maxclients 5 \
        --protected-mode no --log-level debug --requirepass hunter2 --config f --unixsocket s --unixsocketperm 770";
    let Ok(Command::Serve(serve)) = parse(line) else { panic!("not serve") };
    assert!(serve.listen.unwrap().is_ipv6() && serve.choices.no_non_temporal);
    assert_eq!(serve.choices.durability, Durability::Emulated);
    assert_eq!(serve.max_bytes, Some(Size { bytes: 8 << 30 }));
    assert_eq!((serve.maxclients, serve.protected_mode), (Some(5), Some(false)));
    assert_eq!(serve.log_level, Some(LogLevel::Debug));
    assert_eq!((serve.unixsocketperm, &serve.requirepass), (Some(0o770), &Password::new("hunter2")));
    assert!(!format!("{serve:?}").contains("hunter2"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_flush_instruction_is_one_of_this_architecture() {
    for name in ["clwb", "clflushopt", "clflush"] {
        assert!(parse(&format!("tembo serve --flush {name}")).is_ok(), "{name}");
    }
    assert!(parse("tembo serve --flush dc-cvap").is_err());
}

#[test]
fn wrong_arguments_are_refused_with_what_is_expected() {
    let cases = [
        ("tembo serve --listen 6379", "ADDR:PORT"),
        ("tembo serve --durability maybe", "page-cache"),
        ("tembo serve --durability relaxed=1", "relaxed=200ms"),
        ("tembo serve --durability relaxed=0s", "relaxed=200ms"),
        ("tembo serve --journal-bytes lots", "1024"),
        ("tembo serve --private-bytes-max lots", "1024"),
        ("tembo serve --max-bytes lots", "1024"),
        ("tembo serve --maxclients 0", "1.."),
        ("tembo serve --protected-mode off", "[possible values: yes, no]"),
        ("tembo serve --unixsocket s --unixsocketperm 999", "octal"),
        ("tembo serve --unixsocketperm 700", "--unixsocket"),
        ("tembo serve --log-level info", "debug, verbose, notice, warning"),
        ("tembo check", "<POOL>"),
        ("tembo check a --seed 1", "--expect-seeded"),
        ("tembo bench --seeded", "--pool"),
        ("tembo bench --pool a", "--seeded"),
        ("tembo bench --seeded --pool a --json", "--json"),
        ("tembo snapshot keep a m", "<NAME>"),
        ("tembo bench --seeded --pool a --versioned", "--versioned"),
        ("tembo dance", "dance"),
    ];
    for (line, expected) in cases {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
        assert!(error.to_string().contains(expected), "{line}: {error}");
    }
}

/// A command and those below it, each with the words that call it.
fn commands(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Command)>) {
    found.push((words.to_owned(), command.clone()));
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        commands(below, &format!("{words} {}", below.get_name()), found);
    }
}

/// The commands of a line as a shell would cut it; a comment follows three spaces.
fn calls(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.trim().split(['|', '&', '>', '<', '(', ')']).map(str::trim);
    parts.filter(|call| call.starts_with("tembo ")).map(|call| call.split("   ").next().unwrap_or_default())
}

/// The subcommands of `tembo snapshot` once had no examples, and no test noticed.
#[test]
fn every_help_has_examples_of_its_command_and_they_are_accepted() {
    let mut root = Arguments::command();
    root.build();
    let mut all = Vec::new();
    commands(&root, "tembo", &mut all);
    assert!(all.len() > 10, "{} commands", all.len());
    for (words, command) in &all {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples =
            help.split("Examples:\n").nth(1).unwrap_or_else(|| panic!("{words} --help has no examples"));
        let examples: Vec<&str> =
            examples.lines().take_while(|line| !line.is_empty()).flat_map(calls).collect();
        assert!(examples.iter().any(|call| call.starts_with(words)), "{words}: {examples:?}");
        for call in examples {
            assert!(parse(call).is_ok(), "{words} --help: {call}: {:?}", parse(call).err());
        }
    }
}
