//! Commands about a client's own connection, and about those of others.

use tembo_wire::Value;

use crate::support::{Fixture, show};

/// Tools ask for them; there is little to tell.
#[test]
fn statistics_of_the_allocator_and_art_are_not_here() {
    let server = Fixture::start();
    server.client().talk(
        "
        MEMORY MALLOC-STATS => $Stats not supported for the current allocator
        LOLWUT VERSION 9 => $Redis ver. 7.0.15\\n
        LOLWUT VERSION x => -ERR value is not an integer or out of range
        ",
    );
}

#[test]
fn small_talk() {
    let server = Fixture::start();
    let mut client = server.client();
    assert_eq!(client.ask("NOSUCH a b"), "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ");
    client.talk(
        "
        PING => +PONG
        PING hello => $hello
        PING a b => -ERR wrong number of arguments for 'ping' command
        ECHO hello => $hello
        ECHO => -ERR wrong number of arguments for 'echo' command
        AUTH pw => -ERR AUTH <password> called without any password configured for the default user. \
            Are you sure your configuration is correct?
        AUTH default pw => +OK
        AUTH nobody pw => -WRONGPASS invalid username-password pair or user is disabled.
        AUTH a b c => -ERR syntax error
        "
        .replace("\\\n            ", "")
        .as_str(),
    );
}

#[test]
fn a_forged_line_end_stays_inside_its_error() {
    let server = Fixture::start();
    let mut client = server.client();
    let reply = client.run(&[b"NO\r\n+OK", b"x\ny"]);
    assert_eq!(show(&reply), "-ERR unknown command 'NO  +OK', with args beginning with: 'x y' ");
    client.talk("PING => +PONG");
}

#[test]
fn hello_chooses_the_protocol() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("CLIENT ID => :1");
    let introduction = "$server:$redis $version:$7.0.15 $proto:VERSION $id::1 $mode:$standalone \
        $role:$master $modules:[]";
    let resp3 = format!("{{{}}}", introduction.replace("VERSION", ":3"));
    let resp2 =
        format!("[{}]", introduction.replace("VERSION", ":2").replace("::", " :").replace(":$", " $"));
    let resp2 = resp2.replace("$proto::2", "$proto :2").replace("$modules:[", "$modules [");
    assert_eq!(client.ask("HELLO"), resp2);
    assert_eq!(client.ask("HELLO 3"), resp3);
    client.talk("GET missing => nil\nCONFIG GET databases => {$databases:$16}");
    assert_eq!(client.run(&[b"GET", b"missing"]), Value::Null);
    assert_eq!(client.ask("HELLO 2"), resp2);
    client.talk(
        "
        CONFIG GET databases => [$databases $16]
        HELLO x => -ERR Protocol version is not an integer or out of range
        HELLO 4 => -NOPROTO unsupported protocol version
        HELLO 3 NOSUCH => -ERR Syntax error in HELLO option 'NOSUCH'
        HELLO 3 AUTH default => -ERR Syntax error in HELLO option 'AUTH'
        HELLO 3 AUTH nobody pw => -WRONGPASS invalid username-password pair or user is disabled.
        HELLO 3 SETNAME 'a b' => -ERR Client names cannot contain spaces, newlines or special characters.
        CONFIG GET databases => [$databases $16]
        CLIENT GETNAME => nil
        ",
    );
    assert_eq!(client.ask("HELLO 3 AUTH default pw SETNAME me"), resp3);
    client.talk("CLIENT GETNAME => $me");
}

#[test]
fn quit_and_reset() {
    let server = Fixture::start();
    let mut client = server.client();
    client.ask("HELLO 3");
    client.talk(
        "
        SELECT 2 => +OK
        CLIENT SETNAME me => +OK
        RESET => +RESET
        CLIENT GETNAME => nil
        CONFIG GET databases => [$databases $16]
        SET k v => +OK
        SELECT 0 => +OK
        GET k => $v
        ",
    );
    client.send_raw(b"QUIT\r\nSET k never\r\n");
    assert_eq!(show(&client.receive()), "+OK");
    client.expect_closed();
    server.client().talk("GET k => $v");
}

#[test]
fn clients_have_names_and_numbers() {
    let server = Fixture::start();
    let (mut one, mut two) = (server.client(), server.client());
    one.talk(
        "
        CLIENT ID => :1
        CLIENT GETNAME => nil
        CLIENT SETNAME one => +OK
        CLIENT GETNAME => $one
        CLIENT SETNAME 'a b' => -ERR Client names cannot contain spaces, newlines or special characters.
        CLIENT SETINFO LIB-NAME tests => +OK
        CLIENT SETINFO lib-ver 1.2 => +OK
        CLIENT SETINFO LIB-NAME 'a b' => -ERR lib-name cannot contain spaces, newlines or special characters.
        CLIENT SETINFO NOSUCH x => -ERR Unrecognized option 'NOSUCH'
        CLIENT NO-EVICT ON => +OK
        CLIENT NO-EVICT MAYBE => -ERR syntax error
        CLIENT NOSUCH => -ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.
        CLIENT => -ERR wrong number of arguments for 'client' command
        ",
    );
    two.talk("CLIENT ID => :2\nSELECT 7 => +OK");
    let list = one.ask("CLIENT LIST");
    assert!(
        list.contains("id=1 ") && list.contains("name=one") && list.contains("lib-name=tests lib-ver=1.2")
    );
    assert!(list.contains("id=2 ") && list.contains("db=7") && list.contains("cmd=select"), "{list}");
    assert_eq!(one.ask("CLIENT LIST ID 2 3").matches("id=").count(), 1);
    assert_eq!(one.ask("CLIENT LIST TYPE normal").matches("addr=").count(), 2 * 2, "addr and laddr");
    assert_eq!(one.ask("CLIENT LIST TYPE master"), "$");
    assert_eq!(two.ask("CLIENT INFO").matches("id=2 ").count(), 1);
    one.talk(
        "
        CLIENT LIST ID x => -ERR Invalid client ID
        CLIENT LIST TYPE nosuch => -ERR Unknown client type 'nosuch'
        CLIENT LIST NOSUCH => -ERR syntax error
        ",
    );
}

#[test]
fn clients_are_killed() {
    let server = Fixture::start();
    let mut one = server.client();
    let mut others: Vec<_> = (0..5).map(|_| server.client()).collect();
    for other in &mut others {
        other.talk("PING => +PONG");
    }
    one.talk(
        "
        CLIENT KILL 127.0.0.1:1 => -ERR No such client
        CLIENT KILL ID 999 => :0
        CLIENT KILL ID 0 => -ERR client-id should be greater than 0
        CLIENT KILL TYPE nosuch => -ERR Unknown client type 'nosuch'
        CLIENT KILL TYPE master => :0
        CLIENT KILL USER nobody => -ERR No such user 'nobody'
        CLIENT KILL ID 3 NOSUCH x => -ERR syntax error
        CLIENT KILL ID 3 => :1
        ",
    );
    others.remove(1).expect_closed();
    let address = others[0].stream.local_addr().unwrap();
    one.talk(&format!("CLIENT KILL {address} => +OK"));
    others.remove(0).expect_closed();
    let address = others[0].stream.local_addr().unwrap();
    one.talk(&format!("CLIENT KILL ADDR {address} => :1"));
    others.remove(0).expect_closed();
    one.talk("CLIENT KILL TYPE normal => :2\nPING => +PONG\nCLIENT KILL SKIPME no ID 1 => :1");
    one.expect_closed();
    server.client().talk("PING => +PONG");
}
