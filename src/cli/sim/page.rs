//! `--report DIR`: one page with everything in it: what was run, the table, the pictures and what they show.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::arm::{BASE, Kind, NULL, SYMPHONY};
use super::figures::{self, Quantity};
use super::record::Record;
use super::report::Report;
use super::runner::Workload;
use super::study::Study;
use super::text;
use crate::cli::picture::{self, Panel};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:1280px;margin:2em auto;padding:0 1em;color:#222}\
 figure{margin:2em 0}figcaption{max-width:60em;color:#444;font-size:14px}svg{max-width:100%;height:auto}\
 table{border-collapse:collapse;font-size:14px}th,td{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}\
 th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}code{background:#f3f3f3}\
 @media print{figure{break-inside:avoid}}";

/// Writes `index.html` into `dir`. Seed 1 of base and symphony is run again for the picture of steps.
///
/// # Errors
/// What keeps it from being drawn or written.
pub fn write(dir: &Path, study: &Study, report: &Report, records: &[Record]) -> Result<()> {
    let path = dir.join("index.html");
    fs::write(&path, page(study, report, records)?).with_context(|| format!("cannot write {}", path.display()))
}

fn page(study: &Study, report: &Report, records: &[Record]) -> Result<String> {
    let title = format!("{}, {}", escaped(&report.scenario), report.cc);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<p>{} seeds; {}. Made by <code>{}</code>, version {}.</p>\n",
        report.seeds,
        text::resolution(report),
        escaped(&study.sweep.command()),
        env!("CARGO_PKG_VERSION")
    );
    table(&mut html, report);
    for class in super::report::classes(records) {
        let caption = format!(
            "Left: completion time of the jobs of class {class} by arm, in ms; dot: mean over {} seeds, line: from the least \
             to the most{}. Right: change of the mean from base in per cent with its 95 % interval (bootstrap over paired \
             seeds); negative is faster.",
            report.seeds,
            if report.bound_ms.is_empty() { "" } else { ", dashed: what no schedule can beat" }
        );
        figure(&mut html, &format!("JCT by arm: {class}"), &figures::completion(report, class)?, &caption);
    }
    steps(&mut html, study)?;

    let marking = study.arms.iter().filter(|arm| matches!(arm.kind, Kind::Symphony(_)));
    let marking: Vec<&str> = marking.map(|arm| arm.name.as_str()).collect();
    if let Some(svg) = figures::distribution(Quantity::Lead, &marking, records)? {
        let caption = format!(
            "How far packets are ahead when they leave a queue, in steps over the slowest flow of their job that the switch \
             knows: share of data packets with that lead or more, all seeds, all switches. {NULL} marks nothing: it is base, \
             whose switches do not look at leads. The last bucket is open."
        );
        figure(&mut html, "Leads", &svg, &caption);
    }
    let controlled = study.arms.iter().filter(|arm| !matches!(arm.kind, Kind::NoControl(_)));
    let controlled: Vec<&str> = controlled.map(|arm| arm.name.as_str()).collect();
    if let Some(svg) = figures::distribution(Quantity::QueueDepth, &controlled, records)? {
        let caption = "Queue at the egress port that a packet leaves, in KB: share of packets that left as long a queue or a \
                       longer one, all seeds, all switches. Arms without congestion control are not shown; their queues \
                       have no limit. The last bucket is open.";
        figure(&mut html, "Queues", &svg, caption);
    }
    html += "</body></html>\n";
    Ok(html)
}

/// Steps of seed 1, base beside symphony.
fn steps(html: &mut String, study: &Study) -> Result<()> {
    let mut panels = Vec::new();
    let mut steps_a_unit = 1;
    for arm in [BASE, SYMPHONY] {
        let results = study.run(&study.arm_setup(arm, 1)?)?;
        let end = results.jobs.iter().filter_map(|job| job.finish_ns).max().unwrap_or(results.end_ns);
        steps_a_unit = figures::steps_a_unit(&results.jobs);
        let title = format!("{arm}: all jobs done at {:.2} ms", end as f64 / 1e6);
        panels.push(Panel { title, ranks: figures::ranks(&results.jobs) });
    }
    let many = if steps_a_unit > 1 { format!(", in units of {steps_a_unit} steps") } else { String::new() };
    let caption = format!(
        "Completed ring steps of each rank over time (ms since the first job's start), seed 1{many}; colours: classes of \
         job. Lines of one job that lie apart: a rank that leads or lags."
    );
    figure(html, "Steps of each rank", &picture::steps("", &panels)?, &caption);
    Ok(())
}

fn table(html: &mut String, report: &Report) {
    let _ = write!(
        html,
        "<table><tr><th>arm</th><th>class</th><th>JCT, ms</th><th>median</th><th>least</th><th>most</th>\
         <th>change, % (95 %)</th><th>bound, ms</th><th>spread, steps</th><th>RED marks</th><th>extra marks</th></tr>"
    );
    for (name, arm) in &report.arms.0 {
        for (class, jct) in &arm.jct_ms {
            let change = report.change_pct.get(name).and_then(|classes| classes.get(class)).map(text::percent);
            let bound = report.bound_ms.get(class).map(|bound| format!("{bound:.3}")).unwrap_or_default();
            let _ = write!(
                html,
                "<tr><td>{name}</td><td>{}</td><td>{:.3}</td><td>{:.3}</td><td>{:.3}</td><td>{:.3}</td><td>{}</td>\
                 <td>{bound}</td><td>{:.2}</td><td>{}</td><td>{}</td></tr>",
                escaped(class),
                jct.mean,
                jct.median,
                jct.min,
                jct.max,
                change.unwrap_or_default(),
                arm.spread_steps.mean,
                arm.marks.red,
                arm.marks.symphony
            );
        }
    }
    *html += "</table>\n<p>Spread: completed steps of a job's first rank less its last, mean over time. Marks: packets, over \
              all seeds.</p>\n";
    for failure in &report.failures {
        let _ = writeln!(html, "<p><strong>Check failed: {}</strong></p>", escaped(failure));
    }
}

fn figure(html: &mut String, heading: &str, svg: &str, caption: &str) {
    let (heading, caption) = (escaped(heading), escaped(caption));
    let _ = writeln!(html, "<figure><h2>{heading}</h2>\n{svg}\n<figcaption>{caption}</figcaption></figure>");
}

/// Text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
