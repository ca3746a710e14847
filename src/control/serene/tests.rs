use proptest::prelude::{Strategy as _, *};

use super::*;
use crate::functions::serene::controller::{Action, Comparison, Condition, Metric, Relation};
use crate::functions::serene::{Late, Quorum, Strategy};

fn measure() -> impl proptest::strategy::Strategy<Value = (Metric, f64)> {
    const TIMES: [Metric; 5] = [Metric::WaitP50, Metric::WaitP95, Metric::WaitMax, Metric::Span, Metric::RoundTime];
    prop_oneof![
        (prop::sample::select(&TIMES[..]).boxed(), (0..=3_600_000_000_000u64).prop_map(|ns| ns as f64)),
        (
            prop_oneof![Just(Metric::LateRate), Just(Metric::RetxRate)].boxed(),
            (0..=1_000_000u32).prop_map(|ppm| f64::from(ppm) / 1e6)
        ),
        (prop_oneof![Just(Metric::LagMax), Just(Metric::IncludedMin)].boxed(), any::<u32>().prop_map(f64::from)),
    ]
}

fn comparison() -> impl proptest::strategy::Strategy<Value = Condition> {
    use Relation::{AtLeast, AtMost, Greater, Less};
    let silent = (1..=3_600_000_000_000u64).prop_map(|ns| Comparison {
        metric: Metric::Silent,
        relation: Greater,
        value: ns as f64,
        rounds: 1,
    });
    let relation = prop::sample::select(&[Less, AtMost, Greater, AtLeast][..]);
    let others = (measure(), relation, 1..=32u32).prop_map(|((metric, value), relation, rounds)| Comparison {
        metric,
        relation,
        value,
        rounds,
    });
    prop_oneof![1 => silent, 9 => others].prop_map(Condition::Compare)
}

fn condition() -> impl proptest::strategy::Strategy<Value = Condition> {
    comparison().prop_recursive(4, 24, 4, |inner| {
        (proptest::collection::vec(inner, 2..4), any::<bool>()).prop_map(|(parts, all)| {
            // As the parser builds them: no conjunction right within a conjunction.
            let flat = parts.into_iter().flat_map(|part| match part {
                Condition::All(inner) if all => inner,
                Condition::Any(inner) if !all => inner,
                part => vec![part],
            });
            if all { Condition::All(flat.collect()) } else { Condition::Any(flat.collect()) }
        })
    })
}

fn action() -> impl proptest::strategy::Strategy<Value = Action> {
    let count = || {
        prop_oneof![
            (1..=32u8).prop_map(Quorum::Exactly),
            (0..=31u8).prop_map(Quorum::AllBut),
            (1..=1000u16).prop_map(Quorum::PerMille)
        ]
    };
    let late = || prop_oneof![Just(Late::Drop), Just(Late::Return)];
    prop_oneof![
        Just(Action::Hold),
        prop::option::of(0..32u8).prop_map(Action::DropMember),
        (1..=14u8)
            .prop_flat_map(|low| (Just(low), low + 1..=15))
            .prop_map(|(low, high)| Action::SspWithin { low, high }),
        Just(Action::Swap(Strategy::Bsp)),
        Just(Action::Swap(Strategy::Asp)),
        (1..=15u8).prop_map(|slack| Action::Swap(Strategy::Ssp { slack })),
        (count(), late()).prop_map(|(k, late)| Action::Swap(Strategy::Partial { k, late })),
        (1_000_000..=3_600_000_000_000u64, count(), late())
            .prop_map(|(deadline_ns, kmin, late)| Action::Swap(Strategy::Timed { deadline_ns, kmin, late })),
    ]
}

/// Pieces of the language in any order: much nearer to what it means than any text.
fn pieces() -> impl proptest::strategy::Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "wait_p95",
            "lag_max",
            "late_rate",
            "silent",
            "(",
            ")",
            "worker",
            ">",
            "<=",
            "..",
            "=",
            ",",
            "-",
            "*",
            "%",
            "for",
            "rounds",
            "and",
            "or",
            "n",
            "ceil",
            "k",
            "kmin",
            "late",
            "drop",
            "return",
            "bsp",
            "ssp",
            "partial",
            "timed",
            "hold",
            "drop_member",
            "ms",
            "s",
            "1",
            "0.75",
            "99999999999999999999",
        ])
        .prop_map(str::to_owned),
        ".{0,3}",
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.join(" "))
}

proptest! {
    #[test]
    fn a_condition_that_is_printed_and_read_again_is_the_same(condition in condition()) {
        prop_assert_eq!(parse_condition(&condition.to_string()), Ok(condition));
    }

    #[test]
    fn an_action_that_is_printed_and_read_again_is_the_same(action in action()) {
        prop_assert_eq!(parse_action(&action.to_string()), Ok(action));
    }

    #[test]
    fn no_text_panics_and_every_error_is_at_a_place_in_it(any in ".{0,60}", pieces in pieces()) {
        for text in [&any, &pieces] {
            for error in [parse_condition(text).err(), parse_action(text).err(), parse_strategy(text).err()] {
                prop_assert!(error.is_none_or(|error| text.is_char_boundary(error.at)));
            }
        }
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place_the_value_and_the_cure() {
    let mut report = String::new();
    for text in [
        "",
        "wait_p59 > 20ms",
        "wait_p95 20ms",
        "wait_p95 > 20",
        "wait_p95 > 20 for 3 rounds",
        "wait_p95 > 20sec",
        "wait_p95 > 0.5ns",
        "wait_p95 > 2000000s",
        "lag_max > 5ms",
        "lag_max > 1.5",
        "late_rate > 5",
        "late_rate > 50000%",
        "span > lots",
        "span > 20ms for 3",
        "span > 20ms for 0 rounds",
        "span > 20ms for 33 rounds",
        "span > 20ms, lag_max > 1",
        "(span > 20ms or lag_max > 1",
        "silent > 5s",
        "silent(worker) < 5s",
        "silent(worker) > 5s for 3 rounds",
    ] {
        let error = parse_condition(text).expect_err(text);
        report += &format!("when = {text:?}\n{:1$}^ {error}\n", "", "when = \"".len() + error.at);
    }
    for text in [
        "",
        "bps",
        "bsp(1)",
        "ssp",
        "ssp()",
        "ssp(0)",
        "ssp(16)",
        "ssp(8..3)",
        "ssp(3..16)",
        "ssp(3, 4)",
        "partial",
        "partial(m = 3)",
        "partial(k = 0)",
        "partial(k = n-32)",
        "partial(k = n+1)",
        "partial(k = ceil(1.5*n))",
        "partial(k = 3, k = 4)",
        "partial(k = 3, late = retrun)",
        "timed(30)",
        "timed(300us)",
        "timed(kmin = 2)",
        "timed(30ms",
        "drop_member(32)",
        "drop_member(other)",
        "hold bsp",
    ] {
        let error = parse_action(text).expect_err(text);
        report += &format!("then = {text:?}\n{:1$}^ {error}\n", "", "then = \"".len() + error.at);
    }
    insta::assert_snapshot!(report);
}

const JOB: &str = r#"
[job]
id = 1
members = ["10.0.0.1:7001", "10.0.0.2:7001", "10.0.0.3:7001", "10.0.0.4:7001"]
segments = 311
lanes = 256
scale_log2 = 24
start = "bsp"

[[policy]]
when = "wait_p95 > 20ms for 3 rounds"
then = "partial(k = n-1, late = return)"
cooldown = "50 rounds"

[[policy]]
in = "partial"
when = "lag_max <= 1 for 20 rounds"
then = "bsp"
cooldown = "50 rounds"

[[policy]]
when = "silent(worker) > 5s"
then = "drop_member(worker)"
"#;

/// A job whose policies are these tables.
fn policies(tables: &str) -> String {
    let members = "members = ['10.0.0.1:7001', '10.0.0.2:7001', '10.0.0.3:7001', '10.0.0.4:7001']";
    format!("[job]\nid = 1\n{members}\nsegments = 311\n{tables}")
}

#[test]
fn a_job_file_comes_out_in_the_units_of_the_core() {
    let JobFile { job, warnings, .. } = JobFile::parse(JOB, "job.toml").unwrap();
    assert_eq!((job.id, job.members.len(), job.segments, job.lanes, job.scale_log2), (1, 4, 311, 256, 24));
    assert_eq!(job.members[3], "10.0.0.4:7001".parse().unwrap());
    assert_eq!(job.start, Strategy::Bsp);
    let partial = Strategy::Partial { k: Quorum::AllBut(1), late: Late::Return };
    assert_eq!(job.policies[0].then, Action::Swap(partial));
    assert_eq!(job.policies[0].cooldown_rounds, 50);
    assert_eq!(job.policies[1].when.to_string(), "lag_max <= 1 for 20 rounds");
    assert_eq!(job.policies[2].then, Action::DropMember(None));
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn a_job_compiles_to_the_entries_of_the_rule_table() {
    let more = "[[policy]]\nin = 'ssp'\nwhen = 'late_rate > 5% or span > 9ms'\nthen = 'asp'\n\
                [[policy]]\nwhen = 'lag_max > 2'\nthen = 'ssp(3..8)'\ncooldown = '9 rounds'\n\
                [[policy]]\nin = 'asp'\nwhen = 'round_time > 1s'\nthen = 'timed(30ms, kmin = ceil(0.75*n), late = drop)'\n";
    let job = JobFile::parse(&format!("{JOB}{more}"), "job.toml").unwrap().job;
    insta::assert_snapshot!(Plan::new(&job));
}

#[test]
fn a_job_file_that_is_printed_and_read_again_is_the_same() {
    let first = JobFile::parse(JOB, "job.toml").unwrap();
    let printed = toml::to_string(&first.file).unwrap();
    assert_eq!(JobFile::parse(&printed, "job.toml").unwrap(), first);
}

#[test]
fn what_is_wrong_in_a_job_file_is_told_with_file_line_and_column() {
    let long = (1..=33).map(|host| format!("'10.0.0.{host}:7001'")).collect::<Vec<_>>().join(", ");
    let changed = |from: &str, to: &str| JOB.replace(from, to);
    let texts = [
        changed("segments = 311\n", ""),
        changed("segments = 311", "segmnets = 311"),
        changed("segments = 311", "segments = 0"),
        changed("lanes = 256", "lanes = 100"),
        changed("lanes = 256", "lanes = 360"),
        changed("scale_log2 = 24", "scale_log2 = 31"),
        changed("id = 1", "id = 256"),
        changed("10.0.0.4:7001", "10.0.0.1:7001"),
        changed("10.0.0.4:7001", "10.0.0.4"),
        changed("10.0.0.4:7001", "[fd00::4]:7001"),
        changed("\"10.0.0.1:7001\", \"10.0.0.2:7001\", \"10.0.0.3:7001\", \"10.0.0.4:7001\"", &long),
        changed("start = \"bsp\"", "start = \"ssp(16)\""),
        changed("start = \"bsp\"", "start = \"ssp(3..8)\""),
        changed("start = \"bsp\"", "start = \"hold\""),
        changed("start = \"bsp\"", "start = \"timed(30ms, kmin = 5)\""),
        changed("drop_member(worker)", "drop_member(4)"),
        changed("k = n-1", "k = 5"),
        changed("k = n-1", "k = n-4"),
        changed("wait_p95", "wait_95"),
        changed("cooldown = \"50 rounds\"", "cooldown = \"50\""),
        changed("in = \"partial\"", "in = \"partail\""),
        changed("silent(worker) > 5s", "silent(worker) > 50ms"),
        changed("silent(worker) > 5s", "silent(worker) > 5s or lag_max > 9"),
        changed("cooldown = \"50 rounds\"", ""),
        policies("[[policy]]\nwhen = 'included_min > 4'\nthen = 'asp'"),
        policies("[[policy]]\nwhen = 'lag_max > 3 and lag_max < 4'\nthen = 'asp'"),
        policies("[[policy]]\nwhen = 'lag_max > 3'\nthen = 'ssp(3..8)'"),
        policies("[[policy]]\nwhen = 'span > 9ms and lag_max > 3 and span <= 9ms'\nthen = 'asp'"),
        policies(
            "[[policy]]\nwhen = 'span > 9ms'\nthen = 'asp'\n\
             [[policy]]\nin = 'bsp'\nwhen = 'span > 20ms for 2 rounds and lag_max > 1'\nthen = 'ssp(3)'",
        ),
    ];
    let errors = texts.map(|text| JobFile::parse(&text, "job.toml").expect_err(&text).to_string());
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn policies_that_seldom_or_never_act_are_warned_of() {
    let text = policies(
        "[[policy]]\nwhen = 'span > 9ms'\nthen = 'timed(30ms)'\ncooldown = '9 rounds'\n\
         [[policy]]\nin = 'bsp'\nwhen = 'span > 20ms'\nthen = 'timed(9ms)'\n\
         [[policy]]\nin = 'ssp'\nwhen = 'lag_max > 3'\nthen = 'asp'\n\
         [[policy]]\nin = 'bsp'\nwhen = 'lag_max > 3'\nthen = 'bsp'",
    );
    let warnings = JobFile::parse(&text, "job.toml").unwrap().warnings;
    insta::assert_snapshot!(warnings.join("\n"), @r"
    job.toml:11:8: policy[1].when: holds only when policy 1 above holds too: it acts only while that one cools down
    job.toml:14:6: policy[2].in: neither `start` nor another policy leads to this strategy: it acts only after `ctl swap`
    job.toml:20:8: policy[3].then: bsp is what it acts under: it has no effect
    ");
}

#[test]
fn a_policy_is_reached_where_the_earlier_one_has_done_its_work() {
    // Under asp the first one has no effect, so the second one gets its turn there.
    let text = policies(
        "[[policy]]\nwhen = 'span > 9ms'\nthen = 'asp'\n\
         [[policy]]\nwhen = 'span > 20ms'\nthen = 'ssp(3)'\ncooldown = '9 rounds'",
    );
    assert_eq!(JobFile::parse(&text, "job.toml").map(|file| file.warnings).unwrap(), [""; 0]);
}

#[test]
fn a_circle_of_three_policies_without_a_cooldown_is_found_and_one_with_is_let_pass() {
    let circle = |cooldown: &str| {
        policies(&format!(
            "[[policy]]\nin = 'bsp'\nwhen = 'span > 9ms'\nthen = 'ssp(3)'\n\
             [[policy]]\nin = 'ssp'\nwhen = 'span > 9ms'\nthen = 'asp'\n{cooldown}\n\
             [[policy]]\nin = 'asp'\nwhen = 'span < 9ms'\nthen = 'bsp'"
        ))
    };
    let error = JobFile::parse(&circle(""), "job.toml").unwrap_err().to_string();
    assert!(error.contains("policies 1 and 2 and 3 lead from bsp back to bsp"), "{error}");
    assert!(JobFile::parse(&circle("cooldown = '50 rounds'"), "job.toml").is_ok());
}

proptest! {
    #[test]
    fn no_job_file_panics(when in condition(), then in action(), start in action(), within in prop::option::of("[a-z]{3,7}")) {
        let start = match start { Action::Swap(start) => start.to_string(), _ => "asp".into() };
        let within = within.map_or(String::new(), |name| format!("in = '{name}'\n"));
        let policy = format!("[[policy]]\n{within}when = '{when}'\nthen = '{then}'\n");
        let _ = JobFile::parse(&policies(&format!("start = '{start}'\n{policy}{policy}")), "job.toml");
    }
}
