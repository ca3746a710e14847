//! What a job compiles to: the entries that the control plane writes into the rule table, and when.

use std::fmt;

use serde::Serialize;

use crate::functions::serene::controller::{Action, MARGIN};
use crate::functions::serene::{Job, Policy, Rule, Strategy, Visibility};

/// A job and its entries, for people ([`fmt::Display`]) and programs ([`Serialize`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The job's number.
    pub job: u8,
    /// Its workers' addresses.
    pub members: Vec<String>,
    /// Pieces of the vector.
    pub segments: u32,
    /// Values of each.
    pub lanes: u16,
    /// Fixed point.
    pub scale_log2: u8,
    /// The strategy at start.
    pub start: Step,
    /// What policies change.
    pub policies: Vec<PolicyPlan>,
}

/// A policy and its entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyPlan {
    /// Only under strategies of this name.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub within: Option<&'static str>,
    /// The condition, as the grammar has it.
    pub when: String,
    /// What it does.
    pub then: String,
    /// Rounds in which it does not do it again.
    pub cooldown_rounds: u32,
    /// What it writes, where it swaps to one strategy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
}

/// One entry of the rule table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The strategy, as the grammar has it.
    pub strategy: String,
    /// 0 or 1.
    pub bank: u8,
    /// Contributions that release a round.
    pub need: u8,
    /// Rounds that a worker may be ahead.
    pub slack: u32,
    /// What workers divide by.
    pub norm: u8,
    /// The entry, as the table's dump writes it.
    pub entry: String,
    /// What puts it in force, for a swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
}

impl Plan {
    /// Compiles for all members. Banks and versions are those of the first swap; later ones alternate and count on.
    pub fn new(job: &Job) -> Plan {
        let entry = |rule: &Rule, bank: u8| format!("rule[job={}, bank={bank}] -> {rule}", job.id);
        let step = |strategy: &Strategy, rule: &Rule, bank, arm| Step {
            strategy: strategy.to_string(),
            bank,
            need: rule.need,
            slack: rule.slack,
            norm: rule.norm,
            entry: entry(rule, bank),
            arm,
        };
        let from = job.start.visibility();
        let policy = |policy: &Policy| PolicyPlan {
            within: policy.within,
            when: policy.when.to_string(),
            then: policy.then.to_string(),
            cooldown_rounds: policy.cooldown_rounds,
            step: match &policy.then {
                Action::Swap(to) => {
                    let arm = format!("ARM(boundary = maxround + {MARGIN}, from = 1, to = 2, align = jump)");
                    Some(step(to, &to.compile(job.all_members(), 2, from), 1, Some(arm)))
                }
                Action::SspWithin { .. } | Action::DropMember(_) | Action::Hold => None,
            },
        };
        Plan {
            job: job.id,
            members: job.members.iter().map(ToString::to_string).collect(),
            segments: job.segments,
            lanes: job.lanes,
            scale_log2: job.scale_log2,
            start: step(&job.start, &job.start.compile(job.all_members(), 1, Visibility::Deferred), 0, None),
            policies: job.policies.iter().map(policy).collect(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = u64::from(self.segments) * u64::from(self.lanes);
        let Plan { job, members, segments, lanes, scale_log2, .. } = self;
        writeln!(
            f,
            "job {job}: {} workers, {segments} segments of {lanes} lanes = {values} values of 2^-{scale_log2}",
            members.len()
        )?;
        for (worker, member) in members.iter().enumerate() {
            writeln!(f, "  worker {worker:<2} {member}")?;
        }
        write!(f, "  start     {}\n            {}", self.start.strategy, self.start.entry)?;
        for (index, policy) in self.policies.iter().enumerate() {
            let within = policy.within.map_or(String::new(), |name| format!("in {name}, "));
            write!(f, "\n  policy {:<2} {within}when {}\n            then {}", index + 1, policy.when, policy.then)?;
            if policy.cooldown_rounds > 0 {
                write!(f, ", not again for {} rounds", policy.cooldown_rounds)?;
            }
            if let Some(step) = &policy.step {
                write!(f, "\n            {}", step.entry)?;
                write!(f, "\n            {}", step.arm.as_deref().unwrap_or_default())?;
            }
        }
        Ok(())
    }
}
