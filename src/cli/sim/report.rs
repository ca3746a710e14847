//! What a sweep says in the end: the JSON contract. Everything else that is shown is made from it or from the records.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use super::arm::{Arm, BASE, NULL};
use super::record::{Record, Sweep};
use super::statistics::{Change, Summary, change, mean, summarise};

/// Seeds below which no row counts as resolved.
const LEAST_SEEDS: usize = 10;
/// The null arm's half-width, in per cent, from which a row counts as resolved.
pub const RESOLVED_PCT: f64 = 1.0;

/// `symphony sim --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Schema version, 1.
    pub version: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// Set of DCQCN parameters.
    pub cc: String,
    /// Seeds 1 to this.
    pub seeds: u64,
    /// Whether chance alone stays within 1 % in every class; `None` without the null arm.
    pub resolved: Option<bool>,
    /// By arm.
    pub arms: Named<ArmReport>,
    /// By arm but base, then by class.
    pub change_pct: Named<BTreeMap<String, Change>>,
    /// Mean over seeds of what no schedule can beat, by class.
    pub bound_ms: BTreeMap<String, f64>,
    /// Of all runs.
    pub events: u64,
    /// A second of one core's processor time.
    pub events_per_s: u64,
    /// Most memory of a process that took part.
    pub peak_rss_bytes: u64,
    /// Checks that failed.
    pub failures: Vec<String>,
}

/// One arm over its seeds. Counts are sums.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmReport {
    /// By class.
    pub jct_ms: BTreeMap<String, Summary>,
    /// Difference of completed steps between the first and the last rank of a job.
    pub spread_steps: Spread,
    /// Fullest queue of any run.
    pub max_queue_bytes: u64,
    /// Packets marked.
    pub marks: Marks,
    /// Packets of jobs that came to the lead test, and those that passed it.
    pub lead_tests: LeadTests,
    /// CNPs.
    pub cnps: u64,
    /// PFC pauses.
    pub pfc_pauses: u64,
    /// Drops by reason.
    pub drops: BTreeMap<String, u64>,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Of a blind arm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blind: Option<BlindReport>,
}

/// See [`ArmReport::spread_steps`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Over time, jobs and seeds.
    pub mean: f64,
    /// Of any job at any time.
    pub max: u32,
}

/// See [`ArmReport::marks`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Marks {
    /// By RED.
    pub red: u64,
    /// By Symphony alone.
    pub symphony: u64,
}

/// See [`ArmReport::lead_tests`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LeadTests {
    /// Tested.
    pub packets: u64,
    /// Passed.
    pub passed: u64,
}

/// Whether a blind arm marks as often as its partner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BlindReport {
    /// Extra marks over all seeds.
    pub marks: u64,
    /// Of its partner.
    pub partner_marks: u64,
    /// Mean probability of heads.
    pub coin: f64,
    /// Every seed matches within 10 %.
    pub matched: bool,
    /// Seeds that do not.
    pub unmatched_seeds: usize,
}

/// Values by name, in an order of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(pub Vec<(String, T)>);

impl<T> Named<T> {
    /// The value of that name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The classes that any of the records has.
pub fn classes(records: &[Record]) -> BTreeSet<&str> {
    records.iter().flat_map(|record| record.jct_ms.keys().map(String::as_str)).collect()
}

/// Completion times of an arm's class, by seed.
pub fn jct_ms(records: &[Record], arm: &str, class: &str) -> Vec<f64> {
    let mut by_seed: Vec<(u64, f64)> =
        of_arm(records, arm).filter_map(|record| Some((record.seed, *record.jct_ms.get(class)?))).collect();
    by_seed.sort_by_key(|(seed, _)| *seed);
    by_seed.into_iter().map(|(_, jct_ms)| jct_ms).collect()
}

/// By class, how an arm differs from base.
pub fn changes(records: &[Record], arm: &str) -> BTreeMap<String, Change> {
    let of = |class: &str| change(&jct_ms(records, arm, class), &jct_ms(records, BASE, class));
    classes(records).into_iter().map(|class| (class.to_owned(), of(class))).collect()
}

/// Whether the null arm stays within [`RESOLVED_PCT`] in every class. Few seeds say little of chance.
pub fn resolved(records: &[Record]) -> bool {
    of_arm(records, NULL).count() >= LEAST_SEEDS
        && changes(records, NULL).values().all(|change| change.half_width() <= RESOLVED_PCT)
}

fn of_arm<'a>(records: &'a [Record], arm: &'a str) -> impl Iterator<Item = &'a Record> {
    records.iter().filter(move |record| record.arm == arm)
}

impl Report {
    /// Puts the records of a sweep together; every arm has every seed.
    pub fn new(sweep: &Sweep, scenario: &str, arms: &[Arm], records: &[Record]) -> Self {
        let names = || arms.iter().map(|arm| arm.name.clone());
        let has = |arm: &str| arms.iter().any(|other| other.name == arm);
        let changed = |arm: &str| {
            let rounded = changes(records, arm).into_iter().map(|(class, c)| {
                let [mean, ci_low, ci_high] = [c.mean, c.ci_low, c.ci_high].map(|percent| rounded(percent, 4));
                (class, Change { mean, ci_low, ci_high })
            });
            rounded.collect()
        };
        let bound = |class: &str| {
            let of_base: Vec<f64> =
                of_arm(records, BASE).filter_map(|record| record.bound_ms.get(class).copied()).collect();
            (!of_base.is_empty()).then(|| (class.to_owned(), rounded(mean(&of_base), 6)))
        };
        let events = records.iter().map(|record| record.events).sum::<u64>();
        let cpu_ns = records.iter().map(|record| record.cpu_ns).sum::<u64>().max(1);
        let failure = |record: &Record, text: &String| format!("{} seed {}: {text}", record.arm, record.seed);
        Report {
            version: 1,
            scenario: scenario.into(),
            cc: sweep.cc.clone(),
            seeds: sweep.seeds,
            resolved: has(NULL).then(|| resolved(records)),
            arms: Named(names().map(|arm| (arm.clone(), ArmReport::new(of_arm(records, &arm)))).collect()),
            change_pct: Named(names().filter(|arm| arm != BASE).map(|arm| (arm.clone(), changed(&arm))).collect()),
            bound_ms: classes(records).into_iter().filter_map(bound).collect(),
            events,
            events_per_s: (events as f64 * 1e9 / cpu_ns as f64) as u64,
            peak_rss_bytes: records.iter().map(|record| record.peak_rss_bytes).max().unwrap_or(0),
            failures: records
                .iter()
                .flat_map(|record| record.failures.iter().map(move |text| failure(record, text)))
                .collect(),
        }
    }
}

impl ArmReport {
    fn new<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let records: Vec<&Record> = records.collect();
        let sum = |of: fn(&Record) -> u64| records.iter().map(|record| of(record)).sum();
        let mut jct_ms: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let mut drops = BTreeMap::new();
        for record in &records {
            for (class, &jct) in &record.jct_ms {
                jct_ms.entry(class).or_default().push(jct);
            }
            for (reason, count) in &record.drops {
                *drops.entry(reason.clone()).or_insert(0) += count;
            }
        }
        let summary = |jct: &[f64]| {
            let Summary { mean, median, min, max } = summarise(jct);
            let [mean, median, min, max] = [mean, median, min, max].map(|ms| rounded(ms, 6));
            Summary { mean, median, min, max }
        };
        let spread = mean(&records.iter().map(|record| record.spread_mean).collect::<Vec<_>>());
        ArmReport {
            jct_ms: jct_ms.into_iter().map(|(class, jct)| (class.to_owned(), summary(&jct))).collect(),
            spread_steps: Spread {
                mean: rounded(spread, 4),
                max: records.iter().map(|record| record.spread_max).max().unwrap_or(0),
            },
            max_queue_bytes: records.iter().map(|record| record.max_queue_bytes).max().unwrap_or(0),
            marks: Marks { red: sum(|record| record.red_marks), symphony: sum(|record| record.extra_marks) },
            lead_tests: LeadTests {
                packets: sum(|record| record.job_packets),
                passed: sum(|record| record.lead_tests),
            },
            cnps: sum(|record| record.cnps),
            pfc_pauses: sum(|record| record.pfc_pauses),
            drops,
            retransmissions: sum(|record| record.retransmissions),
            blind: BlindReport::new(&records),
        }
    }
}

impl BlindReport {
    fn new(records: &[&Record]) -> Option<Self> {
        let matches: Vec<_> = records.iter().filter_map(|record| record.blind).collect();
        let unmatched_seeds = matches.iter().filter(|found| !found.holds()).count();
        (!matches.is_empty()).then(|| BlindReport {
            marks: matches.iter().map(|found| found.marks).sum(),
            partner_marks: matches.iter().map(|found| found.target).sum(),
            coin: rounded(mean(&matches.iter().map(|found| found.coin).collect::<Vec<_>>()), 6),
            matched: unmatched_seeds == 0,
            unmatched_seeds,
        })
    }
}

/// To so many digits; never a negative zero.
fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10f64.powi(digits);
    (value * unit).round() / unit + 0.0
}

#[cfg(test)]
mod tests {
    use super::super::blind::Match;
    use super::*;

    fn record(seed: u64, arm: &str, healthy_ms: f64) -> Record {
        let jct_ms = BTreeMap::from([("healthy".into(), healthy_ms), ("straggler".into(), 100.0)]);
        let bound_ms = BTreeMap::from([("healthy".into(), 5.0), ("straggler".into(), 50.0)]);
        Record { seed, arm: arm.into(), jct_ms, bound_ms, events: 1000, cpu_ns: 500_000, ..Record::default() }
    }

    fn report(records: &[Record]) -> Report {
        let sweep = Sweep {
            scenario: "s".into(),
            cc: "dc55".into(),
            set: Vec::new(),
            arm: Vec::new(),
            arms: Vec::new(),
            seeds: 2,
            seed_offset: 0,
        };
        let mut arms = Arm::defaults();
        arms.retain(|arm| records.iter().any(|record| record.arm == arm.name));
        Report::new(&sweep, "s", &arms, records)
    }

    #[test]
    fn every_arm_but_base_has_a_change_and_negative_is_faster() {
        let records = [
            record(1, "base", 10.0),
            record(2, "base", 20.0),
            record(2, "symphony", 10.0),
            record(1, "symphony", 5.0),
            record(1, "null", 10.0),
            record(2, "null", 20.0),
        ];
        let report = report(&records);
        let names: Vec<&str> = report.change_pct.0.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["symphony", "null"]);
        let change = &report.change_pct.get("symphony").expect("it ran")["healthy"];
        assert_eq!(*change, Change { mean: -50.0, ci_low: -50.0, ci_high: -50.0 });
        assert_eq!(report.change_pct.get("null").expect("it ran")["straggler"], Change::default());
        assert_eq!(report.resolved, Some(false), "two seeds are too few");
        assert_eq!(report.bound_ms, BTreeMap::from([("healthy".into(), 5.0), ("straggler".into(), 50.0)]));
        assert_eq!((report.events, report.events_per_s), (6000, 2_000_000));
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(json["arms"]["base"]["jct_ms"]["healthy"]["mean"], 15.0);
        assert_eq!(json["change_pct"]["symphony"]["healthy"]["ci_high"], -50.0);
    }

    #[test]
    fn a_noisy_null_arm_leaves_the_row_unresolved_and_none_leaves_it_open() {
        let records =
            [record(1, "base", 10.0), record(2, "base", 20.0), record(1, "null", 12.0), record(2, "null", 19.0)];
        assert_eq!(report(&records).resolved, Some(false));
        assert_eq!(report(&records[..2]).resolved, None);
        let quiet = |seeds| (1..=seeds).flat_map(|seed| [record(seed, "base", 10.0), record(seed, "null", 10.0)]);
        let resolved = |seeds| report(&quiet(seeds).collect::<Vec<_>>()).resolved;
        assert_eq!((resolved(9), resolved(10)), (Some(false), Some(true)), "an interval of few seeds says little");
    }

    #[test]
    fn blind_reports_both_numbers_and_whether_they_match_in_every_seed() {
        let matched = Match { target: 100, marks: 95, coin: 0.02, tries: 2 };
        let missed = Match { target: 100, marks: 50, coin: 0.04, tries: 8 };
        let records = [
            record(1, "base", 10.0),
            record(2, "base", 20.0),
            Record { blind: Some(matched), ..record(1, "blind", 10.0) },
            Record { blind: Some(missed), ..record(2, "blind", 20.0) },
        ];
        let blind = report(&records).arms.get("blind").and_then(|arm| arm.blind).expect("it is blind");
        let expected = BlindReport { marks: 145, partner_marks: 200, coin: 0.03, matched: false, unmatched_seeds: 1 };
        assert_eq!(blind, expected);
    }
}
