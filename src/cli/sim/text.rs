//! A sweep for people, and for spreadsheets.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use serde_json::json;

use super::record::Record;
use super::report::Report;
use super::statistics::Change;
use crate::cli::table::Table;

/// A change and its interval, `-49.1 (-50.3..-47.8)`; what is exactly nothing is shown as such.
pub fn percent(change: &Change) -> String {
    if *change == Change::default() {
        return "0".into();
    }
    // One digit is what an interval of a per cent or so leaves; -0.04 is not "-0.0".
    let digit = |value: f64| format!("{:+.1}", (value * 10.0).round() / 10.0 + 0.0);
    format!("{} ({}..{})", digit(change.mean), digit(change.ci_low), digit(change.ci_high))
}

/// Whether chance is under control, in words.
pub fn resolution(report: &Report) -> &'static str {
    match report.resolved {
        Some(true) => "resolved: the null arm is known to within 1 %",
        Some(false) => "not resolved: the null arm is not known to within 1 %",
        None => "without the null arm: how far chance goes is not known",
    }
}

/// The table.
pub fn table(report: &Report) -> String {
    let mut rows = Vec::new();
    for (name, arm) in &report.arms.0 {
        for (number, (class, jct)) in arm.jct_ms.iter().enumerate() {
            let change = report.change_pct.get(name).and_then(|classes| classes.get(class));
            let mut row = json!({
                "arm": name,
                "class": class,
                "mean": format!("{:.3}", jct.mean),
                "median": format!("{:.3}", jct.median),
                "range": format!("{:.3}..{:.3}", jct.min, jct.max),
                "change": change.map(percent),
                "bound": report.bound_ms.get(class).map(|bound| format!("{bound:.3}")),
            });
            // What belongs to the arm as a whole is said once.
            let whole = json!({
                "spread": format!("{:.2} (most {})", arm.spread_steps.mean, arm.spread_steps.max),
                "queue": arm.max_queue_bytes / 1000,
                "red": arm.marks.red,
                "extra": arm.marks.symphony,
                "pauses": arm.pfc_pauses,
                "drops": arm.drops.values().sum::<u64>(),
            });
            if let (Some(row), Some(whole), 0) = (row.as_object_mut(), whole.as_object(), number) {
                row.extend(whole.clone());
            }
            for place in ["spread", "queue", "red", "extra", "pauses", "drops"] {
                if row.get(place).is_none() {
                    row[place] = json!("");
                }
            }
            rows.push(row);
        }
    }
    let columns = [
        ("arm", "/arm"),
        ("class", "/class"),
        ("JCT ms", "/mean"),
        ("median", "/median"),
        ("min..max", "/range"),
        ("change % (95 %)", "/change"),
        ("bound", "/bound"),
        ("spread steps", "/spread"),
        ("queue KB", "/queue"),
        ("RED", "/red"),
        ("extra", "/extra"),
        ("pauses", "/pauses"),
        ("drops", "/drops"),
    ];
    let mut text = format!("{}, {}, {} seeds; {}\n\n", report.scenario, report.cc, report.seeds, resolution(report));
    let _ = writeln!(text, "{}", Table::of_objects(&json!(rows), &columns));
    for (name, arm) in &report.arms.0 {
        if let Some(blind) = &arm.blind {
            let verdict = match blind.unmatched_seeds {
                0 => "within 10 % in every seed".to_owned(),
                seeds => format!("NOT within 10 % in {seeds} of {} seeds", report.seeds),
            };
            let _ = writeln!(
                text,
                "\n{name} set {} extra marks where its partner set {}: {verdict}",
                blind.marks, blind.partner_marks
            );
        }
    }
    let _ = write!(
        text,
        "\nJCT: job completion time, mean over the jobs of a class; change: of its mean from base, negative is faster.\n\
         RED, extra: packets marked by RED and by Symphony alone, over all seeds. bound: what no schedule can beat.\n\
         {} events, {:.2} million a second on one core; peak memory {} MB",
        report.events,
        report.events_per_s as f64 / 1e6,
        report.peak_rss_bytes / 1_000_000
    );
    text
}

/// One line for each seed, arm and class.
///
/// # Errors
/// What keeps it from being written.
pub fn csv(file: &mut impl Write, records: &[Record]) -> Result<()> {
    writeln!(
        file,
        "seed,arm,class,jct_ms,bound_ms,spread_mean_steps,spread_max_steps,max_queue_bytes,red_marks,extra_marks,\
         cnps,pfc_pauses,drops,retransmissions"
    )?;
    for record in records {
        for (class, jct_ms) in &record.jct_ms {
            let bound_ms = record.bound_ms.get(class).map(|bound| format!("{bound:.6}")).unwrap_or_default();
            writeln!(
                file,
                "{},{},{},{jct_ms:.6},{bound_ms},{:.4},{},{},{},{},{},{},{},{}",
                record.seed,
                record.arm,
                quoted(class),
                record.spread_mean,
                record.spread_max,
                record.max_queue_bytes,
                record.red_marks,
                record.extra_marks,
                record.cnps,
                record.pfc_pauses,
                record.drops.values().sum::<u64>(),
                record.retransmissions
            )?;
        }
    }
    Ok(())
}

/// A CSV field (RFC 4180).
fn quoted(text: &str) -> String {
    let plain = !text.contains(['"', ',', '\n', '\r']);
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_change_is_shown_with_its_interval_and_nothing_as_nothing() {
        let change = |mean, ci_low, ci_high| percent(&Change { mean, ci_low, ci_high });
        assert_eq!(change(-49.13, -50.26, -47.8), "-49.1 (-50.3..-47.8)");
        assert_eq!(change(0.0, 0.0, 0.0), "0");
        assert_eq!(change(-0.01, -0.2, 0.3), "+0.0 (-0.2..+0.3)");
    }

    #[test]
    fn csv_has_one_line_for_each_seed_arm_and_class() {
        let jct_ms = BTreeMap::from([("a,b".to_owned(), 1.5), ("c".to_owned(), 2.0)]);
        let records = [Record { seed: 1, arm: "base".into(), jct_ms, ..Record::default() }];
        let mut file = Vec::new();
        csv(&mut file, &records).expect("memory takes it");
        let text = String::from_utf8(file).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("1,base,\"a,b\",1.500000,,"), "{}", lines[1]);
        assert_eq!(lines[0].split(',').count(), lines[2].split(',').count());
    }
}
