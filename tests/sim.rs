//! `symphony sim`, by its front door, on fabrics small enough for seconds.
//!
//! Gains are not held here but in `bench/RESULTS.md`; what must be true of any sweep is.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// Two jobs on one switch; one has a rank with a slow NIC, so that its other ranks run ahead. Steps take 0.6 ms, two
/// recoveries of dc55: a job that is faster would not be marked.
const CROWDED: &str = r#"
description = "two jobs on one switch, one has a slow rank"

[fabric]
topology = "single"
hosts = 4
rate = "10Gbit"
shared_nic = false

[[job]]
class = "healthy"
hosts = [0, 1, 2, 3]
chunk = "768KiB"
skew = "200us"

[[job]]
class = "straggler"
hosts = [0, 1, 2, 3]
chunk = "768KiB"
skew = "200us"
straggler = { nic_percent = 5 }
"#;

/// One job on one switch: no two flows meet.
const ALONE: &str = r#"
description = "one job on one switch"

[fabric]
topology = "single"
hosts = 4
rate = "10Gbit"

[[job]]
hosts = [0, 1, 2, 3]
chunk = "128KiB"
"#;

const ARMS: [&str; 8] = ["base", "symphony", "symphony-bold", "gold", "null", "blind", "oracle", "fifo"];

struct Lab(TempDir);

impl Lab {
    fn new() -> Lab {
        let lab = Lab(tempfile::tempdir().expect("a temporary directory"));
        std::fs::write(lab.path("crowded.toml"), CROWDED).expect("it can be written");
        std::fs::write(lab.path("alone.toml"), ALONE).expect("it can be written");
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("it was written")
    }

    /// Runs `symphony sim` in the directory; returns status, stdout and stderr.
    fn sim(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::cargo_bin("symphony").expect("it is built");
        let output = command.current_dir(self.0.path()).arg("sim").args(args).output().expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().expect("it ends by itself"), text(&output.stdout), text(&output.stderr))
    }

    /// The one JSON object that a sweep prints.
    fn json(&self, args: &[&str]) -> Value {
        let (status, stdout, stderr) = self.sim(&[args, &["--json"]].concat());
        assert_eq!(status, 0, "{stderr}");
        serde_json::from_str(&stdout).expect("stdout is one JSON object")
    }
}

/// Without what differs from one run of the same sweep to the next.
fn steady(mut report: Value) -> Value {
    for volatile in ["events_per_s", "peak_rss_bytes"] {
        let value = report[volatile].take();
        assert!(value.as_u64().is_some_and(|value| value > 0), "{volatile}: {value}");
    }
    report
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_sweep_says_what_the_contract_promises_for_every_arm_and_class() {
    let report = Lab::new().json(&["crowded.toml", "--quick"]);
    assert_eq!(report["version"], 1);
    assert_eq!(report["scenario"], "crowded");
    assert_eq!(report["cc"], "dc55");
    assert_eq!(report["seeds"], 3);
    assert_eq!(report["failures"], serde_json::json!([]));
    for arm in ARMS {
        let of = &report["arms"][arm];
        for class in ["healthy", "straggler"] {
            let jct = &of["jct_ms"][class];
            let [min, mean, median, max] = ["min", "mean", "median", "max"].map(|key| number(&jct[key]));
            assert!(0.0 < min && min <= mean && mean <= max && min <= median && median <= max, "{arm}: {jct}");
            let change = &report["change_pct"][arm][class];
            assert_eq!(change.is_object(), arm != "base");
            if arm != "base" {
                let [low, mean, high] = ["ci_low", "mean", "ci_high"].map(|key| number(&change[key]));
                assert!(low <= mean && mean <= high, "{arm}: {change}");
                let base = number(&report["arms"]["base"]["jct_ms"][class]["mean"]);
                let ratio = 100.0 * (number(&jct["mean"]) / base - 1.0);
                assert!((mean - ratio).abs() < 1e-3, "{arm}: {mean} and {ratio}");
            }
        }
        assert!(number(&of["spread_steps"]["mean"]) > 0.0 && number(&of["spread_steps"]["max"]) <= 3.0, "{of}");
        assert!(number(&of["max_queue_bytes"]) > 0.0);
        assert!(of["pfc_pauses"].is_u64());
        let extra = number(&of["marks"]["symphony"]);
        let marks = ["symphony", "symphony-bold", "gold", "blind"].contains(&arm);
        assert_eq!(extra > 0.0, marks, "{arm}: {extra} extra marks");
    }
    let blind = &report["arms"]["blind"]["blind"];
    assert_eq!(blind["partner_marks"], report["arms"]["symphony"]["marks"]["symphony"]);
    assert_eq!(blind["marks"], report["arms"]["blind"]["marks"]["symphony"]);
    assert!(number(&report["events"]) > 0.0);
}

#[test]
fn the_same_seeds_say_the_same_whatever_the_threads() {
    let lab = Lab::new();
    let sweep = ["crowded.toml", "--seeds", "2"];
    let one = lab.json(&[&sweep[..], &["--threads", "1"]].concat());
    let many = lab.json(&[&sweep[..], &["--threads", "5"]].concat());
    assert_eq!(steady(one), steady(many));
}

#[test]
fn merged_shards_say_what_the_whole_says() {
    let lab = Lab::new();
    let sweep = ["crowded.toml", "--seeds", "3", "--arm", "mine=t:1,gap:200us", "--set", "job.chunk=256KiB"];
    for shard in 0..3 {
        let (shard, out) = (format!("{shard}/3"), format!("part-{shard}.jsonl"));
        let (status, stdout, stderr) = lab.sim(&[&sweep[..], &["--shard", &shard, "--out", &out]].concat());
        assert_eq!((status, stdout.as_str()), (0, ""), "{stderr}");
    }
    let whole = lab.json(&[&sweep[..], &["--csv", "whole.csv"]].concat());
    assert!(whole["arms"]["mine"].is_object());
    let parts = ["merge", "part-2.jsonl", "part-0.jsonl", "part-1.jsonl"];
    let merged = lab.json(&[&parts[..], &["--csv", "merged.csv"]].concat());
    assert_eq!(steady(whole), steady(merged));
    assert_eq!(lab.read("whole.csv"), lab.read("merged.csv"));
    assert_eq!(lab.read("whole.csv").lines().count(), 1 + 3 * 9 * 2, "a line for each seed, arm and class");

    let (status, _, stderr) = lab.sim(&["merge", "part-0.jsonl", "part-2.jsonl"]);
    assert_eq!(status, 2);
    assert!(stderr.contains("missing"), "{stderr}");
    let (status, _, stderr) = lab.sim(&[&parts[..], &["part-1.jsonl"]].concat());
    assert_eq!(status, 2);
    assert!(stderr.contains("2 times"), "{stderr}");
}

#[test]
fn where_nothing_queues_no_arm_changes_anything_and_ten_seeds_are_enough() {
    let report = Lab::new().json(&["alone.toml"]);
    assert_eq!(report["seeds"], 10);
    assert_eq!(report["resolved"], true);
    for arm in &ARMS[1..] {
        // The oracle may let a data packet go before an acknowledgement that has nothing to wait for otherwise.
        let slack = if *arm == "oracle" { 0.05 } else { 0.0 };
        for key in ["mean", "ci_low", "ci_high"] {
            let change = number(&report["change_pct"][arm]["all"][key]);
            assert!(change.abs() <= slack, "{arm}: {change}");
        }
        assert_eq!(report["arms"][arm]["marks"], serde_json::json!({ "red": 0, "symphony": 0 }), "{arm}");
    }
}

#[test]
fn a_noisy_row_takes_200_seeds_and_then_says_that_it_is_not_resolved() {
    let report = Lab::new().json(&[
        "crowded.toml",
        "--set",
        "job.chunk=128KiB",
        "--arms",
        "null",
        "--arm",
        "null=policy:null,min_step:0",
    ]);
    assert_eq!(report["seeds"], 200);
    assert_eq!(report["resolved"], false);
    let null = &report["change_pct"]["null"]["healthy"];
    assert!(number(&null["ci_high"]) - number(&null["ci_low"]) > 2.0, "{null}");
}

#[test]
fn a_job_that_does_not_finish_is_a_failed_check() {
    let lab = Lab::new();
    let sweep = ["crowded.toml", "--quick", "--arms", "null", "--set", "limit=3ms", "--json"];
    let (status, stdout, stderr) = lab.sim(&sweep);
    assert_eq!(status, 1);
    assert!(stderr.contains("did not finish"), "{stderr}");
    let report: Value = serde_json::from_str(&stdout).expect("stdout is one JSON object");
    assert!(report["failures"].as_array().is_some_and(|failures| !failures.is_empty()));
}

#[test]
fn what_cannot_run_is_told_with_its_cure_and_status_2() {
    let lab = Lab::new();
    for (args, cure) in [
        (&["no-such"][..], "clean"),
        (&["crowded.toml", "--arms", "nil"], "symphony-bold"),
        (&["crowded.toml", "--arm", "x=tee:1"], "threshold"),
        (&["crowded.toml", "--set", "fabric.hots=4"], "hosts"),
        (&["crowded.toml", "--cc", "dc54"], "dc55"),
        (&["crowded.toml", "--model", "ns3"], "astra"),
        (&["crowded.toml", "--arms", "symphony"], "--seeds"),
        (&["crowded.toml", "--shard", "0/2", "--out", "x"], "--seeds"),
        (&["crowded.toml", "--seeds", "2", "--shard", "2/2", "--out", "x"], "0/8"),
        (&["crowded.toml", "--quick", "--csv", "no/such/dir.csv"], "cannot write"),
        (&["merge", "crowded.toml"], "line 1"),
        (&["twin", "--repeats", "0"], "1..=100"),
        (&[], "SCENARIO"),
    ] {
        let (status, stdout, stderr) = lab.sim(args);
        assert_eq!((status, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        assert!(stderr.contains(cure), "{args:?}: {stderr}");
    }
}

#[test]
fn the_report_is_one_page_with_every_picture_in_it() {
    let lab = Lab::new();
    let (status, stdout, stderr) = lab.sim(&["crowded.toml", "--quick", "--report", "page"]);
    assert_eq!(status, 0, "{stderr}");
    assert!(stdout.contains("symphony-bold") && stdout.contains("not resolved"), "{stdout}");
    let page = lab.read("page/index.html");
    assert_eq!(page.matches("<svg").count(), 5, "two classes, steps, leads, queues");
    assert_eq!(page.matches("<figcaption>").count(), 5);
    let linked = page.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "<script", "<link", "src="] {
        assert!(!linked.contains(outside), "{outside}");
    }
    let files = std::fs::read_dir(lab.path("page")).expect("it is there").count();
    assert_eq!(files, 1);
}

#[test]
fn a_matrix_is_a_table_that_says_the_same_each_time_and_keeps_what_has_run() {
    let lab = Lab::new();
    let matrix = ["matrix", "--quick", "--rows", "alone.toml,crowded.toml", "--out", "RESULTS.md"];
    let (status, stdout, stderr) = lab.sim(&[&matrix[..], &["--records", "kept.jsonl"]].concat());
    assert_eq!(status, 0, "{stderr}");
    let table = lab.read("RESULTS.md");
    assert!(table.contains(stdout.trim_end()), "the file has what is printed");
    for row in ["| alone | all |", "| crowded | healthy |", "| crowded | straggler |"] {
        let line = table.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{row}: {table}"));
        assert_eq!(line.matches('|').count(), 4 + ARMS.len() - 1 + 2 + 1, "{line}");
    }

    let kept = lab.read("kept.jsonl");
    std::fs::write(lab.path("RESULTS.md"), format!("Words.\n{table}")).expect("it can be written");
    let (status, _, stderr) = lab.sim(&[&matrix[..], &["--records", "kept.jsonl"]].concat());
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(lab.read("kept.jsonl"), kept, "nothing ran again");
    assert_eq!(lab.read("RESULTS.md"), format!("Words.\n{table}"), "words stay, the table is the same");
}

#[test]
fn the_list_shows_every_built_in_scenario() {
    let list = Lab::new().json(&["list"]);
    let names: Vec<&str> = list["scenarios"]
        .as_array()
        .map(|all| all.iter().filter_map(|scenario| scenario["name"].as_str()).collect())
        .unwrap_or_default();
    let files =
        std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/scenarios")).expect("they are there");
    let mut files: Vec<String> =
        files.flatten().filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned())).collect();
    files.sort();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, files);
}

#[test]
fn a_printed_scenario_is_a_file_that_does_the_same() {
    let lab = Lab::new();
    let (status, printed, _) = lab.sim(&["alone.toml", "--set", "job.chunk=64KiB", "--print-config"]);
    assert_eq!(status, 0);
    std::fs::write(lab.path("printed.toml"), printed).expect("it can be written");
    let jct = |args: &[&str]| {
        let (status, json, _) = lab.sim(&[args, &["--seeds", "1", "--arms", "base", "--json"]].concat());
        assert_eq!(status, 0);
        serde_json::from_str::<Value>(&json).expect("JSON")["arms"]["base"].clone()
    };
    assert_eq!(jct(&["printed.toml"]), jct(&["alone.toml", "--set", "job.chunk=64KiB"]));
}
