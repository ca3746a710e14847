//! Each row of the rule table.

use super::*;

#[test]
fn bsp_releases_a_round_to_all_when_all_are_in() {
    let mut net = Net::joined(&job(2, 1, Strategy::Bsp));
    net.park(0, 1, 3);
    assert_eq!(net.sum(), [0; LANES], "an open round is not visible");
    let out = net.release(1, 1, 5);
    let expected = sum(&[3, 5]);
    for (worker, copy) in out.iter().enumerate() {
        assert_eq!((copy.port, usize::from(copy.header.worker)), (worker as u16, worker));
        assert_eq!(copy.lanes, expected);
        assert_eq!((copy.included(), copy.header.frontier, copy.header.next_round), (0b11, 1, 2));
        assert_eq!((copy.header.norm, copy.header.rule_version), (2, 1));
        assert_eq!(copy.flags(), Flags::MCAST);
    }
    net.park(1, 2, 7);
    net.release(0, 2, 11);
    assert_eq!(net.sum(), sum(&[3, 5, 7, 11]));
    assert_eq!(net.switch.counters().drops.iter().map(|(_, count)| count).sum::<u64>(), 0);
}
