//! The picture: how long workers waited, under which strategy, and how accuracy grew; one column an arm.

use anyhow::Result;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::report::{RunResult, Swap};
use crate::cli::picture::COLOURS;

/// One arm's run.
pub struct Column<'a> {
    /// Headline.
    pub title: String,
    /// The strategy at its start.
    pub start: String,
    /// What happened.
    pub run: &'a RunResult,
}

/// What is marked in all columns.
pub struct Marks {
    /// Length of the window.
    pub end_s: f64,
    /// When somebody straggles.
    pub straggling_s: Option<(f64, f64)>,
    /// The target.
    pub target: f64,
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws the columns side by side on the same axes.
///
/// # Errors
/// What keeps it from being drawn.
pub fn draw(columns: &[Column], marks: &Marks) -> Result<String> {
    let mut svg = String::new();
    let count = columns.len().max(1);
    let root = SVGBackend::with_string(&mut svg, (620 * count as u32, 620)).into_drawing_area();
    root.fill(&WHITE)?;
    let most_ms = columns.iter().flat_map(|column| waits_ms(column.run)).map(|(_, ms)| ms).fold(1.0, f64::max);
    for (column, area) in columns.iter().zip(root.split_evenly((1, count))) {
        let (above, below) = area.split_vertically(360);
        let mut chart = ChartBuilder::on(&above)
            .caption(&column.title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(16)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..marks.end_s, 0.0..most_ms * 1.15)?;
        shade(&mut chart, column, marks, most_ms * 1.15)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .y_desc("mean wait of a worker, ms")
            .x_labels(7)
            .x_label_formatter(&|_| String::new())
            .draw()?;
        chart.draw_series(LineSeries::new(waits_ms(column.run), COLOURS[0].stroke_width(1)))?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;

        let mut chart = ChartBuilder::on(&below)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..marks.end_s, 40.0..90.0)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc("time since the start, s")
            .y_desc("test accuracy, %")
            .x_labels(7)
            .y_labels(6)
            .y_label_formatter(&|percent| format!("{percent:.0}"))
            .draw()?;
        let target = 100.0 * marks.target;
        chart.draw_series(LineSeries::new([(0.0, target), (marks.end_s, target)], COLOURS[4].stroke_width(1)))?;
        let curve = column.run.record.curve();
        let points = curve.points().iter().map(|point| (point.at_ns as f64 / 1e9, 100.0 * point.accuracy));
        chart.draw_series(LineSeries::new(points, COLOURS[0].stroke_width(2)))?;
    }
    root.present()?;
    drop(root);
    Ok(svg)
}

/// A background colour for each strategy in force, and lines around the time when somebody straggles.
fn shade(chart: &mut Chart, column: &Column, marks: &Marks, top: f64) -> Result<()> {
    let mut named = std::collections::BTreeMap::new();
    for (strategy, from, to) in periods(column, marks.end_s) {
        let known = named.len();
        let mut new = false;
        let colour = *named.entry(strategy.clone()).or_insert_with(|| {
            new = true;
            COLOURS[(known + 1) % COLOURS.len()]
        });
        let area = Rectangle::new([(from, 0.0), (to, top)], colour.mix(0.2).filled());
        let series = chart.draw_series([area])?;
        if new {
            series
                .label(strategy)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], colour.mix(0.4).filled()));
        }
    }
    if let Some((from, to)) = marks.straggling_s {
        for at in [from, to] {
            chart.draw_series(DashedLineSeries::new([(at, 0.0), (at, top)], 4, 4, BLACK.stroke_width(1)))?;
        }
    }
    Ok(())
}

/// (strategy, from, to) in seconds.
fn periods(column: &Column, end_s: f64) -> Vec<(String, f64, f64)> {
    let began = |boundary: u32| {
        let rounds = column.run.record.rounds().filter(|round| round.round >= boundary);
        rounds.map(|round| round.began_ns).min().map_or(end_s, |ns| ns as f64 / 1e9).min(end_s)
    };
    let starts = std::iter::once((column.start.clone(), 0.0))
        .chain(column.run.swaps.iter().map(|Swap { boundary, to }| (to.clone(), began(*boundary))));
    let starts: Vec<(String, f64)> = starts.collect();
    let ends = starts.iter().skip(1).map(|(_, from)| *from).chain([end_s]);
    starts.iter().zip(ends).map(|((strategy, from), to)| (strategy.clone(), *from, to)).collect()
}

/// Mean wait over the workers that took part in a round, at the round's last end.
fn waits_ms(run: &RunResult) -> Vec<(f64, f64)> {
    let mut rounds = std::collections::BTreeMap::<u32, Vec<(u64, u64)>>::new();
    for round in run.record.rounds() {
        rounds.entry(round.round).or_default().push((round.done_ns, round.wait_ns));
    }
    let mut waits: Vec<(f64, f64)> = rounds
        .values()
        .map(|workers| {
            let last = workers.iter().map(|(done_ns, _)| *done_ns).max().unwrap_or(0);
            let sum: u64 = workers.iter().map(|(_, wait_ns)| wait_ns).sum();
            (last as f64 / 1e9, sum as f64 / workers.len() as f64 / 1e6)
        })
        .collect();
    waits.sort_by(|a, b| a.0.total_cmp(&b.0));
    waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::train::coordinator::{Record, WorkerRecord};
    use crate::cli::train::order::Round;

    #[test]
    fn a_column_shows_each_strategy_once_in_its_legend_and_for_as_long_as_it_was_in_force() {
        let round = |round: u32| Round {
            round,
            began_ns: u64::from(round) * 1_000_000_000,
            done_ns: u64::from(round + 1) * 1_000_000_000,
            wait_ns: 5_000_000,
            ..Round::default()
        };
        let worker = WorkerRecord { rounds: (0..10).map(round).collect(), summary: None };
        let swap = |boundary, to: &str| Swap { boundary, to: to.into() };
        let run = RunResult {
            record: Record { workers: vec![worker], ..Record::default() },
            swaps: vec![swap(3, "partial"), swap(7, "bsp")],
            ..RunResult::default()
        };
        let column = Column { title: "dynamic".into(), start: "bsp".into(), run: &run };
        let bsp = |from, to| ("bsp".to_string(), from, to);
        assert_eq!(periods(&column, 10.0), [bsp(0.0, 3.0), ("partial".into(), 3.0, 7.0), bsp(7.0, 10.0)]);
        let marks = Marks { end_s: 10.0, straggling_s: Some((2.0, 8.0)), target: 0.8 };
        let svg = draw(&[column], &marks).expect("draws");
        assert_eq!((svg.matches(">\nbsp\n<").count(), svg.matches(">\npartial\n<").count()), (1, 1), "{svg}");
        assert_eq!(waits_ms(&run)[0], (1.0, 5.0));
    }
}
