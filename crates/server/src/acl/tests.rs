//! Tests of rules: their meaning, the form in which they are listed, and their denials.

use tembo_wire::RequestQueue;

use super::check::Reason;
use super::rule::{RuleError, join_selectors};
use super::user::User;
use super::users::Users;
use super::*;
use crate::commands::registry::Registry;

fn user(rules: &str) -> User {
    let mut user = User::new(b"u", false);
    let rules = join_selectors(rules.split(' ').map(str::as_bytes)).unwrap();
    for rule in &rules {
        user.apply(rule, false).unwrap_or_else(|error| panic!("{}: {error:?}", rule.escape_ascii()));
    }
    user
}

/// The denial of a command to a user, if it is denied.
fn denied(user: &User, request: &str) -> Option<(Reason, usize)> {
    let registry = Registry::new();
    let mut queue = RequestQueue::default();
    let mut words = queue.begin();
    request.split(' ').for_each(|word| words.push(word.as_bytes()));
    words.end();
    let request = queue.get(0).unwrap();
    let mut command = registry.get(request.name()).unwrap();
    if let Some(name) = request.get(1).filter(|_| !command.subcommands.is_empty()) {
        command = command.subcommand(name).unwrap();
    }
    assert!(command.takes(request.arg_count()));
    user.check(command, &request).err().map(|denial| (denial.reason, denial.place))
}

#[track_caller]
fn assert_denials(rules: &str, expected: &[(&str, Option<(Reason, usize)>)]) {
    let user = user(rules);
    for (request, expected) in expected {
        assert_eq!(denied(&user, request), *expected, "{rules}: {request}");
    }
}

#[test]
fn rules_are_told_in_the_words_of_redis() {
    for (rules, told) in [
        ("", "off resetchannels -@all"),
        ("on nopass ~* &* +@all", "on nopass ~* &* +@all"),
        ("ALLKEYS AllChannels allcommands On", "on ~* &* +@all"),
        ("reset", "off sanitize-payload resetchannels -@all"),
        ("skip-sanitize-payload", "off skip-sanitize-payload resetchannels -@all"),
        ("~a %R~b %W~c %RW~d %wr~e &x &y", "off ~a %R~b %W~c ~d ~e resetchannels &x &y -@all"),
        ("%R~a %W~a", "off ~a resetchannels -@all"),
        ("+@string -set", "off resetchannels -@all +@string -set"),
        ("+@all -select +select|0 +select|1", "off resetchannels +@all -select +select|0 +select|1"),
        ("+client -client|kill +@hash -hset", "off resetchannels -@all +@hash -hset +client -client|kill"),
        ("+@read -@all +get", "off resetchannels -@all +get"),
        ("+@stream", "off resetchannels -@all +@stream"),
        ("+xadd -xadd", "off resetchannels -@all"),
        (
            "(+get ~x) ( ~y +set )",
            "off resetchannels -@all (~x resetchannels -@all +get) (~y resetchannels -@all +set)",
        ),
        ("(~* &* +@all) clearselectors", "off resetchannels -@all"),
        (">abc", "off #ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad resetchannels -@all"),
        (
            ">abc >abd <abd !ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "off resetchannels -@all",
        ),
        (">abc nopass", "off nopass resetchannels -@all"),
        (">abc resetpass", "off resetchannels -@all"),
    ] {
        assert_eq!(String::from_utf8_lossy(&user(rules).describe()), told, "{rules}");
    }
}

/// In Redis 7.0 these are 18 of the 35 commands of the category. WAITAOF, which it lacks, would be another
/// one that is not allowed.
#[test]
fn commands_that_redis_lacks_do_not_count_for_a_category() {
    let told = user("+reset +auth +client").describe();
    let told = String::from_utf8_lossy(&told);
    assert!(told.starts_with("off resetchannels -@all +@connection -"), "{told}");
}

#[test]
fn what_is_told_makes_the_same_user() {
    for rules in [
        "+@all -@dangerous +keys",
        "+@all -@slow",
        "+@fast -@write +acl|whoami",
        "+@all -tembo.once ~a (%R~* +@read)",
    ] {
        let first = user(rules);
        let again = user(&String::from_utf8(first.describe()).unwrap());
        assert_eq!(first.describe(), again.describe(), "{rules}");
        for known in categories::CATALOGUE.all() {
            let number = categories::CATALOGUE.number(known.name).unwrap();
            for (a, b) in first.selectors.iter().zip(&again.selectors) {
                assert_eq!(
                    a.allows_command(number, None),
                    b.allows_command(number, None),
                    "{rules}: {}",
                    known.name
                );
            }
        }
    }
}

#[test]
fn wrong_rules_are_refused() {
    use RuleError::{AfterAllChannels, AfterAllKeys, Hash, NoPassword, OfSubcommand, Syntax, Unknown};
    for (before, rule, error) in [
        ("", "foo", Syntax),
        ("", "+nosuch", Unknown),
        ("", "+@nosuch", Unknown),
        ("", "-nosuch", Unknown),
        ("", "+client|nosuch", Unknown),
        ("", "+client|", Syntax),
        ("", "+client|id|x", OfSubcommand),
        ("", "-select|0", Unknown),
        ("", "%~a", Syntax),
        ("", "%RR~a", Syntax),
        ("", "%X~a", Syntax),
        ("", "~a b", Syntax),
        ("", "&a\tb", Syntax),
        ("", "(+get foo)", Syntax),
        ("", "(", Syntax),
        ("", "#abc", Hash),
        ("", "!abc", Hash),
        ("", "<nope", NoPassword),
        ("~*", "~a", AfterAllKeys),
        ("~*", "%R~a", AfterAllKeys),
        ("&*", "&a", AfterAllChannels),
    ] {
        assert_eq!(user(before).apply(rule.as_bytes(), false), Err(error), "{before} {rule}");
    }
    let words = |text: &'static str| text.split(' ').map(str::as_bytes);
    assert_eq!(join_selectors(words("+get ( ~a")), Err(1));
    assert_eq!(join_selectors(words("(~a +get) ( x )")).unwrap(), [&b"(~a +get)"[..], b"( x )"]);
}

#[test]
fn keys_are_checked_for_reads_and_writes() {
    let key = |place| Some((Reason::Key, place));
    assert_denials(
        "+@all ~rw* %R~r* %W~w*",
        &[
            ("GET r1", None),
            ("GET w1", key(1)),
            ("SET w1 x", None),
            ("SET r1 x", key(1)),
            ("SET w1 x GET", key(1)),
            ("SET rw1 x GET", None),
            ("BITFIELD r1 GET u8 0", None),
            ("BITFIELD r1 SET u8 0 1", key(1)),
            ("EXISTS w1", None),
            ("MGET r1 r2 x", key(3)),
            ("MSET w1 a w2 b x c", key(5)),
            ("COPY r1 w1", None),
            ("COPY w1 r1", key(1)),
            ("SORT r1 STORE w1", None),
            ("SORT r1 STORE r2", key(3)),
            ("SORT r1 STORE x GET STORE GET w1", key(3)),
            ("SORT r1 BY STORE", None),
            ("GEORADIUS r1 0 0 1 m STORE w1", None),
            ("GEORADIUS r1 0 0 1 m STORE w1 STORE r1", key(9)),
            ("GEORADIUS r1 0 0 1 m STORE w1 STOREDIST r1", key(9)),
            ("ZUNIONSTORE w1 2 r1 r2", None),
            ("ZUNIONSTORE w1 2 r1 w1", key(4)),
            ("EVAL x 2 rw1 x a", key(4)),
            ("OBJECT ENCODING x", key(2)),
            ("TEMBO.COUNT r1*", None),
            ("TEMBO.COUNT *", key(1)),
            ("TEMBO.COUNT w1*", key(1)),
            ("TEMBO.UNLINK rw2*", None),
            ("TEMBO.UNLINK w2*", key(1)),
            ("TEMBO.ONCE t 10 SET r1 x", key(4)),
            ("TEMBO.ONCE t 10 SET w1 x", None),
            ("KEYS *", None),
        ],
    );
}

#[test]
fn commands_selectors_and_channels_are_checked() {
    let command = Some((Reason::Command, 0));
    assert_denials(
        "+get +client|id +tembo.once -debug +select|0 ~* (+set ~s*) (+@pubsub &news.*)",
        &[
            ("GET x", None),
            ("SET s1 x", None),
            ("SET x 1", Some((Reason::Key, 1))),
            ("DEL s1", command),
            ("CLIENT ID", None),
            ("CLIENT LIST", command),
            ("AUTH x", None),
            ("SELECT 0", None),
            ("SELECT 1", command),
            ("TEMBO.ONCE t 10 DEL s1", Some((Reason::Command, 3))),
            ("TEMBO.ONCE t 10 SET s1 x", None),
            ("PUBLISH news.a x", None),
            ("PUBLISH x x", Some((Reason::Channel, 1))),
            ("SPUBLISH x x", Some((Reason::Channel, 1))),
            ("SUBSCRIBE news.a news.b x", Some((Reason::Channel, 3))),
            ("PSUBSCRIBE news.*", None),
            ("PSUBSCRIBE news.a", Some((Reason::Channel, 1))),
            ("SSUBSCRIBE x", Some((Reason::Channel, 1))),
            ("UNSUBSCRIBE x", None),
        ],
    );
    assert!(user("+@all ~* &*").may_all && user("(+@all ~* &*)").may_all);
    for less in ["+@all ~* &* -get", "+@all ~* &a", "+@all ~a &*", "+@all ~* &* resetkeys"] {
        assert!(!user(less).may_all, "{less}");
    }
}

#[test]
fn a_file_is_taken_as_a_whole() {
    let read = |text: &str| Users::read(text.as_bytes(), "f", false, None);
    let users = read("user a on >p ~x +get\n\nuser b off (~y +set)\r\n").unwrap();
    assert_eq!(users.iter().count(), 3);
    assert!(users.default_user().may_all && users.get(b"a").unwrap().is_on);
    assert!(!Users::read(b"user a on", "f", false, Some(b"p")).unwrap().default_user().any_password);
    let errors = read("user\n# x\nuser a +nosuch foo <secret\nuser a\nuser b (~x").unwrap_err();
    assert_eq!(
        String::from_utf8_lossy(&errors),
        "f:1 should start with user keyword followed by the username. \
         f:2 should start with user keyword followed by the username. \
         f:3: Error in applying operation '+nosuch': Unknown command or category name in ACL. f:3: Syntax error. \
         WARNING: Duplicate user 'a' found on line 4. f:5: Unmatched parenthesis in selector definition.\
         WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    );
}

#[test]
fn passwords_are_asked_of_users_that_are_on() {
    let mut users = Users::new(None);
    users.put(user("on >p >q +get"));
    for (name, password, expected) in [
        ("u", "p", true),
        ("u", "q", true),
        ("u", "", false),
        ("u", "x", false),
        ("nobody", "p", false),
        ("nobody", "", false),
        ("default", "anything", true),
    ] {
        assert_eq!(
            users.authenticate(name.as_bytes(), password.as_bytes()).is_some(),
            expected,
            "{name} {password}"
        );
    }
    users.put(user("off nopass"));
    assert!(users.authenticate(b"u", b"p").is_none());
    assert!(!users.ask_for_password());
    users.put(users.with_password(Some(b"p")));
    assert!(users.ask_for_password() && users.authenticate(b"default", b"q").is_none());
    let mut default = users.with_password(None);
    default.apply(b"off", false).unwrap();
    users.put(default);
    assert!(users.ask_for_password());
}
