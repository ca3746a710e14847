//! Rules that change between rounds, members that come and go, and what else happens at a bad moment.

use super::*;
use crate::functions::serene::controller::{Action, Comparison, Condition, Metric, Outcome, Relation};
use crate::wire::aggregation::Notice;

const SLACK_3: Strategy = Strategy::Ssp { slack: 3 };

#[test]
fn a_boundary_somebody_has_pushed_for_is_refused_and_copies_are_answered_alike() {
    let mut net = Net::joined(&job(2, 1, Strategy::Bsp));
    net.park(0, 1, 3);
    assert_eq!(net.arm(1, 1, SLACK_3), (Code::Nak, 1, 1));
    for _ in 0..2 {
        assert_eq!(net.arm(1, 2, SLACK_3), (Code::Done, 1, 2));
    }
    assert_eq!(net.arm(2, 9, SLACK_3).0, Code::Busy);
    assert_eq!(net.ask_switch(Type::Abort, 2, 0).0, Code::Unknown);
    assert_eq!(net.ask_switch(Type::Abort, 1, 0).0, Code::Done);
    assert_eq!((net.ask_switch(Type::Abort, 1, 0).0, net.view().armed), (Code::Done, None));
    assert_eq!(net.arm(1, 2, SLACK_3).0, Code::Unknown, "its turn is over");
    assert_eq!(net.arm(2, 2, SLACK_3), (Code::Done, 1, 2));
    net.release(1, 1, 5);
    net.ask(0, 2, 7);
    assert_eq!(net.ask_switch(Type::Abort, 2, 0).0, Code::TooLate);
    assert_eq!(net.ask_switch(Type::Arm, 3, (1 << 31) - 1).0, Code::Busy);
    let bytes = net.control(Type::Arm, 3, 1 << 31);
    assert_eq!((net.raw(CPU, bytes), net.drops(DropReason::BadRound)), (vec![], 1));
}

#[test]
fn rounds_before_the_boundary_go_by_the_old_rule_and_from_it_by_the_new() {
    let mut net = Net::joined(&job(2, 1, Strategy::Bsp));
    net.park(0, 1, 3);
    net.arm(1, 3, Strategy::Partial { k: Quorum::Exactly(1), late: Late::Drop });
    let out = net.release(1, 1, 5);
    assert!(out[0].has(Flags::SWAP_ARMED) && !out[0].has(Flags::BOUNDARY));
    assert_eq!((out[0].header.next_round, out[0].header.norm, out[0].header.rule_version), (2, 2, 1));
    net.park(1, 2, 7);
    let out = net.release(0, 2, 11);
    assert!(out[0].has(Flags::BOUNDARY), "the next round is the first of the new rule");
    assert_eq!((out[0].header.next_round, out[0].header.norm, out[0].header.rule_version), (3, 1, 2));
    net.release(0, 3, 13);
    assert!(net.digests().iter().all(|(.., kind)| *kind != DigestKind::Reached));
    assert!(net.ask(1, 3, 17).has(Flags::LATE));
    assert!(net.digests().contains(&(3, 1, DigestKind::Reached)));
    assert_eq!((net.view().reached, net.ask_switch(Type::Complete, 1, 0)), (0b11, (Code::Done, 3, 3)));
    let view = net.view();
    assert_eq!((view.start, view.armed, view.rule.version, view.rule.need), (3, None, 2, 1));
    assert_eq!(net.ask_switch(Type::Complete, 1, 0).0, Code::Done);
    assert_eq!(net.view().start, 3, "a copy does nothing");
    let old = net.ask(1, 2, 7);
    assert_eq!((old.flags(), old.header.next_round, old.included()), (Flags::OLD, 4, 0));
    assert_eq!(net.sum(), sum(&[3, 5, 7, 11, 13]));
}

#[test]
fn from_an_immediate_rule_who_is_behind_jumps_to_the_boundary() {
    let mut net = Net::joined(&job(2, 1, SLACK_3));
    for round in 1..=3 {
        net.ask(0, round, 1);
    }
    net.arm(1, 5, Strategy::Bsp);
    let before = net.release(1, 1, 2);
    assert_eq!(before[1].header.next_round, 2, "nobody is there yet");
    net.ask(0, 4, 1);
    net.park(0, 5, 10);
    let told = net.release(1, 2, 2);
    assert!(told[1].has(Flags::BOUNDARY));
    assert_eq!(told[1].header.next_round, 5);
    assert_eq!(net.sum(), sum(&[1, 1, 1, 1, 2, 2]), "round 5 is deferred and open");
    // Round 5 is far beyond what worker 1 has seen, but it is the first after an immediate rule.
    let out = net.release(1, 5, 20);
    assert_eq!(
        (out[0].lanes.clone(), out[0].header.frontier, out[0].included()),
        (sum(&[1, 1, 1, 1, 2, 2, 10, 20]), 5, 0b11)
    );
    net.base = [2; 4];
    assert_eq!((net.push(1, 0, 7, 1), net.drops(DropReason::Premature)), (vec![], 1), "only the first");
}

#[test]
fn who_joins_at_a_boundary_does_not_leave_others_waiting_for_rounds_that_are_jumped_over() {
    let mut net = Net::joined(&job(3, 1, SLACK_3));
    let two = SLACK_3.compile(0b011, 1, Visibility::Immediate);
    net.serene().set_rule(JOB, 0, two);
    for round in 1..=3 {
        net.ask(0, round, 1);
    }
    net.park(0, 4, 1);
    // From round 5 on worker 2 takes part.
    let three = SLACK_3.compile(0b111, 2, Visibility::Immediate);
    net.serene().set_rule(JOB, 1, three);
    assert_eq!(net.ask_switch(Type::Arm, 1, 5).0, Code::Done);
    assert_eq!(net.join(2, 300)[0].header.next_round, 5);
    let pull = Repr { incarnation_or_included: 300, ..net.header(Type::Pull, 2) };
    assert_eq!(net.by_worker(2, pull, &[]), [], "worker 0 waits for round 1, which worker 1 would jump over");
    net.release(1, 1, 2);
    assert_eq!(net.by_worker(2, pull, &[])[0].header.next_round, 5, "nobody waits for a round before 5 any more");
}

#[test]
fn with_drain_who_is_behind_walks() {
    let mut net = Net::joined(&job(2, 1, SLACK_3));
    net.ask(0, 1, 1);
    let view = net.view();
    net.serene().set_rule(JOB, 1, Strategy::Bsp.compile(0b11, 2, view.rule.visibility));
    let mut bytes = net.control(Type::Arm, 1, 3);
    bytes[PAYLOAD_AT + 32 + 12] = Align::Drain as u8;
    assert_eq!(net.send(CPU, bytes)[0].control.map(|control| control.code), Some(Code::Done));
    net.ask(0, 2, 1);
    net.park(0, 3, 5);
    for round in 1..=2 {
        let out = net.release(1, round, 2);
        assert_eq!(out[1].header.next_round, round + 1);
    }
    net.release(1, 3, 6);
    assert_eq!(net.sum(), sum(&[1, 1, 2, 2, 5, 6]));
}

/// A worker of one segment that does as it is told.
#[derive(Clone, Debug)]
struct Worker {
    number: u8,
    incarnation: u32,
    round: u32,
    pending: bool,
    dropped: bool,
}

impl Worker {
    fn new(number: u8) -> Self {
        Worker { number, incarnation: 100 + u32::from(number), round: 1, pending: false, dropped: false }
    }
}

/// Workers, switch and controller.
pub(super) struct Crew {
    pub(super) net: Net,
    pub(super) controller: Controller,
    workers: Vec<Worker>,
    /// Value of every contribution that an answer said is in.
    pub(super) included: Vec<i32>,
    /// What each worker pushed in each round.
    values: Vec<(u8, u32, i32)>,
    next_value: i32,
}

impl Crew {
    pub(super) fn new(job: &Job) -> Self {
        let net = Net::joined(job);
        let controller = Controller::new(net.switch.functions().0.config(), job);
        let workers = (0..job.members.len() as u8).map(Worker::new).collect();
        let mut crew = Crew { net, controller, workers, included: Vec::new(), values: Vec::new(), next_value: 1 };
        let number = crew.workers.len() as u8;
        for worker in 0..number {
            crew.net.join(worker, 100 + u32::from(worker));
        }
        crew.manage(|| 1);
        crew
    }

    /// Lets the controller work.
    pub(super) fn manage(&mut self, copies: impl FnMut() -> usize) {
        let out = self.net.run_controller(&mut self.controller, copies);
        self.hear(out);
    }

    /// A worker pushes its round, for the first time or again.
    pub(super) fn step(&mut self, worker: u8) {
        let Worker { incarnation, round, pending, dropped, .. } = self.workers[usize::from(worker)];
        if dropped {
            return;
        }
        if !pending {
            self.values.push((worker, round, self.next_value));
            self.next_value += 1;
            self.workers[usize::from(worker)].pending = true;
        }
        let value = self.values.iter().rev().find(|(w, r, _)| (*w, *r) == (worker, round)).expect("pushed").2;
        let header = Repr { incarnation_or_included: incarnation, ..self.net.push_header(worker, 0, round) };
        let out = self.net.by_worker(worker, header, &lanes(value));
        self.hear(out);
    }

    fn hear(&mut self, out: Vec<Out>) {
        for answer in out {
            let Some(worker) = self.workers.get_mut(usize::from(answer.header.worker)) else { continue };
            match answer.header.kind {
                Type::Notice => worker.dropped = answer.included() == worker.incarnation,
                Type::Result if worker.pending && answer.header.round == worker.round => {
                    let base = &mut self.net.base[usize::from(worker.number)];
                    *base = answer.header.frontier.max(*base);
                    if !answer.has(Flags::LATE) && !answer.has(Flags::OLD) {
                        let pushed = (worker.number, worker.round);
                        let value = self.values.iter().rev().find(|(w, r, _)| (*w, *r) == pushed).expect("pushed").2;
                        self.included.push(value);
                    }
                    worker.pending = false;
                    worker.round = answer.header.next_round.max(worker.round + 1);
                }
                _ => {}
            }
        }
    }

    /// Everybody pushes and the controller works, so many times.
    pub(super) fn rounds(&mut self, count: usize, but: Option<u8>) {
        for _ in 0..count {
            for worker in (0..self.workers.len() as u8).filter(|worker| Some(*worker) != but) {
                self.step(worker);
                self.manage(|| 1);
            }
        }
    }

    /// Under BSP: whoever is behind pushes, until nobody waits for an answer.
    pub(super) fn finish(&mut self) {
        for _ in 0..10 {
            let waiting = self.workers.iter().filter(|worker| worker.pending).map(|worker| worker.round).max();
            let Some(round) = waiting else { return };
            for worker in 0..self.workers.len() as u8 {
                if self.round(worker) <= round {
                    self.step(worker);
                }
            }
            self.manage(|| 1);
        }
    }

    pub(super) fn round(&self, worker: u8) -> u32 {
        self.workers[usize::from(worker)].round
    }

    /// What answers said is in, and nothing else, is in the sum; but for what still waits for its answer.
    pub(super) fn check_sum(&self) {
        let segment = self.net.switch.functions().0.segment(JOB, 0).expect("it is there");
        assert_eq!(segment.open, [0; LANES], "nothing is open");
        assert_eq!(segment.sum, sum(&self.included));
    }

    fn rejoin(&mut self, worker: u8, incarnation: u32) -> bool {
        let out = self.net.join(worker, incarnation);
        self.manage(|| 1);
        let Some(ack) = out.iter().find(|answer| answer.header.kind == Type::JoinAck) else { return false };
        let header = Repr { incarnation_or_included: incarnation, ..self.net.header(Type::Pull, worker) };
        let out = self.net.by_worker(worker, header, &[]);
        let Some(pulled) = out.first() else { return false };
        self.net.base[usize::from(worker)] = pulled.header.frontier;
        let round = pulled.header.next_round.max(ack.header.next_round);
        self.workers[usize::from(worker)] =
            Worker { number: worker, incarnation, round, pending: false, dropped: false };
        true
    }
}

#[test]
fn the_controller_goes_through_all_strategies_though_most_of_its_packets_are_lost_or_doubled() {
    let strategies = [
        SLACK_3,
        Strategy::Bsp,
        Strategy::Asp,
        Strategy::Partial { k: Quorum::AllBut(1), late: Late::Return },
        Strategy::Timed { deadline_ns: 1_000_000, kmin: Quorum::Exactly(2), late: Late::Drop },
        Strategy::Ssp { slack: 1 },
        Strategy::Bsp,
    ];
    let mut crew = Crew::new(&job(3, 1, Strategy::Bsp));
    let mut luck = 0;
    for strategy in strategies {
        crew.controller.swap(crew.net.now, strategy);
        for _ in 0..60 {
            for worker in 0..3 {
                crew.step(worker);
                crew.net.now += 3_000_000;
                // Two of five are lost, one comes twice.
                crew.manage(|| {
                    luck += 1;
                    [0, 1, 2, 0, 1][luck % 5]
                });
            }
        }
        assert_eq!(crew.controller.status().in_force.strategy, strategy);
    }
    let outcomes: Vec<_> = crew.controller.swaps().map(|swap| swap.outcome).collect();
    assert_eq!(outcomes, [Outcome::Stable; 7]);
    assert!(crew.round(0) > 300, "{}", crew.round(0));
    crew.finish();
    crew.check_sum();
    assert_eq!(crew.net.view().counters.old, 0);
}

#[test]
fn a_dead_worker_is_given_up_and_may_come_back() {
    let silent = Comparison { metric: Metric::Silent, relation: Relation::Greater, value: 1e9, rounds: 1 };
    let policy =
        Policy { within: None, when: Condition::Compare(silent), then: Action::DropMember(None), cooldown_rounds: 0 };
    for start in [Strategy::Bsp, SLACK_3, Strategy::Asp, Strategy::Partial { k: Quorum::Exactly(2), late: Late::Drop }]
    {
        let mut crew = Crew::new(&Job { policies: vec![policy.clone()], ..job(3, 1, start) });
        crew.rounds(5, None);
        // It dies between its push and the answer.
        crew.step(2);
        let stuck = crew.round(0);
        crew.rounds(3, Some(2));
        for _ in 0..20 {
            crew.net.now += 100_000_000;
            crew.rounds(1, Some(2));
        }
        assert_eq!(crew.controller.status().in_force.members, 0b011, "{start}");
        assert!(crew.round(0) > stuck + 5, "{start}: the others go on");
        // Its round is old by now; from the next one on it is no member.
        crew.step(2);
        crew.step(2);
        assert!(crew.workers[2].dropped, "{start}: it is told");
        // Its process starts anew: no answer until a rule with it is armed.
        assert!(!crew.rejoin(2, 900), "{start}");
        let mut tries = 0;
        while !crew.rejoin(2, 900) {
            crew.rounds(1, Some(2));
            tries += 1;
            assert!(tries < 10, "{start}");
        }
        let back = crew.round(2);
        crew.rounds(8, None);
        assert_eq!(crew.controller.status().in_force.members, 0b111, "{start}");
        assert!(crew.round(2) > back + 3, "{start}");
    }
}

#[test]
fn a_worker_that_leaves_first_does_not_stop_the_others() {
    let mut crew = Crew::new(&job(3, 1, Strategy::Bsp));
    crew.rounds(4, None);
    let header = crew.net.header(Type::Leave, 1);
    crew.net.by_worker(1, header, &[]);
    crew.manage(|| 1);
    let left = crew.round(0);
    for _ in 0..10 {
        crew.net.now += 20_000_000;
        crew.rounds(1, Some(1));
    }
    assert!(crew.round(0) > left + 5);
    let status = crew.controller.status();
    assert_eq!((status.in_force.members, status.swap), (0b101, None));
    let told = crew.net.push(1, 0, crew.round(0), 5);
    assert_eq!((told[0].header.kind, told[0].header.norm), (Type::Notice, Notice::Dropped as u8));
    assert_eq!(crew.net.view().rule.norm, 2);
}

#[test]
fn a_restart_during_a_swap_counts_nothing_twice() {
    for (start, to) in [(Strategy::Bsp, SLACK_3), (SLACK_3, Strategy::Bsp), (Strategy::Asp, Strategy::Bsp)] {
        let mut crew = Crew::new(&job(3, 1, start));
        crew.rounds(4, None);
        crew.controller.swap(crew.net.now, to);
        crew.manage(|| 1);
        crew.step(0);
        crew.step(1);
        crew.step(1);
        assert!(crew.rejoin(1, 901), "{start} -> {to}");
        crew.rounds(20, None);
        let status = crew.controller.status();
        assert_eq!((status.in_force.strategy, status.swap), (to, None), "{start} -> {to}");
        assert!(crew.round(1) > 15, "{start} -> {to}: {:?}", crew.workers);
    }
}

#[test]
fn a_switch_that_starts_anew_tells_everybody_to_join_and_has_another_number() {
    let job = job(2, 1, Strategy::Bsp);
    let mut net = Net::joined(&job);
    net.park(0, 1, 3);
    net.release(1, 1, 5);
    let config = SereneConfig { incarnation: 78, ..*net.serene().config() };
    *net.serene() = Serene::new(config);
    net.serene().add_job(&job).expect("sound");
    let told = net.ask(0, 2, 7);
    assert_eq!((told.header.kind, told.header.norm), (Type::Notice, Notice::Rejoin as u8));
    assert_eq!(net.join(0, 100)[0].included(), 78);
    net.serene().remove_job(JOB);
    net.serene().add_job(&job).expect("sound");
    assert_eq!(net.join(0, 100)[0].included(), 79, "so has a job that is loaded again");
}
