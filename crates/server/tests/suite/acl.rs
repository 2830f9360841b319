//! Users: what each may do, and what becomes of their clients.

use std::fs;

use tembo_server::{Config, Password};
use tembo_wire::Value;

use crate::support::{Fixture, show};

const NO_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments";
const NO_CHANNEL: &str =
    "-NOPERM this user has no permissions to access one of the channels used as arguments";
const CATEGORIES: &str = "keyspace read write set sortedset list hash string bitmap hyperloglog geo pubsub admin \
    fast slow blocking dangerous connection transaction scripting";

fn no_command(name: &str) -> String {
    format!("-NOPERM this user has no permissions to run the '{name}' command")
}

#[test]
fn users_are_made_shown_and_removed() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        ACL WHOAMI => $default
        ACL LIST => [$user default on nopass ~* &* +@all]
        ACL SETUSER alice on >p ~a* +@string -set => +OK
        ACL SETUSER alice +nosuch => -ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL
        ACL SETUSER alice +del foo => -ERR Error in ACL SETUSER modifier 'foo': Syntax error
        ACL SETUSER 'a b' on => -ERR Usernames can't contain spaces or null characters
        ACL SETUSER alice (+get => -ERR Unmatched parenthesis in acl selector starting at '(+get'.
        ACL SETUSER alice '+get|a b' => -ERR Error in ACL SETUSER modifier '+get|a b': Syntax error
        ACL SETUSER safe on ~* +@all -@dangerous => +OK
        ACL DRYRUN safe tembo.unlink * => $This user has no permissions to run the 'tembo.unlink' command
        ACL DELUSER safe => :1
        ACL USERS => [$alice $default]
        ACL GETUSER nobody => nil
        ACL DRYRUN alice set k v => $This user has no permissions to run the 'set' command
        ACL DRYRUN alice get a => +OK
        ACL DRYRUN alice get b => $This user has no permissions to access the 'b' key
        ACL DRYRUN nobody get a => -ERR User 'nobody' not found
        ACL DELUSER default => -ERR The 'default' user cannot be removed
        CLIENT KILL USER nobody => -ERR No such user 'nobody'
        ACL DELUSER alice nobody => :1
        ACL DELUSER alice => :0
        ACL LOAD => -ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.
        ",
    );
    let password = client.ask("ACL GENPASS");
    assert!(password.len() == 65 && password != client.ask("ACL GENPASS"), "{password}");
    assert_eq!(client.ask("ACL GENPASS 5").len(), 3);
    server.check();
}

#[test]
fn a_user_may_do_what_its_rules_say() {
    let server = Fixture::start();
    let (mut admin, mut client) = (server.client(), server.client());
    admin.talk("ACL SETUSER u on >p ~k* %R~r* &c* +@all -flushall -config => +OK");
    client.talk(&format!(
        "
        AUTH u x => -WRONGPASS invalid username-password pair or user is disabled.
        AUTH u p => +OK
        ACL WHOAMI => $u
        SET k1 x => +OK
        SET r1 x => {NO_KEY}
        GET r1 => nil
        GET a => {NO_KEY}
        FLUSHALL => {}
        CONFIG GET a => {}
        CONFIG HELP x => -ERR wrong number of arguments for 'config|help' command
        PUBLISH d x => {NO_CHANNEL}
        PUBLISH c x => :0
        MULTI => +OK
        GET a => {NO_KEY}
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        SORT k BY w_* => -ERR BY option of SORT denied due to insufficient ACL permissions.
        SORT k GET # => -ERR GET option of SORT denied due to insufficient ACL permissions.
        SORT k BY nosort => []
        WATCH a => {NO_KEY}
        TEMBO.COUNT * => {NO_KEY}
        TEMBO.COUNT k* => :1
        TEMBO.ONCE t 10 SET r1 x => {NO_KEY}
        ",
        no_command("flushall"),
        no_command("config|get"),
    ));
    let info = client.ask("CLIENT INFO");
    assert!(info.contains(" user=u "), "{info}");
    client.talk("RESET => +RESET\nACL WHOAMI => $default\nGET a => nil");
    admin.talk("ACL SETUSER u off => +OK");
    client.talk("AUTH u p => -WRONGPASS invalid username-password pair or user is disabled.");
    client.talk("HELLO 3 AUTH u p => -WRONGPASS invalid username-password pair or user is disabled.");
    server.check();
}

#[test]
fn scripts_run_as_their_user() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("ACL SETUSER u on nopass ~k* &c +@all -flushall => +OK\nAUTH u x => +OK");
    let failed = |client: &mut crate::support::Client, script: &str, why: &str| {
        let reply = show(&client.run(&[b"EVAL", script.as_bytes(), b"0"]));
        assert!(reply.starts_with(&format!("-ERR The user executing the script can't {why}")), "{reply}");
    };
    failed(&mut client, "return redis.call('get','a')", "access at least one of the keys");
    failed(&mut client, "return redis.call('flushall')", "run this command or subcommand");
    failed(&mut client, "return redis.pcall('flushall')", "run this command or subcommand");
    failed(&mut client, "return redis.call('publish','d','x')", "publish to the channel");
    let may = |client: &mut crate::support::Client, args: &str| {
        let script = format!("return redis.acl_check_cmd({args})");
        show(&client.run(&[b"EVAL", script.as_bytes(), b"0"]))
    };
    for (args, expected) in [
        ("'get','k'", ":1"),
        ("'get','a'", "nil"),
        ("'flushall'", "nil"),
        ("'get'", ":1"),
        ("'zunion'", ":1"),
    ] {
        assert_eq!(may(&mut client, args), expected, "{args}");
    }
    client.talk(&format!("EVAL 'return 1' 1 a => {NO_KEY}\nEVAL 'return 1' 1 k => :1"));
    let log = client.ask("ACL LOG 3");
    assert!(log.contains("$context $lua") && log.contains("$object $d"), "{log}");
    server.check();
}

#[test]
fn changed_rules_hold_for_connected_clients() {
    let server = Fixture::start();
    let (mut admin, mut client, mut waiting) = (server.client(), server.client(), server.client());
    admin.talk("ACL SETUSER u on nopass ~* +@all => +OK");
    client.talk("AUTH u x => +OK\nMULTI => +OK\nSET k v => +QUEUED\nSET l v => +QUEUED");
    waiting.talk("AUTH u x => +OK");
    waiting.send(&[b"BLPOP", b"list", b"0"]);
    crate::support::eventually(|| admin.info("blocked_clients") == "1");
    admin.talk("ACL SETUSER u resetkeys ~k => +OK\nRPUSH list x => :1");
    let changed = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
        This command is no longer allowed for the following reason: no permission to touch the specified keys";
    assert_eq!(client.ask("EXEC"), format!("[+OK -{changed}]"));
    assert_eq!(show(&waiting.receive()), NO_KEY);
    admin.talk("LLEN list => :1\nACL DELUSER u => :1");
    client.expect_closed();
    waiting.expect_closed();
    server.check();
}

#[test]
fn subscribers_lose_what_they_may_not_receive() {
    let server = Fixture::start();
    let mut admin = server.client();
    admin.talk("ACL SETUSER u on nopass &a &b* +@all => +OK");
    let subscribe = |word: &str, name: &str| {
        let mut client = server.client();
        client.ask("AUTH u x");
        assert!(client.ask(&format!("{word} {name}")).contains(name));
        client
    };
    let (mut a, mut b, mut pattern) =
        (subscribe("SUBSCRIBE", "a"), subscribe("SSUBSCRIBE", "b1"), subscribe("PSUBSCRIBE", "b*"));
    admin.talk("ACL SETUSER u resetchannels &a &b1 => +OK\nPUBLISH a x => :1\nSPUBLISH b1 x => :1");
    pattern.expect_closed();
    assert_eq!(show(&a.receive()), "[$message $a $x]");
    assert_eq!(show(&b.receive()), "[$smessage $b1 $x]");
    admin.talk("ACL SETUSER u allchannels => +OK\nACL SETUSER u resetchannels &a => +OK\nPUBLISH a y => :1");
    b.expect_closed();
    assert_eq!(show(&a.receive()), "[$message $a $y]");
    let list = admin.ask("CLIENT LIST");
    assert!(list.contains("user=u") && list.contains("user=default"), "{list}");
    admin.talk("CLIENT KILL USER u => :1");
    a.expect_closed();
    // One that takes its own channels away gets its answer first.
    let mut own = server.client();
    own.ask("HELLO 3 AUTH u x");
    own.ask("SUBSCRIBE a");
    own.talk("ACL SETUSER u resetchannels => +OK");
    own.expect_closed();
    server.check();
}

/// For each category, a user that may do all but that one, and a command of it.
#[test]
fn each_category_can_be_denied() {
    let server = Fixture::start();
    let (mut admin, mut client) = (server.client(), server.client());
    for category in CATEGORIES.split_whitespace() {
        admin.talk(&format!("ACL SETUSER u reset on nopass ~* &* +@all -@{category} => +OK"));
        client.talk("RESET => +RESET\nAUTH u x => +OK");
        let Value::Array(names) = admin.run(&[b"ACL", b"CAT", category.as_bytes()]) else { panic!() };
        assert!(!names.is_empty(), "{category}");
        let mut denied = 0;
        for name in names.iter().map(|name| String::from_utf8(name.as_bytes().unwrap().to_vec()).unwrap()) {
            let is_container = client_knows_subcommands(&mut admin, &name);
            if is_container || ["auth", "hello", "reset", "quit"].contains(&&name[..]) {
                continue;
            }
            let words: Vec<_> = name.split('|').map(|word| word.as_bytes().to_vec()).collect();
            let arity = arity(&mut admin, &name);
            let mut args: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
            args.resize(args.len().max(arity), b"1");
            let reply = show(&client.run(&args));
            let reply = reply.replace("-EXECABORT Transaction discarded because of: ", "-");
            assert_eq!(reply, no_command(&name), "{category}");
            denied += 1;
        }
        assert!(denied > 0, "{category}");
    }
    server.check();
}

fn info_of(client: &mut crate::support::Client, name: &str) -> Vec<Value> {
    let Value::Array(infos) = client.run(&[b"COMMAND", b"INFO", name.as_bytes()]) else { panic!() };
    let Some(Value::Array(info)) = infos.into_iter().next() else { panic!("{name}") };
    info
}

fn client_knows_subcommands(client: &mut crate::support::Client, name: &str) -> bool {
    let info = info_of(client, name);
    matches!(&info[9], Value::Array(subcommands) if !subcommands.is_empty()) && name != "command"
}

fn arity(client: &mut crate::support::Client, name: &str) -> usize {
    let Value::Integer(arity) = info_of(client, name)[1] else { panic!("{name}") };
    arity.unsigned_abs() as usize
}

#[test]
fn denials_are_logged_once_for_the_same() {
    let server = Fixture::start();
    let (mut admin, mut client) = (server.client(), server.client());
    admin.talk("ACL SETUSER u on >p ~k &c +@all -flushall => +OK");
    client.talk("AUTH u p => +OK");
    client.ask("GET a");
    client.ask("GET a");
    client.ask("FLUSHALL");
    client.ask("PUBLISH d x");
    client.ask("AUTH u secret");
    let log = admin.ask("ACL LOG");
    for expected in [
        "$count :2 $reason $key $context $toplevel $object $a $username $u $age-seconds",
        "$count :1 $reason $command $context $toplevel $object $flushall $username $u",
        "$count :1 $reason $channel $context $toplevel $object $d $username $u",
        "$count :1 $reason $auth $context $toplevel $object $AUTH $username $u",
    ] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    assert!(!log.contains("secret"));
    admin.talk("CONFIG SET acllog-max-len 1 => +OK");
    client.ask("GET b");
    let Value::Array(entries) = admin.run(&[b"ACL", b"LOG"]) else { panic!() };
    assert_eq!(entries.len(), 1);
    admin.talk(
        "ACL LOG RESET => +OK\nACL LOG => []\nACL LOG x => -ERR value is not an integer or out of range",
    );
    server.check();
}

#[test]
fn an_acl_file_is_loaded_and_saved_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.acl");
    fs::write(&file, "user alice on >p ~a* +@all\nuser default on nopass ~* &* +@all\n").unwrap();
    let mut server = Fixture::with_config(|config| config.acl_file = Some(file.clone()));
    let (mut admin, mut alice) = (server.client(), server.client());
    alice.talk("AUTH alice p => +OK");
    fs::write(&file, "user alice on +get\nuser bob +nosuch >secret\nuser carl foo\n").unwrap();
    let error = admin.ask("ACL LOAD");
    let (path, end) = (file.display(), "no change to the previously active ACL rules was performed");
    assert_eq!(
        error,
        format!(
            "-ERR {path}:2: Error in applying operation '+nosuch': Unknown command or category name in ACL. \
             {path}:3: Syntax error. WARNING: ACL errors detected, {end}"
        )
    );
    alice.talk("SET a x => +OK\nACL WHOAMI => $alice");
    admin.talk("ACL USERS => [$alice $default]\nACL SETUSER dora on +get => +OK\nACL SAVE => +OK");
    let saved = fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = saved.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("user alice on #148de9c5"), "{saved}");
    assert_eq!(lines[1..], ["user default on nopass ~* &* +@all", "user dora on resetchannels -@all +get"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside the file");
    admin.talk("ACL SETUSER eve on => +OK\nACL LOAD => +OK\nACL USERS => [$alice $default $dora]");
    alice.expect_closed();
    server.restart();
    server.client().talk("ACL USERS => [$alice $default $dora]\nAUTH alice p => +OK");
    fs::remove_file(&file).unwrap();
    let gone = format!("-ERR Error loading ACLs, opening file '{path}': No such file or directory");
    assert_eq!(server.client().ask("ACL LOAD"), gone);
    fs::remove_dir(dir.path()).unwrap();
    let not_saved =
        "-ERR There was an error trying to save the ACLs. Please check the server logs for more information";
    assert_eq!(server.client().ask("ACL SAVE"), not_saved);
    server.check();
}

#[test]
fn users_come_from_the_configuration_file_and_go_back_into_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("redis.conf");
    fs::write(
        &file,
        "requirepass q\nuser alice on >p ~a* +@all (~\"b\\x01\" +get)\ntimeout 0\nuser bob off\n",
    )
    .unwrap();
    let start = || {
        Fixture::with_config(|ours| {
            let listen = ours.listen;
            ours.read_file(&file).unwrap();
            (ours.listen, ours.tcp) = (listen, true);
        })
    };
    let server = start();
    let mut client = server.client();
    client.talk(
        "PING => -NOAUTH Authentication required.\nAUTH alice p => +OK\nACL USERS => [$alice $bob $default]",
    );
    client.talk("ACL SETUSER carl on >r => +OK\nACL DELUSER bob => :1\nCONFIG REWRITE => +OK");
    let lines = client.ask("ACL LIST");
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("bob") && text.matches("\nuser ").count() == 3, "{text}");
    drop(server);
    let again = start();
    let mut client = again.client();
    client.talk("AUTH alice p => +OK");
    // A default user that a line tells of was reset before.
    assert_eq!(client.ask("ACL LIST").replace(" sanitize-payload", ""), lines);
    client.talk("CONFIG REWRITE => +OK");
    assert_eq!(fs::read_to_string(&file).unwrap().replace(" sanitize-payload", ""), text);
    for (text, why) in [
        ("user a on\nuser a on\n", ":2: Error in user declaration 'a': Duplicate user found."),
        ("user a +nosuch\n", ":1: Error loading ACL rule '+nosuch' for the user named 'a': Unknown command"),
        ("\nuser a <secret\n", ":2: Error loading ACL rule for the user named 'a': The password you are"),
        ("user\n", ":1: a user has a name"),
    ] {
        fs::write(&file, text).unwrap();
        let error = Config::default().read_file(&file).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("secret"), "{error}");
    }
}

#[test]
fn no_secret_is_shown() {
    let server = Fixture::with_config(|config| config.password = Password::new("hunter2"));
    let (mut admin, mut monitor) = (server.client(), server.client());
    admin.talk("AUTH hunter2 => +OK\nCONFIG SET slowlog-log-slower-than 0 => +OK\nSLOWLOG RESET => +OK");
    monitor.talk("AUTH default hunter2 => +OK\nMONITOR => +OK");
    for words in [
        "ACL SETUSER u on >hunter2 ~* +@all",
        "ACL SETUSER u (~hunter2",
        "AUTH u hunter2",
        "AUTH u hunter2x",
        "HELLO 3 AUTH u hunter2",
        "HELLO 2 AUTH default hunter2",
        "HELLO 3 SETNAME me AUTH u hunter2",
        "HELLO 3 AUTH u hunter2x",
        "AUTH default hunter2",
        "CONFIG SET masterauth hunter2",
        "CONFIG SET masteruser u masterauth hunter2",
        "CONFIG SET requirepass hunter2",
        "CONFIG SET tls-key-file-pass hunter2",
        "CONFIG SET timeout 0 tls-client-key-file-pass hunter2",
        "CONFIG SET loglevel debug",
        "MULTI",
        "CONFIG SET masterauth hunter2",
        "ACL SETUSER u <hunter2",
        "EXEC",
        "CONFIG SET masterauth ''",
    ] {
        admin.ask(words);
    }
    admin.talk("ECHO end => $end");
    let mut seen = String::new();
    while !seen.contains("\"end\"") {
        seen += &show(&monitor.receive());
    }
    assert!(seen.contains("(redacted)") && !seen.contains("hunter2"), "{seen}");
    let slow = admin.ask("SLOWLOG GET -1");
    assert!(slow.contains("(redacted)") && !slow.contains("hunter2"), "{slow}");
    let log = server.log.lines();
    assert!(!log.is_empty() && log.iter().all(|line| !line.contains("hunter2")), "{log:?}");
    for words in ["INFO everything", "ACL LIST", "ACL GETUSER u", "ACL LOG", "CLIENT LIST", "LATENCY LATEST"]
    {
        assert!(!admin.ask(words).contains("hunter2"), "{words}");
    }
    server.check();
}

#[test]
fn a_replica_needs_three_commands() {
    let master = Fixture::start();
    master.client().talk(
        "
        ACL SETUSER replica on >p +psync +replconf +ping => +OK
        ACL SETUSER default >q => +OK
        AUTH q => +OK
        SET k v => +OK
        ",
    );
    let replica = Fixture::with_config(|config| {
        config.replica.user = Some("replica".to_owned());
        config.replica.password = Password::new("p");
    });
    let mut client = replica.client();
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", master.address.port()));
    crate::support::eventually(|| client.ask("GET k") == "$v");
    let mut admin = master.client();
    admin.talk("AUTH q => +OK\nSET k w => +OK\nWAIT 1 60000 => :1\nACL LOG => []");
    client.talk("GET k => $w");
    admin.talk("ACL SETUSER replica >r <p => +OK\nCLIENT KILL USER replica => :1");
    crate::support::eventually(|| client.info("master_link_status") == "down");
    client.talk("CONFIG SET masterauth r => +OK");
    crate::support::eventually(|| client.info("master_link_status") == "up");
}
