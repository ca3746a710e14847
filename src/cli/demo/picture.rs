//! The demo's picture: completed steps of each rank over time, one panel an arm, as SVG.

use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::*;

use super::report::RankTrace;

/// One panel.
pub struct Panel<'a> {
    /// Headline.
    pub title: String,
    /// The lines.
    pub traces: &'a [RankTrace],
}

/// Line colours by job, the first for job 1. Readable by the colour-blind (Okabe and Ito).
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 86, 86),
];

/// Draws the panels side by side on the same axes.
///
/// # Errors
/// When the file cannot be written.
pub fn draw(path: &Path, headline: &str, panels: &[Panel<'_>]) -> Result<()> {
    let width = 620 * panels.len().max(1) as u32;
    let root = SVGBackend::new(path, (width, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(headline, ("sans-serif", 20))?;
    let all = || panels.iter().flat_map(|p| p.traces);
    let last_ms = all().filter_map(|t| t.completed_ms.last().copied()).fold(1.0, f64::max);
    let steps = all().map(|t| t.completed_ms.len()).max().unwrap_or(1) as f64;

    for (panel, area) in panels.iter().zip(root.split_evenly((1, panels.len().max(1)))) {
        let mut chart = ChartBuilder::on(&area)
            .caption(&panel.title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(45)
            .build_cartesian_2d(0.0..last_ms * 1.02, 0.0..steps + 0.3)?;
        chart
            .configure_mesh()
            .x_desc("time since the start, ms")
            .y_desc("completed steps")
            .light_line_style(WHITE)
            .y_labels(steps as usize + 1)
            .x_label_formatter(&|ms| format!("{ms:.0}"))
            .y_label_formatter(&|steps| format!("{steps:.0}"))
            .draw()?;
        let mut named = std::collections::BTreeSet::new();
        for trace in panel.traces {
            let colour = COLOURS[(trace.job as usize).saturating_sub(1) % COLOURS.len()];
            let style = colour.stroke_width(if trace.job == 1 { 3 } else { 1 });
            let series = chart.draw_series(LineSeries::new(staircase(&trace.completed_ms), style))?;
            if named.insert(trace.job) {
                series
                    .label(format!("job {}", trace.job))
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
    }
    root.present().with_context(|| format!("cannot write the picture {}", path.display()))?;
    Ok(())
}

/// (time, steps) corners of the step function.
fn staircase(completed_ms: &[f64]) -> Vec<(f64, f64)> {
    let mut corners = vec![(0.0, 0.0)];
    for (done, &at) in completed_ms.iter().enumerate() {
        corners.extend([(at, done as f64), (at, done as f64 + 1.0)]);
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_holds_one_line_a_rank_and_a_legend_entry_a_job() {
        let traces: Vec<RankTrace> = (0..4)
            .map(|rank| RankTrace { job: 1 + (rank % 2) as u32, rank, completed_ms: vec![10.0, 20.0 + rank as f64] })
            .collect();
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("demo.svg");
        draw(&path, "demo", &[Panel { title: "base".into(), traces: &traces }]).expect("draws");
        let svg = std::fs::read_to_string(&path).expect("was written");
        assert!(svg.matches("<polyline").count() >= 4);
        assert!(svg.contains("job 1") && svg.contains("job 2") && !svg.contains("job 3"));
    }
}
