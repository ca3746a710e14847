//! Ring schedules: the one-register minimum against the exact one.

use proptest::prelude::*;

use super::*;

/// A ring all-reduce whose ranks send when they may (a step needs what the rank before has sent in the step before) and
/// when it is their turn in `turns`.
struct Ring {
    senders: Vec<Sender>,
    /// Packets that each rank has sent.
    sent: Vec<u32>,
    packets_per_step: u32,
    steps: u32,
}

impl Ring {
    fn new(ranks: u8, packets_per_step: u32) -> Self {
        Ring {
            senders: (0..ranks).map(|src| Sender::new(src, (src + 1) % ranks)).collect(),
            sent: vec![0; ranks.into()],
            packets_per_step,
            steps: 2 * (u32::from(ranks) - 1),
        }
    }

    /// The next packet of the first rank from `turn` on that may send; `None` when all are done.
    fn next(&mut self, turn: usize) -> Option<Phv> {
        let ranks = self.sent.len();
        let may_send = |rank: &usize| {
            let step = self.sent[*rank] / self.packets_per_step;
            let before = self.sent[(rank + ranks - 1) % ranks] / self.packets_per_step;
            step < self.steps && before >= step
        };
        let rank = (turn..turn + ranks).map(|rank| rank % ranks).find(may_send)?;
        let opcode = write_opcode(self.sent[rank] % self.packets_per_step, self.packets_per_step);
        self.sent[rank] += 1;
        Some(self.senders[rank].next(opcode))
    }
}

/// Leads of all packets of a ring by both policies.
fn leads(ranks: u8, packets_per_step: u32, turns: &[(u8, u32)], parameters: Parameters) -> Vec<(i32, i32)> {
    let job = Job { packets_per_step: Some(packets_per_step), idle_ns: 500 * MS, ..ring(1, ranks) };
    let with = |policy| Bench::new(Parameters { policy, ..parameters }, std::slice::from_ref(&job));
    let (mut register, mut gold) = (with(Policy::OwnerMin), with(Policy::Gold));
    let mut ring = Ring::new(ranks, packets_per_step);
    let mut turns = turns.iter().cycle();
    let mut leads = Vec::new();
    while let Some((turn, pause)) = turns.next()
        && let Some(phv) = ring.next((*turn).into())
    {
        register.now += u64::from(*pause);
        gold.now += u64::from(*pause);
        let (by_register, by_gold) = (register.send(phv), gold.send(phv));
        assert_eq!((by_register.progress, by_register.leaves), (by_gold.progress, by_gold.leaves));
        assert!(by_register.armed);
        leads.push((by_register.lead, by_gold.lead));
    }
    leads
}

proptest! {
    /// The register holds the progress that its owner really has, or had when it left; so it is never below the least
    /// progress of all flows, as long as gold remembers a flow for at least an epoch.
    #[test]
    fn the_register_never_sees_a_longer_lead_than_there_is(
        ranks in 2..9u8,
        packets_per_step in 1..6u32,
        turns in proptest::collection::vec((any::<u8>(), 0..2_000_000u32), 1..200),
    ) {
        for (register, gold) in leads(ranks, packets_per_step, &turns, Parameters::reference()) {
            prop_assert!(0 <= register && register <= gold, "register {register}, gold {gold}");
        }
    }
}

#[test]
fn a_straggler_is_seen_by_the_register_as_gold_sees_it() {
    // Rank 0 sends once in 20 turns.
    let turns: Vec<(u8, u32)> = (0..20u8).map(|i| (if i == 0 { 0 } else { 1 + i % 3 }, 10_000)).collect();
    let leads = leads(4, 8, &turns, Parameters::reference());
    let ahead = leads.iter().filter(|(_, gold)| *gold >= 128).count();
    let seen = leads.iter().filter(|(register, gold)| *gold >= 128 && *register >= 128).count();
    assert!(ahead >= leads.len() / 4, "the others do run ahead: {ahead} of {}", leads.len());
    assert!(seen * 20 >= ahead * 19, "{seen} of {ahead} packets that gold finds ahead");
}

#[test]
fn gold_that_forgets_sooner_than_an_epoch_may_see_less() {
    let parameters = Parameters { gold_idle_ns: MS, ..Parameters::reference() };
    // Rank 0 sends one packet; the others go on for 2 ms.
    let turns = [(0, 0), (1, 100_000), (1, 2_000_000), (1, 2_000_000), (1, 2_000_000)];
    let leads = leads(4, 4, &turns, parameters);
    assert!(leads.iter().any(|(register, gold)| register > gold), "{leads:?}");
}
