//! The server's log, on standard error.
//!
//! A line is a time, a level by Redis's names and a message. Where standard error goes to the systemd
//! journal, which has the time itself, a line is the priority in the form of sd-daemon(3), `<4>`, and the
//! message.

use rustix::fs::fstat;
use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, fmt};
use tracing_subscriber::registry::LookupSpan;

/// Sends the events of this process to standard error from now on. Which of them there are is the server's
/// business.
pub(crate) fn start() {
    let subscriber = fmt()
        .log_internal_errors(false)
        .event_format(Line { to_journal: goes_to_journal() })
        .with_max_level(Level::TRACE)
        .with_writer(std::io::stderr)
        .finish();
    // There is none before it.
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
struct Line {
    to_journal: bool,
}

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

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (name, priority) = name_of(*event.metadata().level());
        let mut message = String::new();
        context.field_format().format_fields(Writer::new(&mut message), event)?;
        // A path in an error may hold anything; a line is one message.
        let message = message.replace(|c: char| c.is_control(), " ");
        if self.to_journal {
            return writeln!(writer, "<{priority}>{message}");
        }
        SystemTime.format_time(&mut writer)?;
        writeln!(writer, " {name}: {message}")
    }
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
