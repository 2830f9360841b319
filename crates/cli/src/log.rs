//! The server's log, on standard error.
//!
//! A line is a time, a level by Redis's names and a message; or a JSON object with these, the event's target
//! and its fields. Where standard error goes to the systemd journal, a line begins with the priority in the
//! form of sd-daemon(3), `<4>`, which the journal takes off, and a line of text has no time.

use rustix::fs::fstat;
use serde_json::{Map, Value};
use std::error::Error;
use std::fmt;
use tembo_server::LogFormat;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, fmt};
use tracing_subscriber::registry::LookupSpan;

/// Sends the events of this process to standard error from now on. The server decides which events there are.
pub(crate) fn start(format: LogFormat) {
    let subscriber = fmt()
        .log_internal_errors(false)
        .event_format(LineFormat { format, to_journal: goes_to_journal() })
        .with_max_level(Level::TRACE)
        .with_writer(std::io::stderr)
        .finish();
    // This cannot fail: the process has no other subscriber.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Whether standard error is the stream that the journal has announced. A child whose output was redirected
/// has the announcement too.
fn goes_to_journal() -> bool {
    let Some((device, inode)) =
        std::env::var("JOURNAL_STREAM").ok().and_then(|announced| parse_stream(&announced))
    else {
        return false;
    };
    fstat(std::io::stderr()).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (device, inode))
}

/// Reads `device:inode`.
fn parse_stream(announced: &str) -> Option<(u64, u64)> {
    let (device, inode) = announced.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

/// The form of a line.
struct LineFormat {
    format: LogFormat,
    to_journal: bool,
}

/// An event's message and its other fields.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.others.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.add(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.add(field, value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.add(field, value.to_string());
    }
}

/// The field that sorts events. Lines of text do without it, since the message says the same.
const KIND: &str = "kind";

/// Redis's name of a level, and the priority that syslog has for it.
fn name_of(level: Level) -> (&'static str, u8) {
    match level {
        Level::ERROR => ("error", 3),
        Level::WARN => ("warning", 4),
        Level::INFO => ("notice", 5),
        Level::DEBUG => ("verbose", 6),
        Level::TRACE => ("debug", 7),
    }
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (name, priority) = name_of(*event.metadata().level());
        let mut fields = Fields::default();
        event.record(&mut fields);
        if self.to_journal {
            write!(writer, "<{priority}>")?;
        }
        match self.format {
            LogFormat::Text => self.write_text(&mut writer, name, fields),
            LogFormat::Json => write_json(&mut writer, name, event.metadata().target(), fields),
        }
    }
}

impl LineFormat {
    fn write_text(&self, writer: &mut Writer<'_>, level: &str, fields: Fields) -> fmt::Result {
        let mut message = fields.message;
        for (name, value) in fields.others.iter().filter(|(name, _)| *name != KIND) {
            message += &format!(" {name}={value}");
        }
        // A path in an error may hold anything; a line is one message.
        let message = message.replace(|c: char| c.is_control(), " ");
        if self.to_journal {
            return writeln!(writer, "{message}");
        }
        SystemTime.format_time(writer)?;
        writeln!(writer, " {level}: {message}")
    }
}

/// A line with one object. JSON has an escape for each control character, so that it stays one line.
fn write_json(writer: &mut Writer<'_>, level: &str, target: &str, fields: Fields) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let mut object = Map::new();
    object.insert("time".to_owned(), time.into());
    object.insert("level".to_owned(), level.into());
    object.insert("target".to_owned(), target.into());
    object.insert("message".to_owned(), fields.message.into());
    // An event's field does not replace a field that every line has.
    fields.others.into_iter().for_each(|(name, value)| {
        object.entry(name).or_insert(value);
    });
    writeln!(writer, "{}", Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_announces_a_device_and_an_inode() {
        assert_eq!(parse_stream("9:123456"), Some((9, 123_456)));
        for text in ["", "9", "9:", ":1", "a:1", "9:1:2"] {
            assert_eq!(parse_stream(text), None, "{text}");
        }
    }
}
