//! `symphony sim matrix`: every scenario with every arm, and the table of results as Markdown.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use serde_json::json;

use super::arm::{BASE, NULL, SYMPHONY};
use super::output::{self, written};
use super::record::{self, Record, Sweep};
use super::report::{RESOLVED_PCT, Report};
use super::study::Study;
use super::{QUICK_SEEDS, cores, text};
use crate::cli::{self, progress};
use crate::control::scenario::Scenario;

/// Between these lines of a file is what this command wrote; the rest of it stays.
const BEGIN: &str = "<!-- symphony sim matrix: begin -->";
const END: &str = "<!-- symphony sim matrix: end -->";

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "\
  symphony sim matrix --out bench/RESULTS.md         all rows, as many seeds as each needs
  symphony sim matrix --quick --rows clean,multi     a first look at two of them
  cat part-*.jsonl > all.jsonl                       shards of rows that ran elsewhere (symphony sim ROW --shard ..)
  symphony sim matrix --seeds 40 --records all.jsonl --out bench/RESULTS.md")]
pub struct Args {
    /// Draw what seeds 1, 2, .. are by K more: to judge on other seeds than those that parameters were tuned on
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..1_000_000_000))]
    seed_offset: u64,
    /// Three seeds: a first look
    #[arg(long, conflicts_with = "seeds")]
    quick: bool,
    /// Run seeds 1 to N; without it, as many as each row takes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: Option<u64>,
    /// Only these scenarios
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    rows: Vec<String>,
    /// Congestion control, one table each; that of each scenario if left out, mostly dc55
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    cc: Vec<String>,
    /// Add an arm to each row or redefine one, as for `symphony sim`; may be given many times
    #[arg(long, value_name = "NAME=KEY:VALUE,..")]
    arm: Vec<String>,
    /// Write the table to this file; of one that has it already, only the table is replaced
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Keep the runs of each finished row in this file, and take from it what is there
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    /// Threads; all cores if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print one JSON object, with a report for each row, instead of the table
    #[arg(long)]
    json: bool,
}

/// A row and what it found.
struct Row {
    description: String,
    report: Report,
}

/// Runs the rows. Status 1 when a check failed in any.
///
/// # Errors
/// What keeps it from running.
pub fn run(args: Args) -> Result<ExitCode> {
    let threads = args.threads.map_or_else(cores, usize::from);
    let mut studies = studies(&args)?;
    let before = args.out.as_deref().map(read_before).transpose()?;
    let mut kept = args.records.as_deref().map(Kept::open).transpose()?;
    let progress = progress::bar(studies.iter().map(Study::least_runs).sum());
    let mut rows = Vec::new();
    for study in &mut studies {
        let records = row(study, kept.as_mut(), threads, &progress)?;
        rows.push(Row { description: study.description().to_owned(), report: study.report(&records) });
        if let (Some(path), Some(before)) = (&args.out, &before) {
            // After each row, so that an interrupted matrix leaves what it has.
            fs::write(path, within(before, &markdown(&args, &rows))).with_context(|| written(path))?;
        }
    }
    progress.finish_and_clear();
    match args.json {
        true => {
            cli::print_json(&json!({ "version": 1, "rows": rows.iter().map(|row| &row.report).collect::<Vec<_>>() }))?
        }
        false => cli::print(markdown(&args, &rows).trim_end())?,
    }
    let failed = rows.iter().map(|row| output::status(&row.report)).any(|status| status != ExitCode::SUCCESS);
    Ok(if failed { ExitCode::from(cli::FAILED) } else { ExitCode::SUCCESS })
}

fn studies(args: &Args) -> Result<Vec<Study>> {
    let rows: Vec<String> =
        if args.rows.is_empty() { Scenario::matrix().map(str::to_owned).collect() } else { args.rows.clone() };
    let own = [String::new()];
    let controls = if args.cc.is_empty() { &own[..] } else { &args.cc[..] };
    let sweep = |cc: &String, scenario: &String| Sweep {
        scenario: scenario.clone(),
        cc: cc.clone(),
        set: Vec::new(),
        arm: args.arm.clone(),
        arms: Vec::new(),
        seeds: args.seeds.unwrap_or(if args.quick { QUICK_SEEDS } else { 0 }),
        seed_offset: args.seed_offset,
    };
    controls.iter().flat_map(|cc| rows.iter().map(move |row| sweep(cc, row))).map(Study::new).collect()
}

fn row(study: &mut Study, kept: Option<&mut Kept>, threads: usize, progress: &ProgressBar) -> Result<Vec<Record>> {
    progress.set_prefix(format!("{}: ", study.sweep.scenario));
    let Some(kept) = kept else { return study.run_all(threads, progress) };
    if let Some((seeds, records)) = kept.find(&study.sweep) {
        progress.dec_length(study.least_runs());
        study.sweep.seeds = seeds;
        let mut records = records;
        study.take(&mut records)?;
        return Ok(records);
    }
    let records = study.run_all(threads, progress)?;
    record::write(&mut kept.file, &study.sweep, &records).with_context(|| written(&kept.path))?;
    Ok(records)
}

/// Rows that have run already.
struct Kept {
    path: PathBuf,
    file: File,
    sweeps: Vec<(Sweep, Vec<Record>)>,
}

impl Kept {
    fn open(path: &Path) -> Result<Kept> {
        let mut sweeps = Vec::new();
        if fs::metadata(path).is_ok_and(|file| file.len() > 0) {
            let place = || format!("cannot read {}", path.display());
            let file = File::open(path).with_context(place)?;
            record::read(BufReader::new(file), &mut sweeps).with_context(place)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path).with_context(|| written(path))?;
        Ok(Kept { path: path.to_owned(), file, sweeps })
    }

    /// The number of seeds and the runs of such a sweep.
    fn find(&mut self, sweep: &Sweep) -> Option<(u64, Vec<Record>)> {
        let same = |other: &Sweep| {
            let seeds = if sweep.seeds == 0 { other.seeds } else { sweep.seeds };
            *other == Sweep { seeds, ..sweep.clone() }
        };
        let at = self.sweeps.iter().position(|(other, _)| same(other))?;
        let (sweep, records) = self.sweeps.swap_remove(at);
        Some((sweep.seeds, records))
    }
}

/// What the file says now; nothing if there is none. Fails at once where it can't be written later.
fn read_before(path: &Path) -> Result<String> {
    let file = OpenOptions::new().create(true).append(true).open(path).with_context(|| written(path))?;
    drop(file);
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The text with the table in the place of the old one, or behind it where there is none.
fn within(before: &str, table: &str) -> String {
    let marked = format!("{BEGIN}\n{table}{END}\n");
    let old = before.find(BEGIN).and_then(|begin| {
        let end = begin + before[begin..].find(END)? + END.len();
        Some((&before[..begin], before[end..].trim_start_matches('\n')))
    });
    match old {
        Some((head, "")) => format!("{head}{marked}"),
        Some((head, tail)) => format!("{head}{marked}\n{tail}"),
        None if before.trim().is_empty() => format!("# Results\n\n{marked}"),
        None => format!("{}\n\n{marked}", before.trim_end()),
    }
}

/// The command without what changes nothing in the table.
fn command(args: &Args) -> String {
    let mut command = "symphony sim matrix".to_owned();
    if args.quick {
        command += " --quick";
    }
    if let Some(seeds) = args.seeds {
        let _ = write!(command, " --seeds {seeds}");
    }
    if args.seed_offset > 0 {
        let _ = write!(command, " --seed-offset {}", args.seed_offset);
    }
    for (option, values) in [("--rows", &args.rows), ("--cc", &args.cc)] {
        if !values.is_empty() {
            let _ = write!(command, " {option} {}", values.join(","));
        }
    }
    args.arm.iter().for_each(|arm| command += &format!(" --arm {arm}"));
    if let Some(out) = &args.out {
        let _ = write!(command, " --out {}", out.display());
    }
    command
}

fn markdown(args: &Args, rows: &[Row]) -> String {
    let mut text = format!(
        "Made by `{}` (version {}).\n\n\
         JCT: job completion time, mean over the jobs of a class and over seeds. Changes are of that mean from base, in per \
         cent, with the 95 % interval (bootstrap over paired seeds); negative is faster, 0 is exactly nothing. bound: what \
         no schedule can beat. A class is resolved when its null arm, which draws random numbers but never marks, is known to \
         within +-1 %.\n",
        command(args),
        env!("CARGO_PKG_VERSION")
    );
    let mut controls: Vec<&str> = rows.iter().map(|row| row.report.cc.as_str()).collect();
    controls.sort_unstable();
    controls.dedup();
    for cc in controls {
        let of_cc: Vec<&Row> = rows.iter().filter(|row| row.report.cc == cc).collect();
        let _ = write!(text, "\n## {cc}\n\n");
        changes(&mut text, &of_cc);
        let _ = write!(text, "\nMarks in packets over all seeds, leads in steps:\n\n");
        marks(&mut text, &of_cc);
    }
    let _ = write!(text, "\n## Rows\n\n");
    let mut known: Vec<&str> = Vec::new();
    for row in rows {
        if !known.contains(&row.report.scenario.as_str()) {
            known.push(&row.report.scenario);
            let _ = writeln!(text, "* `{}`: {}", row.report.scenario, row.description);
        }
    }
    let failures: Vec<String> = rows
        .iter()
        .flat_map(|row| row.report.failures.iter().map(|failure| format!("* `{}`: {failure}", row.report.scenario)))
        .collect();
    if !failures.is_empty() {
        let _ = write!(text, "\n## Checks that failed\n\n{}\n", failures.join("\n"));
    }
    text
}

fn changes(text: &mut String, rows: &[&Row]) {
    let arms: Vec<&str> = rows
        .first()
        .into_iter()
        .flat_map(|row| row.report.change_pct.0.iter().map(|(name, _)| name.as_str()))
        .collect();
    let _ = writeln!(text, "| row | class | base, ms | bound, ms | {} | seeds | resolved |", arms.join(" | "));
    let _ = writeln!(text, "|---|---|---|---|{}---|---|", "---|".repeat(arms.len()));
    for Row { report, .. } in rows {
        let Some(base) = report.arms.get(BASE) else { continue };
        for (class, jct) in &base.jct_ms {
            let bound = report.bound_ms.get(class).map_or("-".into(), |bound| format!("{bound:.3}"));
            let _ = write!(text, "| {} | {class} | {:.3} | {bound} |", report.scenario, jct.mean);
            for arm in &arms {
                let change = report.change_pct.get(arm).and_then(|classes| classes.get(class));
                let _ = write!(text, " {} |", change.map_or("-".into(), text::percent));
            }
            let null = report.change_pct.get(NULL).and_then(|classes| classes.get(class));
            let resolved = match null.map(|null| report.seeds > 1 && null.half_width() <= RESOLVED_PCT) {
                Some(true) => "yes",
                Some(false) => "**not resolved**",
                None => "-",
            };
            let _ = writeln!(text, " {} | {resolved} |", report.seeds);
        }
    }
}

fn marks(text: &mut String, rows: &[&Row]) {
    let _ = writeln!(
        text,
        "| row | RED, base | RED, symphony | extra, symphony | extra, blind | blind matched | spread, base | \
         spread, symphony | pauses, base | drops, base |"
    );
    let _ = writeln!(text, "|---|---|---|---|---|---|---|---|---|---|");
    for Row { report, .. } in rows {
        let (Some(base), Some(symphony)) = (report.arms.get(BASE), report.arms.get(SYMPHONY)) else { continue };
        let blind = report.arms.get("blind").and_then(|arm| arm.blind);
        let matched = match blind {
            Some(blind) if blind.matched => "yes".into(),
            Some(blind) => format!("**not in {} of {} seeds**", blind.unmatched_seeds, report.seeds),
            None => "-".into(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {matched} | {:.2} | {:.2} | {} | {} |",
            report.scenario,
            base.marks.red,
            symphony.marks.red,
            symphony.marks.symphony,
            blind.map_or("-".into(), |blind| blind.marks.to_string()),
            base.spread_steps.mean,
            symphony.spread_steps.mean,
            base.pfc_pauses,
            base.drops.values().sum::<u64>()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_table_of_a_file_is_replaced() {
        let first = within("", "| a |\n");
        assert_eq!(first, format!("# Results\n\n{BEGIN}\n| a |\n{END}\n"));
        assert_eq!(within("# Mine\n\nWords.\n", "| a |\n"), format!("# Mine\n\nWords.\n\n{BEGIN}\n| a |\n{END}\n"));
        let written = format!("# Mine\n\nWords.\n\n{BEGIN}\nold\n{END}\n\n## More\n");
        let replaced = within(&written, "| b |\n");
        assert_eq!(replaced, format!("# Mine\n\nWords.\n\n{BEGIN}\n| b |\n{END}\n\n## More\n"));
        assert_eq!(within(&replaced, "| b |\n"), replaced, "again changes nothing");
        assert_eq!(within(&first, "| c |\n"), format!("# Results\n\n{BEGIN}\n| c |\n{END}\n"));
    }
}
