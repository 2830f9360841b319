//! Looking ahead in a pipeline, for hints only.

use crate::request::short_number;

/// The second arguments, usually keys, of the whole requests at the front of `input`, in order. Looks at no
/// more than `requests` requests; one without a second argument, or with no argument at all, counts too.
///
/// It ends at what is not a whole multibulk request in its usual form, which the parser judges when its turn
/// comes. Linear in the number of arguments; payloads are not looked at.
///
/// ```
/// let input = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n*2\r\n$3";
/// let keys: Vec<_> = tembo_wire::keys_ahead(input, 16).collect();
/// assert_eq!(keys, [b"a", b"b"]);
/// assert_eq!(tembo_wire::keys_ahead(input, 2).count(), 1);
/// ```
pub fn keys_ahead(mut input: &[u8], requests: usize) -> impl Iterator<Item = &[u8]> {
    let mut left = requests;
    let next = std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let (key, rest) = second_argument(input)?;
        input = rest;
        Some(key)
    });
    next.flatten()
}

/// The second argument of the request at the front, if it has one, and what is behind the request.
fn second_argument(input: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (count, mut rest) = number(b'*', input)?;
    let mut second = None;
    for index in 0..count {
        let (len, body) = number(b'$', rest)?;
        let (argument, end) = body.split_at_checked(len)?;
        if index == 1 {
            second = Some(argument);
        }
        rest = end.get(2..)?;
    }
    Some((second, rest))
}

fn number(kind: u8, input: &[u8]) -> Option<(usize, &[u8])> {
    let text = input.strip_prefix(&[kind])?;
    let (number, bytes) = short_number(text)?;
    Some((usize::try_from(number).ok()?, &text[bytes..]))
}
