//! Each side reads the other's writes, however the bytes are cut.

use crate::properties::{self, Choices, Transcript, receive_replies, receive_requests};
use proptest::collection::vec;
use proptest::prelude::*;
use tembo_wire::decimal::Decimal;
use tembo_wire::number::{parse_f64, parse_i64, write_f64};
use tembo_wire::{Limits, Protocol, ReplyLimits, ReplyWriter, Value, write_request};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..20),
        vec(prop::sample::select(b"\r\n$*:0 '\"\\x".to_vec()), 0..20),
        vec(any::<u8>(), 0..3000),
    ]
}

fn commands() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    vec(vec(bytes(), 1..6), 0..6)
}

/// A line of text: bytes without CR and LF.
fn line() -> impl Strategy<Value = Vec<u8>> {
    bytes().prop_map(|text| text.into_iter().filter(|byte| !b"\r\n".contains(byte)).collect())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        line().prop_map(Value::Simple),
        line().prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        bytes().prop_map(Value::Bulk),
        Just(Value::Null),
        any::<f64>().prop_filter("NaN is not equal to itself", |f| !f.is_nan()).prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        "-?[0-9]{1,40}".prop_map(|digits| Value::BigNumber(digits.into_bytes())),
        bytes().prop_map(|text| Value::Verbatim { format: *b"txt", text }),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::Array),
            vec(inner.clone(), 0..6).prop_map(Value::Set),
            vec(inner.clone(), 0..6).prop_map(Value::Push),
            vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}

fn write(w: &mut ReplyWriter<'_>, value: &Value) {
    match value {
        Value::Simple(text) => w.simple(text),
        Value::Error(text) => w.error(text),
        Value::Integer(number) => w.integer(*number),
        Value::Bulk(bytes) => w.bulk(bytes),
        Value::Null => w.null(),
        Value::Double(number) => w.double(*number),
        Value::Boolean(value) => w.boolean(*value),
        Value::BigNumber(digits) => w.big_number(digits),
        Value::Verbatim { format, text } => w.verbatim(*format, text),
        Value::Array(items) => write_all(w, items, |w, len| w.array(len)),
        Value::Set(items) => write_all(w, items, |w, len| w.set(len)),
        Value::Push(items) => write_all(w, items, |w, len| w.push(len)),
        Value::Map(pairs) => {
            w.map(pairs.len());
            pairs.iter().for_each(|(key, value)| {
                write(w, key);
                write(w, value);
            });
        }
    }
}

fn write_all(w: &mut ReplyWriter<'_>, items: &[Value], header: fn(&mut ReplyWriter<'_>, usize)) {
    header(w, items.len());
    items.iter().for_each(|item| write(w, item));
}

/// A value as a RESP2 client sees it.
fn in_resp2(value: Value) -> Value {
    match value {
        Value::Double(number) => {
            let mut text = Vec::new();
            write_f64(&mut text, number);
            Value::Bulk(text)
        }
        Value::Boolean(value) => Value::Integer(value.into()),
        Value::BigNumber(text) | Value::Verbatim { text, .. } => Value::Bulk(text),
        Value::Array(items) | Value::Set(items) | Value::Push(items) => {
            Value::Array(items.into_iter().map(in_resp2).collect())
        }
        Value::Map(pairs) => Value::Array(
            pairs.into_iter().flat_map(|(key, value)| [in_resp2(key), in_resp2(value)]).collect(),
        ),
        value => value,
    }
}

/// An argument as a word of an inline command, in one of the three notations.
fn quoted(arg: &[u8], notation: usize) -> Vec<u8> {
    let plain = !arg.is_empty() && arg.iter().all(|byte| !b" \t\r\n\x0b\x0c\0'\"".contains(byte));
    match notation {
        0 if plain && arg[0] != b'*' => arg.to_vec(),
        1 if !arg.iter().any(|byte| b"\n\\\r\0".contains(byte)) => {
            let inner = String::from_utf8_lossy(arg).replace('\'', "\\'");
            if std::str::from_utf8(arg).is_ok() { format!("'{inner}'").into_bytes() } else { quoted(arg, 2) }
        }
        _ => {
            let hex: String = arg.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("\"{hex}\"").into_bytes()
        }
    }
}

proptest! {
    #[test]
    fn requests(commands in commands(), seed in any::<u64>()) {
        let mut stream = Vec::new();
        commands.iter().for_each(|args| write_request(&mut stream, args));
        let received = receive_requests(&Choices(seed).pieces(&stream), &Limits::default());
        prop_assert_eq!(received, Transcript { items: commands, consumed: stream.len(), error: None });
    }

    #[test]
    fn inline_commands(commands in commands(), seed in any::<u64>()) {
        let mut choices = Choices(seed);
        let mut stream = Vec::new();
        for args in &commands {
            let words: Vec<_> = args.iter().map(|arg| quoted(arg, choices.below(3))).collect();
            stream.extend(words.join(&b' '));
            stream.extend_from_slice([&b"\n"[..], b"\r\n"][choices.below(2)]);
        }
        let received = receive_requests(&choices.pieces(&stream), &Limits::default());
        prop_assert_eq!(received, Transcript { items: commands, consumed: stream.len(), error: None });
    }

    #[test]
    fn replies(values in vec(value(), 0..4), seed in any::<u64>()) {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut stream = Vec::new();
            values.iter().for_each(|value| write(&mut ReplyWriter::new(&mut stream, protocol), value));
            let received = receive_replies(&Choices(seed).pieces(&stream), ReplyLimits::default());
            let items = match protocol {
                Protocol::Resp2 => values.iter().cloned().map(in_resp2).collect(),
                Protocol::Resp3 => values.clone(),
            };
            prop_assert_eq!(received, Transcript { items, consumed: stream.len(), error: None });
        }
    }

    #[test]
    fn random_bytes(data in vec(any::<u8>(), 0..200)) {
        properties::requests(&data);
        properties::replies(&data);
        properties::numbers(&data);
    }

    #[test]
    fn integers(number in any::<i64>()) {
        prop_assert_eq!(parse_i64(number.to_string().as_bytes()), Some(number));
    }

    #[test]
    fn doubles(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        let mut text = Vec::new();
        write_f64(&mut text, number);
        let expected = if number.is_nan() { None } else { Some(bits) };
        prop_assert_eq!(parse_f64(&text).map(f64::to_bits), expected);
    }

    /// Sums of hundredths, against integers.
    #[test]
    fn decimal_sums(a in -(1i128 << 100)..1i128 << 100, b in any::<i64>().prop_map(i128::from)) {
        let hundredths = |number: i128| {
            let sign = if number < 0 { "-" } else { "" };
            let (whole, part) = (number.unsigned_abs() / 100, number.unsigned_abs() % 100);
            Decimal::parse(format!("{sign}{whole}.{part:02}").as_bytes()).unwrap()
        };
        let sum = hundredths(a).checked_add(hundredths(b)).unwrap();
        let (mut written, mut expected) = (Vec::new(), Vec::new());
        sum.write(&mut written);
        hundredths(a + b).write(&mut expected);
        prop_assert_eq!(written, expected);
    }
}
