//! Reading JSON, with the errors of cjson.

use mlua::{Error, Lua, Result, Table, Value};

use crate::json_settings::{NULL, Settings};
use crate::raise::located;

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

impl Token {
    /// Its name in an error.
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Text(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Wrong(why) => why,
        }
    }
}

pub(crate) struct Parser<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    /// Where the last token begins.
    token_at: usize,
    depth: i64,
    settings: &'a Settings,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(lua: &'a Lua, text: &'a [u8], settings: &'a Settings) -> Self {
        Parser { lua, text, at: 0, token_at: 0, depth: 0, settings }
    }

    pub(crate) fn document(mut self) -> Result<Value> {
        let token = self.next();
        let value = self.value(token)?;
        match self.next() {
            Token::End => Ok(value),
            token => Err(self.expected("the end", &token)),
        }
    }

    fn expected(&self, what: &str, found: &Token) -> Error {
        let (found, at) = (found.name(), self.token_at + 1);
        located(self.lua, format!("Expected {what} but found {found} at character {at}"))
    }

    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Token {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.token_at = self.at;
        let single = match self.peek() {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return Token::End,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => {
                if !self.settings.decodes_invalid && self.is_invalid_number() {
                    return Token::Wrong("invalid number");
                }
                return self.number();
            }
            _ => return self.word(),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let words =
            [(&b"true"[..], Token::Boolean(true)), (b"false", Token::Boolean(false)), (b"null", Token::Null)];
        for (word, token) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        let may_begin = matches!(self.peek(), b'+' | b'i' | b'I' | b'n' | b'N');
        if may_begin && self.settings.decodes_invalid && self.is_invalid_number() {
            return self.number();
        }
        Token::Wrong("invalid token")
    }

    /// Whether a number is none of JSON: in another base, with zeros in front, or not finite.
    fn is_invalid_number(&self) -> bool {
        let rest = &self.text[self.at..];
        if rest.first() == Some(&b'+') {
            return true;
        }
        let rest = rest.strip_prefix(b"-").unwrap_or(rest);
        match rest.first() {
            Some(b'0') => matches!(rest.get(1), Some(b'x' | b'X' | b'0'..=b'9')),
            Some(byte) if *byte <= b'9' => false,
            _ => rest
                .get(..3)
                .is_some_and(|word| word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")),
        }
    }

    fn number(&mut self) -> Token {
        let (number, bytes) = read_number(&self.text[self.at..]);
        if bytes == 0 {
            return Token::Wrong("invalid number");
        }
        self.at += bytes;
        Token::Number(number)
    }

    /// An error for a token that is wrong at this place, which is not the token's beginning.
    fn wrong(&mut self, why: &'static str) -> Token {
        self.token_at = self.at;
        Token::Wrong(why)
    }

    fn string(&mut self) -> Token {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            match self.peek() {
                0 => return self.wrong("unexpected end of string"),
                b'"' => break,
                b'\\' => {
                    let escaped = match self.text.get(self.at + 1) {
                        Some(b'b') => 8,
                        Some(b't') => b'\t',
                        Some(b'n') => b'\n',
                        Some(b'f') => 12,
                        Some(b'r') => b'\r',
                        Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
                        Some(b'u') => {
                            if !self.unicode(&mut text) {
                                return self.wrong("invalid unicode escape code");
                            }
                            continue;
                        }
                        _ => return self.wrong("invalid escape code"),
                    };
                    text.push(escaped);
                    self.at += 2;
                }
                byte => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Token::Text(text)
    }

    fn hex(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        digits.iter().try_fold(0, |code, &digit| Some(code << 4 | char::from(digit).to_digit(16)?))
    }

    /// Takes an escaped character, or the two halves of one.
    fn unicode(&mut self, text: &mut Vec<u8>) -> bool {
        let Some(mut code) = self.hex(self.at + 2) else {
            return false;
        };
        let mut bytes = 6;
        if code & 0xf800 == 0xd800 {
            let is_first = code & 0x400 == 0;
            let is_followed = self.text.get(self.at + 6..self.at + 8) == Some(b"\\u");
            let second = self.hex(self.at + 8).filter(|second| second & 0xfc00 == 0xdc00);
            let Some(second) = second.filter(|_| is_first && is_followed) else {
                return false;
            };
            code = ((code & 0x3ff) << 10 | second & 0x3ff) + 0x1_0000;
            bytes = 12;
        }
        let mut utf8 = [0; 4];
        let character = char::from_u32(code).unwrap_or('\u{fffd}');
        text.extend_from_slice(character.encode_utf8(&mut utf8).as_bytes());
        self.at += bytes;
        true
    }

    fn value(&mut self, token: Token) -> Result<Value> {
        Ok(match token {
            Token::Text(text) => Value::String(self.lua.create_string(text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(value) => Value::Boolean(value),
            Token::Null => NULL,
            Token::ObjectBegin => Value::Table(self.object()?),
            Token::ArrayBegin => Value::Table(self.array()?),
            token => return Err(self.expected("value", &token)),
        })
    }

    fn descend(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth <= self.settings.decode_depth_max.min(crate::limits::REPLY_DEPTH_MAX as i64) {
            return Ok(());
        }
        let (depth, at) = (self.depth, self.at);
        let text = format!("Found too many nested data structures ({depth}) at character {at}");
        Err(located(self.lua, text))
    }

    fn object(&mut self) -> Result<Table> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if matches!(token, Token::ObjectEnd) {
            self.depth -= 1;
            return Ok(table);
        }
        loop {
            let Token::Text(key) = token else {
                return Err(self.expected("object key string", &token));
            };
            let colon = self.next();
            if !matches!(colon, Token::Colon) {
                return Err(self.expected("colon", &colon));
            }
            let token_of_value = self.next();
            let value = self.value(token_of_value)?;
            table.raw_set(self.lua.create_string(key)?, value)?;
            match self.next() {
                Token::ObjectEnd => break,
                Token::Comma => token = self.next(),
                other => return Err(self.expected("comma or object end", &other)),
            }
        }
        self.depth -= 1;
        Ok(table)
    }

    fn array(&mut self) -> Result<Table> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if matches!(token, Token::ArrayEnd) {
            self.depth -= 1;
            return Ok(table);
        }
        for at in 1.. {
            let value = self.value(token)?;
            table.raw_set(at, value)?;
            match self.next() {
                Token::ArrayEnd => break,
                Token::Comma => token = self.next(),
                other => return Err(self.expected("comma or array end", &other)),
            }
        }
        self.depth -= 1;
        Ok(table)
    }
}

/// The number that a text begins with, as C's `strtod` reads it, and the bytes it takes; 0 if there is none.
fn read_number(text: &[u8]) -> (f64, usize) {
    let unsigned = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let sign_bytes = text.len() - unsigned.len();
    let sign = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let begins = |word: &[u8]| unsigned.get(..word.len()).is_some_and(|have| have.eq_ignore_ascii_case(word));
    if begins(b"infinity") {
        return (sign * f64::INFINITY, sign_bytes + 8);
    }
    if begins(b"inf") {
        return (sign * f64::INFINITY, sign_bytes + 3);
    }
    if begins(b"nan") {
        return (sign * f64::NAN, sign_bytes + 3);
    }
    let digits = |from: usize| unsigned[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if begins(b"0x") {
        let hex = unsigned[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if hex > 0 {
            let number = unsigned[2..2 + hex].iter().fold(0.0, |number, &digit| {
                number * 16.0 + f64::from(char::from(digit).to_digit(16).unwrap_or(0))
            });
            return (sign * number, sign_bytes + 2 + hex);
        }
    }
    let before = digits(0);
    let mut end = before;
    let mut after = 0;
    if unsigned.get(end) == Some(&b'.') {
        after = digits(end + 1);
        end += 1 + after;
    }
    if before + after == 0 {
        return (0.0, 0);
    }
    if matches!(unsigned.get(end), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(unsigned.get(end + 1), Some(b'+' | b'-')));
        let count = if end + 1 + signed <= unsigned.len() { digits(end + 1 + signed) } else { 0 };
        if count > 0 {
            end += 1 + signed + count;
        }
    }
    let number = str::from_utf8(&unsigned[..end]).ok().and_then(|text| text.parse::<f64>().ok());
    (sign * number.unwrap_or(0.0), sign_bytes + end)
}
