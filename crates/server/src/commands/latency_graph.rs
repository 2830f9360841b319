//! The picture of LATENCY GRAPH: a column for each sample, and below it how long ago the sample was.

use crate::command_stats::Event;

/// Columns of a line.
const COLUMNS: usize = 80;
/// Lines of a column.
const ROWS: usize = 4;
/// The three heights that a column's top has within its line, from the lowest.
const TOPS: [u8; 3] = *b"_o#";

/// A sample's time in milliseconds, and its label.
type Column = (u64, String);

/// Draws the samples of an event as they are at a second.
pub(super) fn draw(name: &str, event: &Event, now: u64) -> String {
    let columns: Vec<Column> =
        event.samples.iter().map(|(second, ms)| (*ms, age(now.saturating_sub(*second)))).collect();
    let low = columns.iter().map(|(ms, _)| *ms).min().unwrap_or(0);
    let high = columns.iter().map(|(ms, _)| *ms).max().unwrap_or(0);
    let worst = event.worst_ms;
    let title = format!("{name} - high {high} ms, low {low} ms (all time high {worst} ms)\n");
    let parts: Vec<String> = columns.chunks(COLUMNS).map(|part| draw_part(part, low, high)).collect();
    title + &"-".repeat(COLUMNS) + "\n" + &parts.join("\n")
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

fn draw_part(columns: &[Column], low: u64, high: u64) -> String {
    let steps = (ROWS * TOPS.len()) as u64;
    let step = |ms: u64| ((ms - low) * steps / (high - low).max(1)).min(steps - 1) as usize;
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for row in (0..ROWS).rev() {
        let base = row * TOPS.len();
        let cell = |(ms, _): &Column| match step(*ms).checked_sub(base) {
            None => b' ',
            Some(height) => TOPS.get(height).copied().unwrap_or(b'|'),
        };
        lines.push(columns.iter().map(cell).collect());
    }
    lines.push(vec![b' '; columns.len()]);
    let label_bytes = columns.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
    for at in 0..label_bytes {
        lines.push(columns.iter().map(|(_, label)| *label.as_bytes().get(at).unwrap_or(&b' ')).collect());
    }
    lines.iter().map(|line| String::from_utf8_lossy(line).into_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_is_that_of_redis() {
        let samples = [(993, 57), (995, 400), (996, 10), (997, 200), (999, 300)];
        let event = Event { samples: samples.into_iter().collect(), worst_ms: 400 };
        let expected = [
            "command - high 400 ms, low 10 ms (all time high 400 ms)",
            &"-".repeat(80),
            " #   ",
            " |  #",
            " | #|",
            "o|_||",
            "     ",
            "75431",
            "sssss",
            "",
        ];
        assert_eq!(draw("command", &event, 1000), expected.join("\n"));
    }

    #[test]
    fn samples_that_are_equal_and_labels_of_several_lengths_are_drawn() {
        let event = Event { samples: [(0, 5), (990, 5)].into_iter().collect(), worst_ms: 7 };
        let picture = draw("command", &event, 1000);
        let lines: Vec<_> = picture.lines().skip(2).collect();
        assert_eq!(lines, ["  ", "  ", "  ", "__", "  ", "11", "60", "ms"]);
        let event = Event { samples: (0..100).map(|second| (second, second)).collect(), worst_ms: 99 };
        let picture = draw("command", &event, 1000);
        assert_eq!(picture.lines().map(str::len).max(), Some(80));
        assert_eq!(picture.lines().filter(|line| line.is_empty()).count(), 1, "{picture}");
    }
}
