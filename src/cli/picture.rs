//! The picture of a ring job: completed steps of each rank over time, one panel for each case, as SVG.

use anyhow::Result;
use plotters::prelude::*;

/// One panel.
pub struct Panel {
    /// Headline.
    pub title: String,
    /// The lines.
    pub ranks: Vec<Rank>,
}

/// The line of one rank.
pub struct Rank {
    /// Lines of one group share a colour and an entry of the legend. Group 0 is drawn boldly.
    pub group: usize,
    /// What the legend calls the group.
    pub label: String,
    /// When the rank completed its steps, in order.
    pub completed_ms: Vec<f64>,
}

/// Readable by the colour-blind (Okabe and Ito).
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 86, 86),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// Draws the panels side by side on the same axes.
///
/// # Errors
/// What keeps it from being drawn.
pub fn steps(headline: &str, panels: &[Panel]) -> Result<String> {
    let mut svg = String::new();
    let size = (620 * panels.len().max(1) as u32, 460);
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let body = if headline.is_empty() { root.clone() } else { root.titled(headline, ("sans-serif", 20))? };
    let all = || panels.iter().flat_map(|panel| &panel.ranks);
    let last_ms = all().filter_map(|rank| rank.completed_ms.last().copied()).fold(1.0, f64::max);
    let steps = all().map(|rank| rank.completed_ms.len()).max().unwrap_or(1) as f64;

    for (panel, area) in panels.iter().zip(body.split_evenly((1, panels.len().max(1)))) {
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
            .y_labels(steps.min(12.0) as usize + 1)
            .x_label_formatter(&|ms| format!("{ms:.0}"))
            .y_label_formatter(&|steps| format!("{steps:.0}"))
            .draw()?;
        let mut named = std::collections::BTreeSet::new();
        for rank in &panel.ranks {
            let style = COLOURS[rank.group % COLOURS.len()].stroke_width(if rank.group == 0 { 3 } else { 1 });
            let series = chart.draw_series(LineSeries::new(staircase(&rank.completed_ms), style))?;
            if named.insert(rank.group) {
                series.label(&rank.label).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
    }
    root.present()?;
    drop((body, root));
    Ok(svg)
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
    fn a_picture_holds_one_line_a_rank_and_a_legend_entry_a_group() {
        let ranks = (0..4).map(|rank| Rank {
            group: rank % 2,
            label: format!("job {}", 1 + rank % 2),
            completed_ms: vec![10.0, 20.0 + rank as f64],
        });
        let svg = steps("demo", &[Panel { title: "base".into(), ranks: ranks.collect() }]).expect("draws");
        assert!(svg.matches("<polyline").count() >= 4);
        assert!(svg.contains("job 1") && svg.contains("job 2") && !svg.contains("job 3"));
    }
}
