//! What becomes of a worker, for its driver.

use crate::dataplane::Nanos;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The model is here, and the worker may push.
    Joined {
        /// Label of its first contribution.
        round: u32,
    },
    /// All segments of a round are answered: the sum is in the store.
    Round(Report),
    /// The switch does not know the job yet. The worker goes on asking.
    JobUnknown,
    /// LEAVE was answered, or nobody cared to for a while.
    Left,
    /// It cannot go on.
    Failed(Failure),
}

/// One round as its worker saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Label of the contribution.
    pub round: u32,
    /// Label of the next one.
    pub next_round: u32,
    /// Version of the rule in force for the next round.
    pub rule_version: u16,
    /// What the contribution was divided by.
    pub norm: u8,
    /// Segments whose contribution is in the sum.
    pub included: u32,
    /// Segments that came too late for their round.
    pub late: u32,
    /// Those of `late` that are added to the next contribution.
    pub returned: u32,
    /// Segments of whose contribution nothing is known: the switch no longer knows, or it went on without this worker, which
    /// has joined again meanwhile.
    pub forgotten: u32,
    /// Segments that the controller released early, with whoever was in.
    pub closed: u32,
    /// Values that were clipped.
    pub clipped: u32,
    /// Packets that were sent again.
    pub retransmissions: u32,
    /// The vector was handed over.
    pub begun_at: Nanos,
    /// The last segment was sent for the first time; 0 when the round was interrupted before.
    pub pushed_at: Nanos,
    /// The last answer came.
    pub done_at: Nanos,
    /// Smoothed round trip at the end; 0 when none was measured yet.
    pub rtt_ns: Nanos,
}

impl Report {
    /// Barrier wait: from the moment when the worker's last segment was on its way until its last answer, less one round
    /// trip. What a straggler costs the others; the straggler itself has next to none. Recovery from loss is in it too, as
    /// a worker can't tell a lost answer from one that is not there yet.
    pub fn wait_ns(&self) -> Nanos {
        if self.pushed_at == 0 {
            return 0; // interrupted before all was sent: nobody was waited for
        }
        self.done_at.saturating_sub(self.pushed_at).saturating_sub(self.rtt_ns)
    }

    /// The rest: sending, and one round trip. [`Report::wait_ns`] and this are [`Report::exchange_ns`].
    pub fn transfer_ns(&self) -> Nanos {
        self.exchange_ns() - self.wait_ns()
    }

    /// From the vector in to the sum out. "Waiting time" as the published Serene experiments count it: what a worker spends
    /// reading the model and waiting for the clock, with the transfer in it.
    pub fn exchange_ns(&self) -> Nanos {
        self.done_at.saturating_sub(self.begun_at)
    }
}

/// Why a worker cannot go on. A driver adds whom it talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No answer to JOIN.
    #[error(
        "no answer to JOIN of job {job}, worker {worker}, for {waited_ms} ms. Is the switch running, is the job loaded (`symphony ctl status`), and is this address a member of it?"
    )]
    JoinTimeout {
        /// Job.
        job: u8,
        /// Rank.
        worker: u8,
        /// How long it asked.
        waited_ms: u64,
    },
    /// The job has not come.
    #[error("the switch has not known job {job} for {waited_ms} ms: load it with `symphony ctl job load`")]
    UnknownJob {
        /// Job.
        job: u8,
        /// How long it asked.
        waited_ms: u64,
    },
    /// No answer at all.
    #[error(
        "the switch has answered nothing for {waited_ms} ms in round {round} of job {job}. Is it running, and does it have the job with as many lanes?"
    )]
    Silent {
        /// Job.
        job: u8,
        /// The open round.
        round: u32,
        /// How long it asked.
        waited_ms: u64,
    },
    /// Not wanted.
    #[error("worker {worker} may not join job {job}: it is not a member, or another process has taken its place")]
    Dropped {
        /// Job.
        job: u8,
        /// Rank.
        worker: u8,
    },
    /// The switch or the job was restarted, or the job unloaded: the sum of all rounds before is gone.
    #[error(
        "the switch lost the sums of job {job} after round {round}: the job was unloaded, or it or the switch was restarted. Start all workers again from a checkpoint"
    )]
    StoreLost {
        /// Job.
        job: u8,
        /// The last round that this worker saw.
        round: u32,
    },
    /// Configured otherwise at the switch.
    #[error("job {job} has {theirs} {what} at the switch, and {ours} here: make them equal")]
    Shape {
        /// Job.
        job: u8,
        /// Segments or lanes.
        what: &'static str,
        /// At the switch.
        theirs: u32,
        /// Here.
        ours: u32,
    },
    /// One round moved a value by more than 2^30, half of what can be told from the opposite.
    #[error(
        "value {index} moved by more than 2^30 in round {round}: the contributions are too large for the job's scale_log2, or the training diverged"
    )]
    Overflow {
        /// The round.
        round: u32,
        /// Which value of the vector.
        index: u32,
    },
    /// 2^31 rounds.
    #[error("job {job} has used up its 2^31 rounds: load it anew")]
    RoundsExhausted {
        /// Job.
        job: u8,
    },
}
