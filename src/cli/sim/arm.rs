//! The arms of a comparison: what differs between runs of one scenario and seed.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

use crate::backend::sim::{Discipline, Setup};
use crate::control::config::{Compiler, Key, Purpose, SymphonyTable};
use crate::functions::symphony::{Parameters, Policy};

/// What everything is compared with: switches without Symphony.
pub const BASE: &str = "base";
/// The noise floor: draws the same random numbers as symphony, never marks.
pub const NULL: &str = "null";
/// The arm that blind is paired with.
pub const SYMPHONY: &str = "symphony";
/// Large enough that nothing is dropped or paused however far senders without control run ahead.
const BOTTOMLESS: u64 = 1 << 50;

/// One arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// As in the output.
    pub name: String,
    /// What it does.
    pub kind: Kind,
}

/// What an arm does to a setup.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Nothing.
    Base,
    /// Symphony in every switch.
    Symphony(Marking),
    /// The placebo: queue test and gap of another arm and a coin for its lead test, tuned so that both mark as often.
    Blind {
        /// Name of that arm.
        of: String,
    },
    /// Senders without congestion control, and switches that choose what to send next.
    NoControl(Discipline),
}

/// Symphony's parameters, with times for 10 Gbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marking {
    /// As given.
    pub parameters: Parameters,
    /// `recovery` was given; else it is that of the congestion control.
    pub recovery_given: bool,
}

impl Arm {
    /// Those that run by default, in the order in which they are shown.
    pub fn defaults() -> Vec<Arm> {
        let policy = |policy| Parameters { policy, ..Parameters::default() };
        let symphony = |parameters| Kind::Symphony(Marking { parameters, recovery_given: false });
        [
            (BASE, Kind::Base),
            (SYMPHONY, symphony(Parameters::default())),
            ("symphony-bold", symphony(Parameters::bold())),
            ("gold", symphony(policy(Policy::Gold))),
            (NULL, symphony(policy(Policy::Null))),
            ("blind", Kind::Blind { of: SYMPHONY.into() }),
            ("oracle", Kind::NoControl(Discipline::LeastLead)),
            ("fifo", Kind::NoControl(Discipline::Fifo)),
        ]
        .map(|(name, kind)| Arm { name: name.into(), kind })
        .into()
    }

    /// The arms of a sweep: the defaults, then those `given` as `NAME=key:value,..`, which may redefine one; of these the
    /// `chosen`, if any are. Base is always there.
    ///
    /// # Errors
    /// An arm that can't be read, or one that is chosen or paired with and does not exist.
    pub fn choose(given: &[String], chosen: &[String]) -> Result<Vec<Arm>> {
        let mut arms = Arm::defaults();
        for text in given {
            let arm = Arm::parse(text).with_context(|| format!("--arm {text}"))?;
            match arms.iter_mut().find(|other| other.name == arm.name) {
                Some(other) => *other = arm,
                None => arms.push(arm),
            }
        }
        let names = || arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>().join(", ");
        for arm in &arms {
            if let Kind::Blind { of } = &arm.kind {
                let partner = arms.iter().find(|other| other.name == *of);
                let marks = partner.is_some_and(|partner| matches!(partner.kind, Kind::Symphony(_)));
                ensure!(marks, "arm {}: `{of}` is no arm that Symphony marks in; there are {}", arm.name, names());
            }
        }
        if let Some(unknown) = chosen.iter().find(|name| !arms.iter().any(|arm| arm.name == **name)) {
            bail!("--arms {unknown}: there is no such arm; there are {}", names());
        }
        let listed = |arm: &Arm| chosen.is_empty() || arm.name == BASE || chosen.contains(&arm.name);
        // Extra arms were asked for by being given.
        let extra = |arm: &Arm| given.iter().any(|text| text.split('=').next() == Some(&arm.name));
        arms.retain(|arm| listed(arm) || extra(arm));
        Ok(arms)
    }

    /// Reads `NAME=key:value,..`: keys of the configuration's `[symphony]` table, or the short names `t` (threshold),
    /// `qthr` (queue) and `c3` (only_below_kmin). What is left out is as in the arm `symphony`. `of:ARM` makes a blind arm.
    fn parse(text: &str) -> Result<Arm> {
        let (name, keys) =
            text.split_once('=').context("write NAME=key:value,.., for instance eager=t:0.25,gap:50us")?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            !name.is_empty() && name.chars().all(is_name),
            "{name:?} is no name; use letters, digits, `-`, `_`, `.`"
        );
        ensure!(name != BASE, "base is what the others are compared with; give the arm another name");
        let mut changes = Map::new();
        for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once(':').with_context(|| format!("{pair:?}: write key:value"))?;
            let key = match key.replace('-', "_").as_str() {
                "t" => "threshold".to_owned(),
                "qthr" => "queue".to_owned(),
                "c3" => "only_below_kmin".to_owned(),
                key => key.to_owned(),
            };
            // A number or a boolean where it reads as one; text, such as a time with its unit, where not.
            let value = match serde_json::from_str(value) {
                Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
                _ => Value::String(value.to_owned()),
            };
            changes.insert(key, value);
        }
        if let Some(of) = changes.remove("of") {
            let of = of.as_str().context("of: write the name of an arm")?.to_owned();
            ensure!(changes.is_empty(), "with `of`, every other value is that arm's");
            return Ok(Arm { name: name.into(), kind: Kind::Blind { of } });
        }
        let recovery_given = changes.contains_key("recovery");
        let table = SymphonyTable::default().with(changes)?;
        let compiler = Compiler { purpose: Purpose::Replay, slowest_rate_bps: None };
        let parameters = compiler.parameters(&table, &Key::default())?;
        Ok(Arm { name: name.into(), kind: Kind::Symphony(Marking { parameters, recovery_given }) })
    }
}

impl Kind {
    /// The setup of this arm. `stretch`: how many times slower than 10 Gbit/s the scenario's times are meant for.
    /// [`Kind::Blind`] changes nothing: its coin is known only after its partner's run.
    pub fn apply(&self, setup: &mut Setup, stretch: f64) {
        match self {
            Kind::Base | Kind::Blind { .. } => setup.symphony = None,
            Kind::Symphony(marking) => setup.symphony = Some(marking.parameters(setup, stretch)),
            Kind::NoControl(discipline) => {
                setup.symphony = None;
                setup.discipline = *discipline;
                setup.fabric.buffer_bytes = BOTTOMLESS;
                setup.jobs.iter_mut().for_each(|job| job.congestion_control = None);
                setup.background.iter_mut().for_each(|transfer| transfer.congestion_control = None);
            }
        }
    }
}

impl Marking {
    fn parameters(&self, setup: &Setup, stretch: f64) -> Parameters {
        let mut parameters = self.parameters.scaled(stretch);
        let control = setup.jobs.iter().find_map(|job| job.congestion_control);
        if let (Some(control), false) = (control, self.recovery_given) {
            parameters.recovery_ns = control.recovery_ns();
        }
        parameters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(text: &str) -> Result<Arm> {
        Arm::parse(text)
    }

    fn parameters(text: &str) -> Parameters {
        match arm(text).expect("it reads").kind {
            Kind::Symphony(marking) => marking.parameters,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_default_arms_are_the_documented_ones_in_their_order() {
        let names: Vec<String> = Arm::defaults().into_iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["base", "symphony", "symphony-bold", "gold", "null", "blind", "oracle", "fifo"]);
    }

    #[test]
    fn an_arm_takes_the_keys_of_the_configuration_and_their_short_names() {
        let long = parameters("x=threshold:0.25,queue:0,gap:50us,only_below_kmin:true");
        assert_eq!(long, parameters("x=t:0.25,qthr:0,gap:50us,c3:true"));
        assert_eq!(long.threshold, 64);
        assert_eq!(long.gap_ns, 50_000);
        assert!(long.only_below_kmin && long.queue_fraction == 0.0);
        assert_eq!(parameters("x=policy:gold").policy, Policy::Gold);
        assert_eq!(parameters("x=policy:null").policy, Policy::Null);
        assert_eq!(parameters("x=policy:blind,blind-probability:0.1").policy, Policy::Blind { probability: 0.1 });
        assert!(!parameters("x=enabled:false").enabled);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_cure() {
        for (text, cure) in [
            ("x", "NAME=key:value"),
            ("x y=t:1", "is no name"),
            ("base=t:1", "another name"),
            ("x=t", "key:value"),
            ("x=t:0", "1/256"),
            ("x=tee:1", "tee"),
            ("x=gap:5", "us"),
            ("x=of:symphony,t:1", "that arm's"),
        ] {
            let error = format!("{:#}", arm(text).expect_err(text));
            assert!(error.contains(cure), "{text}: {error}");
        }
    }

    #[test]
    fn an_arm_of_a_default_name_redefines_it_and_others_are_added() {
        let given = ["symphony=t:1".to_owned(), "mine=gap:1ms".to_owned()];
        let arms = Arm::choose(&given, &[]).expect("they read");
        assert_eq!(arms.len(), Arm::defaults().len() + 1);
        assert_eq!(arms[1], arm("symphony=t:1").expect("it reads"));
        assert_eq!(arms[8].name, "mine");
    }

    #[test]
    fn base_is_always_among_the_chosen_arms() {
        let names = |given: &[&str], chosen: &[&str]| {
            let own = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
            Arm::choose(&own(given), &own(chosen)).map(|arms| arms.into_iter().map(|arm| arm.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[], &["fifo", "null"]).expect("they exist"), ["base", "null", "fifo"]);
        assert_eq!(names(&["mine=t:1"], &["null"]).expect("they exist"), ["base", "null", "mine"]);
        assert!(names(&[], &["nil"]).expect_err("none such").to_string().contains("symphony-bold"));
        assert!(names(&["b=of:fifo"], &[]).expect_err("no marks to match").to_string().contains("fifo"));
    }
}
