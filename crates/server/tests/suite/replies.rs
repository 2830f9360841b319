//! Replies byte by byte, where Redis's clients and suites notice.

use std::io::Read;

use crate::support::{Client, Fixture, show};

#[track_caller]
fn assert_bytes(client: &mut Client, request: &[u8], expected: &[u8]) {
    client.send_raw(request);
    let mut reply = vec![0; expected.len()];
    client.stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

/// In RESP2, COMMAND INFO said of an unknown command that it is an absent array; for Redis it is an absent
/// value. EXEC that did not run is the other one.
#[test]
fn there_are_two_nulls_in_resp2() {
    let server = Fixture::start();
    let mut client = server.client();
    assert_bytes(&mut client, b"COMMAND INFO nosuch client|nosuch\r\n", b"*2\r\n$-1\r\n$-1\r\n");
    assert_bytes(&mut client, b"WATCH k\r\nSET k 1\r\nMULTI\r\nEXEC\r\n", b"+OK\r\n+OK\r\n+OK\r\n*-1\r\n");
    client.ask("HELLO 3");
    assert_bytes(&mut client, b"COMMAND INFO nosuch\r\n", b"*1\r\n_\r\n");
    assert_bytes(&mut client, b"WATCH k\r\nSET k 1\r\nMULTI\r\nEXEC\r\n", b"+OK\r\n+OK\r\n+OK\r\n_\r\n");
}

/// Errors quoted what stands behind a NUL, and line ends at their ends.
#[test]
fn errors_quote_up_to_a_nul() {
    let server = Fixture::start();
    let mut client = server.client();
    for (request, expected) in [
        (
            &[&b"no\0such"[..], b"a\0b", b"c\r\nd"][..],
            "-ERR unknown command 'no', with args beginning with: 'a' 'c  d' ",
        ),
        (&[b"CLIENT", b"no\0such"], "-ERR unknown subcommand 'no'. Try CLIENT HELP."),
        (&[b"EXPIRE", b"k", b"1", b"N\0X"], "-ERR Unsupported option N"),
        (&[b"EXPIRE", b"k", b"1", b"\r\nNX\r\n"], "-ERR Unsupported option   NX"),
        (
            &[b"CONFIG", b"SET", b"time\0out", b"1"],
            "-ERR Unknown option or number of arguments for CONFIG SET - 'time'",
        ),
    ] {
        assert_eq!(show(&client.run(request)), expected);
    }
}

/// An inline command with a NUL was executed; Redis never executes one.
#[test]
fn an_inline_command_with_a_nul_is_refused() {
    let server = Fixture::start();
    for line in [&b"SET a\0b c\r\n"[..], b"\0PING\r\n", b"ECHO \"a\0b\"\n"] {
        let mut client = server.client();
        client.send_raw(line);
        assert_eq!(show(&client.receive()), "-ERR Protocol error: NUL in inline request");
        client.expect_closed();
    }
    let mut client = server.client();
    client.send_raw(b"ECHO \"a\\x00b\"\r\n");
    assert_eq!(client.receive().as_bytes(), Some(&b"a\0b"[..]));
    client.talk("DBSIZE => :0");
}

#[test]
fn settings_out_of_range_are_refused_in_redis_words() {
    let server = Fixture::start();
    let mut client = server.client();
    for (setting, why) in [
        ("timeout -1", "argument must be between 0 and 2147483647 inclusive"),
        ("tcp-keepalive 2147483648", "argument must be between 0 and 2147483647 inclusive"),
        ("maxclients 0", "argument must be between 1 and 4294967295 inclusive"),
        ("proto-max-bulk-len 1", "argument must be between 1048576 and 9223372036854775807 inclusive"),
        ("proto-max-bulk-len -1", "argument must be a memory value"),
        ("timeout 1.5", "argument couldn't be parsed into an integer"),
        ("databases -1", "can't set immutable config"),
    ] {
        let name = setting.split(' ').next().unwrap();
        let expected = format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {why}");
        assert_eq!(client.ask(&format!("CONFIG SET {setting}")), expected);
    }
    client.talk(
        "CONFIG SET timeout x nosuch 1 => -ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
    );
}

/// Test suites and frameworks begin with these.
#[test]
fn scripts_and_functions_are_flushed() {
    let server = Fixture::start();
    server.client().talk(
        "
        FUNCTION FLUSH => +OK
        FUNCTION FLUSH ASYNC => +OK
        function flush sync => +OK
        FUNCTION FLUSH x => -ERR FUNCTION FLUSH only supports SYNC|ASYNC option
        FUNCTION FLUSH SYNC x => -ERR unknown subcommand or wrong number of arguments for 'FLUSH'. Try FUNCTION HELP.
        FUNCTION LIST => -ERR unknown subcommand 'LIST'. Try FUNCTION HELP.
        FUNCTION => -ERR wrong number of arguments for 'function' command
        SCRIPT FLUSH => +OK
        SCRIPT FLUSH ASYNC => +OK
        SCRIPT FLUSH SYNC => +OK
        SCRIPT FLUSH x => -ERR SCRIPT FLUSH only support SYNC|ASYNC option
        SCRIPT FLUSH SYNC SYNC => -ERR SCRIPT FLUSH only support SYNC|ASYNC option
        SCRIPT x => -ERR unknown subcommand 'x'. Try SCRIPT HELP.
        ",
    );
}

#[test]
fn incrbyfloat_reads_hexadecimal_floats() {
    let server = Fixture::start();
    server.client().talk(
        "
        INCRBYFLOAT k 0x10 => $16
        INCRBYFLOAT k -0x1.8p+1 => $13
        INCRBYFLOAT k 0x => -ERR value is not a valid float
        SET k 0x10 => +OK
        INCRBYFLOAT k 1 => $17
        SELECT 2147483648 => -ERR value is out of range, value must between -2147483648 and 2147483647
        ",
    );
}
