//! Random schedules of pushes, repeats, losses and swaps.

use proptest::prelude::{Just, ProptestConfig, Strategy as _, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::swaps::Crew;
use super::*;

fn strategy() -> impl proptest::strategy::Strategy<Value = Strategy> {
    let late = || prop_oneof![Just(Late::Drop), Just(Late::Return)];
    prop_oneof![
        Just(Strategy::Bsp),
        Just(Strategy::Asp),
        (1..=MAX_SLACK).prop_map(|slack| Strategy::Ssp { slack }),
        (0..3u8, late()).prop_map(|(out, late)| Strategy::Partial { k: Quorum::AllBut(out), late }),
        (1..4u8, late()).prop_map(|(kmin, late)| Strategy::Timed {
            deadline_ns: 2_000_000,
            kmin: Quorum::Exactly(kmin),
            late
        }),
    ]
}

#[derive(Clone, Debug)]
enum Move {
    Step(u8),
    Swap(Strategy),
    Wait(u64),
}

fn moves() -> impl proptest::strategy::Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        30 => (0..3u8).prop_map(Move::Step),
        1 => strategy().prop_map(Move::Swap),
        2 => (0..20u64).prop_map(Move::Wait),
    ];
    proptest::collection::vec(one, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// At most once, no sum torn between two rules, and never stuck.
    #[test]
    fn what_answers_say_is_in_is_in_whatever_is_swapped_when(
        start in strategy(),
        moves in moves(),
        fates in proptest::collection::vec(0..3usize, 1..50),
    ) {
        let mut crew = Crew::new(&job(3, 1, start));
        let mut fate = fates.into_iter().cycle();
        for it in moves {
            match it {
                Move::Step(worker) => crew.step(worker),
                Move::Swap(strategy) => crew.controller.swap(crew.net.now, strategy),
                Move::Wait(ms) => crew.net.now += ms * 1_000_000,
            }
            crew.manage(|| fate.next().unwrap_or(1));
        }
        // All is well from here on: every swap ends, and so does every round.
        let before = crew.round(0);
        for _ in 0..40 {
            crew.net.now += 20_000_000;
            crew.rounds(1, None);
        }
        let status = crew.controller.status();
        prop_assert_eq!((status.swap, status.in_force), (None, status.wanted));
        prop_assert!(crew.round(0) > before + 10, "{} after {}", crew.round(0), before);
        crew.controller.swap(crew.net.now, Strategy::Bsp);
        for _ in 0..40 {
            crew.net.now += 20_000_000;
            crew.rounds(1, None);
        }
        crew.finish();
        crew.check_sum();
        prop_assert_eq!(crew.net.drops(DropReason::Premature), 0);
    }
}
