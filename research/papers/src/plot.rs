//! Drawings of measurements as SVG: panels side by side, one legend, and below them what they depend on.

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::error::Error;

/// How a panel shows its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A line through a point for each category.
    Lines,
    /// A bar for each series in each category.
    Bars,
}

/// Values under one name, one for each category.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend, which gives it the same colour in all panels.
    pub name: String,
    /// A value for each category, where there is one.
    pub values: Vec<Option<f64>>,
}

/// One diagram.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Its caption.
    pub title: String,
    /// The meaning of the categories.
    pub x_label: String,
    /// The meaning of the values, with their unit.
    pub y_label: String,
    /// Places on the horizontal axis.
    pub categories: Vec<String>,
    /// The series that are shown.
    pub series: Vec<Series>,
    /// How.
    pub kind: Kind,
    /// Whether the vertical axis is logarithmic.
    pub log: bool,
}

const PANEL_WIDTH: u32 = 480;
const PANEL_HEIGHT: u32 = 300;
const TITLE_HEIGHT: u32 = 34;
const LEGEND_LINE: u32 = 20;
/// Width of a character in the legend, generously.
const LEGEND_CHARACTER: u32 = 7;
const NOTE_LINE: u32 = 14;
const MARGIN: u32 = 12;
/// Characters of a note that fit into the width of a panel.
const NOTE_CHARACTERS: usize = 82;
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(225, 225, 225);
/// Colours that most people can tell from each other.
const COLOURS: [RGBColor; 12] = [
    RGBColor(110, 110, 110),
    RGBColor(214, 39, 40),
    RGBColor(255, 152, 110),
    RGBColor(227, 160, 8),
    RGBColor(23, 110, 180),
    RGBColor(120, 180, 230),
    RGBColor(23, 170, 190),
    RGBColor(30, 140, 60),
    RGBColor(130, 200, 110),
    RGBColor(148, 80, 190),
    RGBColor(140, 86, 75),
    RGBColor(227, 100, 180),
];

type Drawn<T> = Result<T, Box<dyn Error + Send + Sync>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws panels, two or three in a row, under a title and above notes.
///
/// # Errors
///
/// When the drawing library fails.
pub fn svg(title: &str, panels: &[Panel], notes: &[String]) -> Drawn<String> {
    let columns = match panels.len() {
        1 => 1,
        2..=6 => 2,
        _ => 3,
    };
    let width = PANEL_WIDTH * columns as u32 + 2 * MARGIN;
    let names = names(panels);
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as u32;
    let per_line = (width / (longest * LEGEND_CHARACTER + 36)).max(1) as usize;
    let legend_height = LEGEND_LINE * names.len().div_ceil(per_line) as u32 + 8;
    let notes = wrapped(notes, NOTE_CHARACTERS * columns);
    let panels_height = PANEL_HEIGHT * panels.len().div_ceil(columns) as u32;
    let height = TITLE_HEIGHT + panels_height + legend_height + NOTE_LINE * notes.len() as u32 + 2 * MARGIN;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.margin(MARGIN, MARGIN, MARGIN, MARGIN);
        let (head, rest) = root.split_vertically(TITLE_HEIGHT);
        head.draw(&Text::new(title.to_owned(), (4, 4), ("sans-serif", 18).into_font().color(&INK)))?;
        let (diagrams, rest) = rest.split_vertically(panels_height);
        let areas = diagrams.split_evenly((panels.len().div_ceil(columns), columns));
        for (panel, area) in panels.iter().zip(&areas) {
            draw_panel(area, panel, &names)?;
        }
        let (legend, foot) = rest.split_vertically(legend_height);
        draw_legend(&legend, &names, per_line, width / per_line as u32)?;
        for (line, note) in notes.iter().enumerate() {
            let style = ("sans-serif", 11).into_font().color(&INK.mix(0.7));
            foot.draw(&Text::new(note.clone(), (4, line as i32 * NOTE_LINE as i32), style))?;
        }
        root.present()?;
    }
    Ok(text)
}

/// The names of all series, in order of appearance.
fn names(panels: &[Panel]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    names
}

fn colour(name: &str, names: &[&str]) -> RGBColor {
    let at = names.iter().position(|known| *known == name).unwrap_or(0);
    COLOURS[at % COLOURS.len()]
}

fn draw_panel(area: &Area<'_>, panel: &Panel, names: &[&str]) -> Drawn<()> {
    let right = panel.categories.len() as f64 - 0.5;
    let values = || panel.series.iter().flat_map(|series| series.values.iter().flatten().copied());
    let largest = values().fold(0.0, f64::max);
    let smallest = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    let mut builder = ChartBuilder::on(area);
    builder
        .margin(8)
        .caption(&panel.title, ("sans-serif", 14).into_font().color(&INK))
        .x_label_area_size(36)
        .y_label_area_size(58);
    if panel.log && smallest.is_finite() {
        let low = smallest * 0.8;
        let heights = (low..largest * 1.25).log_scale();
        fill_panel(builder.build_cartesian_2d(-0.5..right, heights)?, panel, names, low)
    } else {
        let high = if largest > 0.0 { largest * 1.1 } else { 1.0 };
        fill_panel(builder.build_cartesian_2d(-0.5..right, 0.0..high)?, panel, names, 0.0)
    }
}

type Chart<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;

/// Draws axes and series; `low` is the bottom.
fn fill_panel<Y>(mut chart: Chart<'_, '_, Y>, panel: &Panel, names: &[&str], low: f64) -> Drawn<()>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let category = |at: &f64| {
        let near = at.round();
        let text = panel.categories.get(near as usize).filter(|_| (at - near).abs() < 0.01 && near >= 0.0);
        text.cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(FAINT)
        .light_line_style(WHITE)
        .axis_style(INK.mix(0.5))
        .x_labels(2 * panel.categories.len() + 1)
        .x_label_formatter(&category)
        .y_labels(6)
        .y_label_formatter(&|at| short(*at))
        .x_desc(&panel.x_label)
        .y_desc(&panel.y_label)
        .label_style(("sans-serif", 11).into_font().color(&INK))
        .axis_desc_style(("sans-serif", 12).into_font().color(&INK))
        .draw()?;
    let bar = 0.8 / panel.series.len() as f64;
    for (at, series) in panel.series.iter().enumerate() {
        let colour = colour(&series.name, names);
        let points: Vec<(f64, f64)> = (series.values.iter().enumerate())
            .filter_map(|(category, value)| value.map(|value| (category as f64, value.max(low))))
            .collect();
        if panel.kind == Kind::Lines {
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
            chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        } else {
            chart.draw_series(points.iter().map(|(category, value)| {
                let left = category - 0.4 + bar * at as f64;
                Rectangle::new([(left + bar * 0.08, low), (left + bar * 0.92, *value)], colour.filled())
            }))?;
        }
    }
    Ok(())
}

fn draw_legend(area: &Area<'_>, names: &[&str], per_line: usize, width: u32) -> Drawn<()> {
    for (at, name) in names.iter().enumerate() {
        let left = 8 + (at % per_line) as i32 * width as i32;
        let top = 4 + (at / per_line) as i32 * LEGEND_LINE as i32;
        area.draw(&Rectangle::new([(left, top), (left + 14, top + 10)], colour(name, names).filled()))?;
        let style = ("sans-serif", 12).into_font().color(&INK);
        area.draw(&Text::new((*name).to_owned(), (left + 20, top), style))?;
    }
    Ok(())
}

/// A number for an axis.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{:.1}M", value / 1e6),
        size if size >= 1e4 => format!("{:.0}k", value / 1e3),
        size if size >= 10.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Lines of at most `width` characters, broken between words.
fn wrapped(notes: &[String], width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for note in notes {
        let mut line = String::new();
        for word in note.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(kind: Kind, log: bool) -> Panel {
        let series =
            |name: &str, values: [Option<f64>; 3]| Series { name: name.to_owned(), values: values.to_vec() };
        Panel {
            title: "A panel".to_owned(),
            x_label: "lines".to_owned(),
            y_label: "ns".to_owned(),
            categories: ["two", "four", "eight"].map(str::to_owned).to_vec(),
            series: vec![
                series("one tree", [Some(1.0), Some(20.0), Some(300.0)]),
                series("other tree", [Some(2.0), None, Some(0.0)]),
            ],
            kind,
            log,
        }
    }

    #[test]
    fn a_drawing_names_everything_once() {
        for kind in [Kind::Lines, Kind::Bars] {
            for log in [false, true] {
                let text =
                    svg("Title", &[panel(kind, log), panel(kind, log)], &["seed 1".to_owned()]).unwrap();
                for (expected, times) in [
                    ("Title", 1),
                    ("A panel", 2),
                    ("one tree", 1),
                    ("other tree", 1),
                    ("seed 1", 1),
                    ("four", 2),
                ] {
                    assert_eq!(text.matches(expected).count(), times, "{expected}, {kind:?}, log {log}");
                }
                assert!(
                    text.trim_end().ends_with("</svg>") && !text.contains("NaN") && !text.contains("inf")
                );
            }
        }
    }

    #[test]
    fn a_missing_value_is_not_drawn() {
        let text = svg("Title", &[panel(Kind::Lines, false)], &[]).unwrap();
        assert_eq!(text.matches("<circle").count(), 5);
    }

    #[test]
    fn notes_are_broken_between_words() {
        assert_eq!(wrapped(&["one two three".to_owned(), String::new()], 7), ["one two", "three", ""]);
    }
}
