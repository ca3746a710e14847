//! The pictures of a sweep, as SVG: completion times with their intervals, and how leads and queues are distributed.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::record::Record;
use super::report::Report;
use crate::backend::sim::{DEPTH_BUCKET_BYTES, JobResults};
use crate::cli::picture::{COLOURS, Rank};

/// Lines of a picture of steps: more can't be told apart.
const MOST_RANKS: usize = 128;
/// Corners of such a line.
const MOST_STEPS: usize = 500;
/// Where the axis of a distribution ends: one packet in a million.
const LEAST_SHARE: f64 = 1e-6;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Something that is measured once for each packet.
#[derive(Clone, Copy)]
pub enum Quantity {
    /// Lead, in steps.
    Lead,
    /// Length of the queue that it left, in KB.
    QueueDepth,
}

impl Quantity {
    fn of(self, record: &Record) -> &[u64] {
        match self {
            Quantity::Lead => &record.leads,
            Quantity::QueueDepth => &record.queue_depths,
        }
    }

    /// Width of a bucket on the axis.
    fn unit(self) -> f64 {
        match self {
            Quantity::Lead => 0.25,
            Quantity::QueueDepth => DEPTH_BUCKET_BYTES as f64 / 1e3,
        }
    }

    fn axis(self) -> &'static str {
        match self {
            Quantity::Lead => "lead over the slowest known flow of the job, steps",
            Quantity::QueueDepth => "queue at the egress port, KB",
        }
    }
}

/// Lines for [`crate::cli::picture::steps`]: every rank of every job, coloured by class. Of many ranks and steps, as many as
/// can be told apart, evenly taken.
pub fn ranks(jobs: &[JobResults]) -> Vec<Rank> {
    let mut classes: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    let first_ns = jobs.iter().map(|job| job.start_ns).min().unwrap_or(0);
    for job in jobs {
        let known = classes.iter().position(|class| *class == job.class);
        let group = known.unwrap_or(classes.len());
        if known.is_none() {
            classes.push(&job.class);
        }
        all.extend(job.steps.iter().map(|steps| (group, job.class.as_str(), steps)));
    }
    let stride = all.len().div_ceil(MOST_RANKS).max(1);
    let line = |(group, label, steps): (usize, &str, &Vec<u64>)| Rank {
        group,
        label: label.to_owned(),
        completed_ms: steps.iter().map(|at| at.saturating_sub(first_ns) as f64 / 1e6).collect(),
    };
    let mut ranks: Vec<Rank> = all.into_iter().step_by(stride).map(line).collect();
    let longest = ranks.iter().map(|rank| rank.completed_ms.len()).max().unwrap_or(0);
    let stride = longest.div_ceil(MOST_STEPS).max(1);
    if stride > 1 {
        for rank in &mut ranks {
            rank.completed_ms = rank.completed_ms.iter().skip(stride - 1).step_by(stride).copied().collect();
        }
    }
    ranks
}

/// How many steps one on the axis of the picture of steps stands for.
pub fn steps_a_unit(jobs: &[JobResults]) -> usize {
    let longest = jobs.iter().flat_map(|job| &job.steps).map(Vec::len).max().unwrap_or(0);
    longest.div_ceil(MOST_STEPS).max(1)
}

/// The share of packets that have so much of it or more, by arm, on a logarithmic axis. `None` where no arm has any.
///
/// # Errors
/// What keeps it from being drawn.
pub fn distribution(quantity: Quantity, arms: &[&str], records: &[Record]) -> Result<Option<String>> {
    let lines: Vec<(&str, Vec<(f64, f64)>)> = arms
        .iter()
        .map(|arm| (*arm, shares(&total(quantity, arm, records), quantity.unit())))
        .filter(|(_, line)| !line.is_empty())
        .collect();
    let last = || lines.iter().filter_map(|(_, line)| line.last());
    let Some(end) = last().map(|(x, _)| *x).reduce(f64::max) else {
        return Ok(None);
    };
    // Down to the power of ten below the rarest.
    let least = last().map(|(_, share)| *share).fold(0.5, f64::min);
    let floor = 10f64.powf(least.log10().floor()).max(LEAST_SHARE);
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (620, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end * 1.35, (floor..1.0).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(quantity.axis())
        .y_desc("share of packets with as much or more")
        .light_line_style(WHITE)
        .x_label_formatter(&|value| format!("{value}"))
        .y_label_formatter(&|share| format!("{share:.0e}"))
        .draw()?;
    for (number, (arm, line)) in lines.iter().enumerate() {
        let style = COLOURS[number % COLOURS.len()].stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.iter().copied(), style))?
            .label(*arm)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    drop((chart, root));
    Ok(Some(svg))
}

/// Packets by bucket over all seeds of an arm.
fn total(quantity: Quantity, arm: &str, records: &[Record]) -> Vec<u64> {
    let mut total = Vec::new();
    for record in records.iter().filter(|record| record.arm == arm) {
        let counts = quantity.of(record);
        total.resize(total.len().max(counts.len()), 0);
        total.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    total
}

/// Corners of the step function (value, share of packets at or above it), as far as there are packets.
fn shares(counts: &[u64], unit: f64) -> Vec<(f64, f64)> {
    let all: u64 = counts.iter().sum();
    let mut above = all;
    let mut corners = Vec::new();
    for (bucket, &count) in (0u32..).zip(counts) {
        if above == 0 {
            break;
        }
        let share = (above as f64 / all as f64).max(LEAST_SHARE);
        corners.extend([(f64::from(bucket) * unit, share), (f64::from(bucket + 1) * unit, share)]);
        above -= count;
    }
    corners
}

/// Completion times of a class by arm (mean and range over seeds, and the bound), beside their change from base with its
/// 95 % interval.
///
/// # Errors
/// What keeps it from being drawn.
pub fn completion(report: &Report, class: &str) -> Result<String> {
    let mut svg = String::new();
    let height = 90 + 34 * report.arms.0.len() as u32;
    let root = SVGBackend::with_string(&mut svg, (1000, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(540);
    times(&left, report, class)?;
    changes(&right, report, class)?;
    root.present()?;
    drop((left, right, root));
    Ok(svg)
}

/// A row of a chart of arms: the first on top.
fn row(arms: usize, number: usize) -> f64 {
    (arms - 1 - number) as f64
}

fn names(report: &Report) -> impl Fn(&f64) -> String {
    let names: Vec<String> = report.arms.0.iter().rev().map(|(name, _)| name.clone()).collect();
    move |row| {
        let at = row.round();
        let known = (row - at).abs() < 0.01 && at >= 0.0;
        known.then(|| names.get(at as usize).cloned()).flatten().unwrap_or_default()
    }
}

fn times(area: &Area<'_>, report: &Report, class: &str) -> Result<()> {
    let arms = report.arms.0.len();
    let of_class: Vec<_> = report.arms.0.iter().map(|(_, arm)| arm.jct_ms.get(class).copied()).collect();
    let bound = report.bound_ms.get(class).copied().filter(|bound| *bound > 0.0);
    let ends = || of_class.iter().flatten().flat_map(|jct| [jct.min, jct.max]).chain(bound);
    let (least, most) = (ends().fold(f64::INFINITY, f64::min), ends().fold(0.0, f64::max));
    let margin = ((most - least) * 0.05).max(most * 0.005).max(1e-6);
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(120)
        .build_cartesian_2d(least.min(most) - margin..most + margin, -0.5..arms as f64 - 0.5)?;
    chart
        .configure_mesh()
        .x_desc(format!("JCT of class {class}, ms: mean, least and most of {} seeds", report.seeds))
        .disable_y_mesh()
        .light_line_style(WHITE)
        .x_labels(6)
        .y_labels(arms)
        .y_label_formatter(&names(report))
        .draw()?;
    if let Some(bound) = bound {
        let style = COLOURS[4].stroke_width(1);
        chart.draw_series(DashedLineSeries::new([(bound, -0.5), (bound, arms as f64 - 0.5)], 4, 4, style))?;
    }
    for (number, jct) in of_class.iter().enumerate().filter_map(|(number, jct)| Some((number, (*jct)?))) {
        let y = row(arms, number);
        chart.draw_series([PathElement::new([(jct.min, y), (jct.max, y)], COLOURS[0].stroke_width(2))])?;
        chart.draw_series([Circle::new((jct.mean, y), 4, COLOURS[0].filled())])?;
    }
    Ok(())
}

fn changes(area: &Area<'_>, report: &Report, class: &str) -> Result<()> {
    let arms = report.arms.0.len();
    let of_class: Vec<_> = report
        .arms
        .0
        .iter()
        .map(|(name, _)| report.change_pct.get(name).and_then(|classes| classes.get(class)).copied())
        .collect();
    let ends = || of_class.iter().flatten().flat_map(|change| [change.ci_low, change.ci_high]);
    let (least, most) = (ends().fold(-1.0, f64::min), ends().fold(1.0, f64::max));
    let margin = (most - least) * 0.05;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(10)
        .build_cartesian_2d(least - margin..most + margin, -0.5..arms as f64 - 0.5)?;
    chart
        .configure_mesh()
        .x_desc("change of the mean JCT from base, %, and 95 % interval")
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(WHITE)
        .x_labels(8)
        .x_label_formatter(&|percent| if percent.abs() < 0.5 { "0".into() } else { format!("{percent:+.0}") })
        .draw()?;
    chart.draw_series([PathElement::new([(0.0, -0.5), (0.0, arms as f64 - 0.5)], BLACK.stroke_width(1))])?;
    for (number, change) in of_class.iter().enumerate().filter_map(|(number, change)| Some((number, (*change)?))) {
        let y = row(arms, number);
        // Grey where chance may be all there is.
        let style = COLOURS[if change.ci_low > 0.0 {
            5
        } else if change.ci_high < 0.0 {
            2
        } else {
            4
        }];
        chart.draw_series([PathElement::new([(change.ci_low, y), (change.ci_high, y)], style.stroke_width(2))])?;
        for end in [change.ci_low, change.ci_high] {
            chart.draw_series([PathElement::new([(end, y - 0.12), (end, y + 0.12)], style.stroke_width(2))])?;
        }
        chart.draw_series([Circle::new((change.mean, y), 4, style.filled())])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fall_from_all_packets_to_the_last_and_end_there() {
        let corners = shares(&[6, 3, 0, 1, 0, 0], 0.25);
        let expected =
            [(0.0, 1.0), (0.25, 1.0), (0.25, 0.4), (0.5, 0.4), (0.5, 0.1), (0.75, 0.1), (0.75, 0.1), (1.0, 0.1)];
        assert_eq!(corners, expected);
        assert_eq!(shares(&[0, 0], 1.0), []);
        assert_eq!(shares(&[], 1.0), []);
    }

    #[test]
    fn of_many_ranks_and_steps_as_many_are_drawn_as_can_be_told_apart() {
        let job = JobResults {
            class: "all".into(),
            start_ns: 0,
            finish_ns: None,
            steps: vec![(0..2046).map(|step| step * 1_000_000).collect(); 1024],
        };
        let jobs = [job];
        let ranks = ranks(&jobs);
        assert_eq!(ranks.len(), MOST_RANKS);
        assert_eq!(steps_a_unit(&jobs), 5);
        assert_eq!(ranks[0].completed_ms.len(), 409);
        assert_eq!(ranks[0].completed_ms[0], 4.0);
    }

    #[test]
    fn ranks_are_coloured_by_class_in_the_order_of_the_jobs() {
        let job =
            |class: &str| JobResults { class: class.into(), steps: vec![vec![5_000_000]], ..JobResults::default() };
        let groups: Vec<(usize, String)> = ranks(&[job("healthy"), job("straggler"), job("straggler")])
            .into_iter()
            .map(|rank| (rank.group, rank.label))
            .collect();
        let expected = [(0, "healthy".into()), (1, "straggler".into()), (1, "straggler".into())];
        assert_eq!(groups, expected);
    }

    #[test]
    fn what_no_packet_has_is_not_drawn() {
        assert!(distribution(Quantity::Lead, &["base"], &[]).expect("nothing to draw").is_none());
        let records = [Record { arm: "null".into(), leads: vec![9, 1], ..Record::default() }];
        let svg = distribution(Quantity::Lead, &["base", "null"], &records).expect("draws").expect("a picture");
        assert!(svg.contains("null") && !svg.contains("base"));
    }
}
