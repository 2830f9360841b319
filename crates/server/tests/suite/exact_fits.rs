//! Values and keys of every length, so that some records fill their blocks to the last byte, through every
//! command that writes a value anew.

use crate::support::{Client, Fixture, show};

/// Sends commands in a row, and looks at their replies.
fn run_all(client: &mut Client, commands: &[(Vec<&[u8]>, String)]) {
    let mut bytes = Vec::new();
    commands.iter().for_each(|(args, _)| bytes.extend(crate::support::request(args)));
    client.send_raw(&bytes);
    for (args, expected) in commands {
        let reply = show(&client.receive());
        let lengths: Vec<usize> = args.iter().map(|arg| arg.len()).collect();
        assert_eq!(&reply, expected, "{} with arguments of {lengths:?} bytes", args[0].escape_ascii());
    }
}

/// Everything that rewrites a value, of one key and value.
fn rewrite(client: &mut Client, key: &[u8], value: &[u8]) {
    let other = [&key[..key.len() - 1], b"#"].concat();
    let (len, most) = (value.len().to_string(), value.len().saturating_sub(1).to_string());
    let last = &value[value.len().saturating_sub(1)..];
    let (len_reply, ok) = (format!(":{len}"), "+OK".to_owned());
    let mut commands: Vec<(Vec<&[u8]>, String)> = vec![
        (vec![b"SET", key, value], ok.clone()),
        (vec![b"APPEND", key, b""], len_reply.clone()),
        (vec![b"SETRANGE", key, most.as_bytes(), last], len_reply.clone()),
        (vec![b"SETRANGE", key, b"0", &value[..value.len().min(1)]], len_reply.clone()),
        (vec![b"PEXPIRE", key, b"100000000"], ":1".into()),
        (vec![b"APPEND", key, b""], len_reply.clone()),
        (vec![b"SETRANGE", key, most.as_bytes(), last], len_reply.clone()),
        (vec![b"RENAME", key, &other], ok.clone()),
        (vec![b"PERSIST", &other], ":1".into()),
        (vec![b"RENAME", &other, key], ok.clone()),
        (vec![b"COPY", key, &other], ":1".into()),
        (vec![b"SET", &other, value, b"EX", b"1000"], ok.clone()),
        (vec![b"STRLEN", &other], len_reply.clone()),
        (vec![b"DEL", key, &other], ":2".into()),
    ];
    if value.is_empty() {
        // There is nothing to be overwritten, and a range that leaves nothing makes nothing.
        commands.retain(|(args, _)| args[0] != b"SETRANGE");
    } else {
        let first = &value[..value.len() - 1];
        commands.splice(
            commands.len() - 1..commands.len() - 1,
            [
                (vec![&b"SET"[..], key, first], ok.clone()),
                (vec![b"APPEND", key, last], len_reply.clone()),
                (vec![b"SETRANGE", key, len.as_bytes(), b""], len_reply),
            ],
        );
    }
    // As a field, and as the value of a field, of a packed hash or of a large one.
    commands.extend([
        (vec![&b"HSET"[..], key, value, value], ":1".into()),
        (vec![b"HSTRLEN", key, value], format!(":{len}")),
        (vec![b"HDEL", key, value], ":1".into()),
        (vec![b"EXISTS", key], ":0".into()),
    ]);
    run_all(client, &commands);
    if !value.is_empty() {
        rewrite_bits(client, key, value);
    }
    restore(client, key, value);
}

/// RESTORE of a value, as a string and as a field and its value.
fn restore(client: &mut Client, key: &[u8], value: &[u8]) {
    for (command, words) in [(&b"SET"[..], vec![value]), (b"HSET", vec![value, value])] {
        client.run(&[&[command, key][..], &words].concat());
        let payload = client.run(&[b"DUMP", key]);
        let payload = payload.as_bytes().expect("a payload");
        let is_there: (Vec<&[u8]>, String) = match command {
            b"SET" => (vec![b"STRLEN", key], format!(":{}", value.len())),
            _ => (vec![b"HSTRLEN", key, value], format!(":{}", value.len())),
        };
        let commands = [
            (vec![b"RESTORE", key, b"0", payload, b"REPLACE"], "+OK".into()),
            is_there.clone(),
            (vec![b"RESTORE", key, b"100000000", payload, b"REPLACE"], "+OK".into()),
            is_there,
            (vec![b"DEL", key], ":1".into()),
        ];
        run_all(client, &commands);
    }
}

/// The commands on bits that rewrite a value.
fn rewrite_bits(client: &mut Client, key: &[u8], value: &[u8]) {
    let (first, last) = (value[0], value[value.len() - 1]);
    let at = (value.len() * 8 - 8).to_string();
    let flipped: &[u8] = if first >> 7 == 0 { b"1" } else { b"0" };
    let last = !if value.len() == 1 { last ^ 0x80 } else { last };
    run_all(
        client,
        &[
            (vec![b"SET", key, value], "+OK".into()),
            (vec![b"SETBIT", key, b"0", flipped], format!(":{}", first >> 7)),
            (vec![b"BITOP", b"NOT", key, key], format!(":{}", value.len())),
            (vec![b"BITFIELD", key, b"SET", b"u8", at.as_bytes(), b"1"], format!("[:{last}]")),
            (vec![b"DEL", key], ":1".into()),
        ],
    );
}

#[test]
fn values_of_every_length_are_rewritten() {
    // `APPEND k ""` answered that the pool is damaged, with values of 566, 630, 694 and so on bytes.
    let server = Fixture::start();
    let mut client = server.client();
    let value: Vec<u8> = (0..1 << 20).map(|i| b'a' + (i % 23) as u8).collect();
    (0..=9000).for_each(|len| rewrite(&mut client, b"k", &value[..len]));
    let classes = (8..64).map(|quarter| 1024 * quarter).chain((1..=16).map(|chunk| chunk << 16));
    // Heads of 8 bytes of the record, and 1 or 9 of the value; and a key of 1.
    classes
        .flat_map(|end: usize| [end - 19, end - 18, end - 17, end - 11, end - 10, end - 9])
        .for_each(|len| rewrite(&mut client, b"k", &value[..len]));
    server.check();
}

#[test]
fn keys_of_every_length_have_deadlines_and_are_renamed() {
    // A key of 560, 624 or 688 bytes could not have a deadline, as the key of the list of deadlines met the
    // end of its block.
    let server = Fixture::start();
    let mut client = server.client();
    let key = vec![b'k'; 65_528];
    for len in (1..=2100).chain((2100..=9000).filter(|len| (len + 24) % 64 < 24)).chain(65_500..=65_528) {
        rewrite(&mut client, &key[..len], &key[..len % 2]);
    }
    server.check();
}
