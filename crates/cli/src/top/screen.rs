//! A report on a terminal.

use super::report::Report;
use crate::size::human_bytes;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table, Wrap};
use std::io::{self, IsTerminal, Write};

/// The least size that shows something of use.
const WIDTH_MIN: u16 = 60;
const HEIGHT_MIN: u16 = 16;

/// Draws a report, or why there is none.
pub(super) fn draw(frame: &mut Frame<'_>, shown: &Result<Report, String>) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let text = format!(
            "The terminal is too small: it is {} by {}, and {WIDTH_MIN} by {HEIGHT_MIN} are needed.",
            area.width, area.height
        );
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    match shown {
        Ok(report) => draw_report(frame, area, report),
        Err(why) => {
            let block = Block::bordered().title(" tembo top ").title_bottom(" q: end ");
            let text = Paragraph::new(why.as_str()).wrap(Wrap { trim: true }).block(block);
            frame.render_widget(text, area);
        }
    }
}

fn draw_report(frame: &mut Frame<'_>, area: Rect, report: &Report) {
    let slow_height = if report.slow.is_empty() { 0 } else { report.slow.len() as u16 + 2 };
    let [head, space, commands, slow] = Layout::vertical([
        Constraint::Length(report.lines.len() as u16 + 2),
        Constraint::Length(3),
        Constraint::Min(3),
        // Commands come first where there is little room.
        Constraint::Length(slow_height.min(area.height / 4)),
    ])
    .areas(area);
    let lines: Vec<_> = report
        .lines
        .iter()
        .map(|(name, line)| Line::from_iter([format!("{name:<12} ").bold(), line.as_str().into()]))
        .collect();
    let title = Block::bordered().title(format!(" {} ", report.title));
    frame.render_widget(Paragraph::new(lines).block(title), head);
    let parts: Vec<_> =
        report.space.iter().map(|(kind, bytes)| format!("{kind} {}", human_bytes(*bytes))).collect();
    let title = Block::bordered().title(format!(" space: {} ", parts.join(", ")));
    frame.render_widget(Paragraph::new(bar(report, title.inner(space).width)).block(title), space);
    let rows = report.commands.iter().map(|row| Row::new(row.cells()));
    let widths = [24, 10, 10, 10, 10, 10].map(Constraint::Length);
    let headings = Row::new(Report::HEADINGS).style(Style::new().bold());
    let block = Block::bordered().title(" commands ").title_bottom(" q: end ");
    frame.render_widget(Table::new(rows, widths).header(headings).block(block), commands);
    let lines: Vec<_> = report.slow.iter().map(|slow| Line::from(slow.as_str())).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" slow ")), slow);
}

/// The pool as a bar, of which each kind has its share.
fn bar(report: &Report, width: u16) -> Line<'static> {
    let all: u64 = report.space.iter().map(|(_, bytes)| bytes).sum();
    // The first letters of alive, waste, waiting, unused and journal would not tell them apart.
    let marks = ['#', '%', '~', '.', '='];
    let mut text = String::new();
    let mut below = 0;
    for ((_, bytes), mark) in report.space.iter().zip(marks) {
        below += bytes;
        let end = (u128::from(below) * u128::from(width) / u128::from(all.max(1))) as usize;
        text.extend(std::iter::repeat_n(mark, end.saturating_sub(text.len())));
    }
    Line::from(text)
}

/// Asks for a password on the terminal, and does not show it. Without a terminal, the password is a line of
/// standard input.
pub(crate) fn ask_password() -> io::Result<String> {
    let mut password = String::new();
    if !io::stdin().is_terminal() {
        io::stdin().read_line(&mut password)?;
        return Ok(password.trim_end_matches(['\r', '\n']).to_owned());
    }
    eprint!("password: ");
    io::stderr().flush()?;
    enable_raw_mode()?;
    let outcome = read_hidden(&mut password);
    disable_raw_mode()?;
    eprintln!();
    outcome.map(|()| password)
}

fn read_hidden(password: &mut String) -> io::Result<()> {
    loop {
        let Event::Key(key) = event::read()? else { continue };
        match key.code {
            _ if key.kind != KeyEventKind::Press => {}
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Err(io::ErrorKind::Interrupted.into());
            }
            KeyCode::Enter => return Ok(()),
            KeyCode::Backspace => drop(password.pop()),
            KeyCode::Char(letter) => password.push(letter),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::reports;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(width: u16, height: u16, shown: &Result<Report, String>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, shown)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_report_is_drawn_with_its_parts() {
        let text = drawn(100, 30, &Ok(reports()));
        for part in [
            "tembo 0.1.0 at 127.0.0.1:1, up 2 h, relaxed",
            "each with 2.0 fences and 5.0 lines",
            "space: alive 240 B, waste 50 B",
            "get                      50.0",
            "q: end",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        // A quarter of the pool is alive, and half of it unused, in 98 columns.
        assert_eq!((text.matches('#').count(), text.matches('~').count()), (23, 1), "{text}");
    }

    #[test]
    fn a_small_terminal_says_so_and_none_panics() {
        assert!(drawn(50, 16, &Ok(reports())).contains("The terminal is too small"));
        for (width, height) in [(1, 1), (60, 16), (61, 17), (300, 100)] {
            drawn(width, height, &Ok(reports()));
            drawn(width, height, &Err("gone".to_owned()));
        }
        assert!(drawn(80, 24, &Err("1.2.3.4:5 does not answer".to_owned())).contains("does not answer"));
    }
}
