//! Faults of the links: loss, duplication, delay, reordering, corruption, as `tc netem` makes them. For machines whose
//! kernel has no netem, and for runs that are to be repeated: every fault comes from a seeded stream.
//!
//! ```text
//! in:  link -> [fate] -> [corrupt] -> parser ..         out:  .. ingress -> [fate] -> queue .. deparser -> [corrupt] -> link
//! ```
//!
//! What goes out meets its fate in front of the queue, where netem sits too: a lost packet takes no time on the line. A bit
//! flips behind the deparser, so that no stage makes it good.
//!
//! Owes the switch: what is held back is given out again in the order of its time, and of its coming where times are equal;
//! and the number of draws does not depend on which faults there are, so that two runs that differ in one lose the same packets.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::Nanos;
use super::config::{Fault, PortConfig, SwitchConfig};
use super::phv::{Phv, PortId};

/// A way through the link of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Into the switch.
    In(PortId),
    /// Out of it.
    Out(PortId),
}

impl Way {
    fn port(self) -> PortId {
        match self {
            Way::In(port) | Way::Out(port) => port,
        }
    }

    /// Number of the way in its link.
    fn number(self) -> usize {
        usize::from(matches!(self, Way::Out(_)))
    }

    fn is_faulty(self, fault: &Fault) -> bool {
        match self {
            Way::In(_) => fault.direction.is_in(),
            Way::Out(_) => fault.direction.is_out(),
        }
    }
}

/// What becomes of a packet on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It never comes.
    Lost,
    /// It comes.
    Kept {
        /// Held back so long.
        delay_ns: Nanos,
        /// Comes twice.
        twice: bool,
    },
}

/// The faulty links of a switch, and what they hold back.
#[derive(Debug)]
pub(super) struct Links<H> {
    /// By port, then in and out.
    ports: Vec<[Option<Link>; 2]>,
    held: BinaryHeap<Held<H>>,
    sequence: u64,
}

/// A packet that is held back.
#[derive(Debug)]
pub(super) struct Held<H> {
    at: Nanos,
    sequence: u64,
    pub(super) way: Way,
    pub(super) phv: Phv,
    pub(super) frame: H,
}

/// One way of one link.
#[derive(Debug)]
struct Link {
    fault: Fault,
    fates: ChaCha8Rng,
    bits: ChaCha8Rng,
}

impl<H> Links<H> {
    /// `None` when all links of `config` are sound.
    pub(super) fn new(config: &SwitchConfig) -> Option<Box<Self>> {
        config.ports.iter().find(|port| port.fault.is_some())?;
        let link = |way: Way, fault: Option<Fault>| {
            let fault = fault.filter(|fault| way.is_faulty(fault))?;
            let stream = |of: u64| {
                let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
                // Apart from RED's, which are the ports' numbers.
                rng.set_stream(1 << 32 | u64::from(way.port()) << 2 | (way.number() as u64) << 1 | of);
                rng
            };
            Some(Link { fault, fates: stream(0), bits: stream(1) })
        };
        let links =
            |(config, port): (&PortConfig, PortId)| [Way::In(port), Way::Out(port)].map(|way| link(way, config.fault));
        let ports = config.ports.iter().zip(0..).map(links).collect();
        Some(Box::new(Links { ports, held: BinaryHeap::new(), sequence: 0 }))
    }

    /// What becomes of the next packet that goes this way. Where the link is sound it comes at once.
    pub(super) fn fate(&mut self, way: Way) -> Fate {
        self.link(way).map_or(Fate::Kept { delay_ns: 0, twice: false }, Link::fate)
    }

    /// The bit to flip of a packet of `bytes` bytes; `None` for none.
    pub(super) fn corrupted_bit(&mut self, way: Way, bytes: u32) -> Option<u64> {
        self.link(way)?.corrupted_bit(bytes)
    }

    /// Holds a packet back until `at`.
    pub(super) fn hold(&mut self, at: Nanos, way: Way, phv: &Phv, frame: H) {
        self.sequence += 1;
        self.held.push(Held { at, sequence: self.sequence, way, phv: *phv, frame });
    }

    /// Takes out the next packet whose time has come.
    pub(super) fn release(&mut self, now: Nanos) -> Option<Held<H>> {
        self.next_release().filter(|at| *at <= now)?;
        self.held.pop()
    }

    /// When [`Links::release`] has the next packet.
    pub(super) fn next_release(&self) -> Option<Nanos> {
        self.held.peek().map(|held| held.at)
    }

    fn link(&mut self, way: Way) -> Option<&mut Link> {
        self.ports.get_mut(usize::from(way.port()))?[way.number()].as_mut()
    }
}

impl Link {
    fn fate(&mut self) -> Fate {
        let Link { fault, fates, .. } = self;
        let [lost, twice, early] = [fault.loss, fault.duplicate, fault.reorder].map(|p| hits(p, fates));
        let jitter = (u128::from(fates.next_u32()) * 2 * u128::from(fault.delay_jitter_ns)) >> 32;
        match (lost, early) {
            (true, _) => Fate::Lost,
            (false, true) => Fate::Kept { delay_ns: 0, twice },
            (false, false) => {
                let least_ns = fault.delay_ns.saturating_sub(fault.delay_jitter_ns);
                Fate::Kept { delay_ns: least_ns.saturating_add(jitter as Nanos), twice }
            }
        }
    }

    fn corrupted_bit(&mut self, bytes: u32) -> Option<u64> {
        let (hit, draw) = (hits(self.fault.corrupt, &mut self.bits), self.bits.next_u32());
        hit.then(|| (u64::from(draw) * u64::from(bytes) * 8) >> 32)
    }
}

/// One draw, which hits with a probability.
fn hits(probability: f64, rng: &mut ChaCha8Rng) -> bool {
    f64::from(rng.next_u32()) < probability * 4_294_967_296.0
}

impl<H> Held<H> {
    fn key(&self) -> (Nanos, u64) {
        (self.at, self.sequence)
    }
}

/// The first to come out is the greatest, as [`BinaryHeap`] wants it.
impl<H> Ord for Held<H> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<H> PartialOrd for Held<H> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<H> PartialEq for Held<H> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<H> Eq for Held<H> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::Direction;

    fn links_of(seed: u64, faults: &[Option<Fault>]) -> Option<Box<Links<u32>>> {
        let port = |fault: &Option<Fault>| PortConfig {
            name: String::new(),
            rate_bps: None,
            buffer_bytes: 0,
            red: None,
            pfc: None,
            fault: *fault,
        };
        Links::new(&SwitchConfig { buffer_bytes: 0, seed, ports: faults.iter().map(port).collect() })
    }

    fn links(fault: Fault) -> Box<Links<u32>> {
        links_of(1, &[Some(fault)]).expect("there is a fault")
    }

    const ALL: Fault = Fault {
        direction: Direction::Both,
        loss: 0.05,
        duplicate: 0.02,
        delay_ns: 10_000,
        delay_jitter_ns: 4_000,
        reorder: 0.1,
        corrupt: 0.03,
    };

    fn fates(links: &mut Links<u32>, way: Way) -> Vec<Fate> {
        (0..1000).map(|_| links.fate(way)).collect()
    }

    #[test]
    fn faults_are_as_frequent_as_they_are_said_to_be() {
        const N: usize = 100_000;
        let mut links = links(ALL);
        let fates: Vec<_> = (0..N).map(|_| links.fate(Way::In(0))).collect();
        let count = |what: fn(&Fate) -> bool| fates.iter().filter(|fate| what(fate)).count() as f64 / N as f64;
        let lost = count(|fate| *fate == Fate::Lost);
        assert!((0.047..0.053).contains(&lost), "5 % expected, {lost}");
        let twice = count(|fate| matches!(fate, Fate::Kept { twice: true, .. })) / (1.0 - lost);
        assert!((0.018..0.022).contains(&twice), "2 % of what is kept expected, {twice}");
        let early = count(|fate| matches!(fate, Fate::Kept { delay_ns: 0, .. })) / (1.0 - lost);
        assert!((0.096..0.104).contains(&early), "10 % of what is kept expected, {early}");
        let corrupted = (0..N).filter(|_| links.corrupted_bit(Way::In(0), 100).is_some()).count() as f64 / N as f64;
        assert!((0.028..0.032).contains(&corrupted), "3 % expected, {corrupted}");

        let delays = fates.iter().filter_map(|fate| match fate {
            Fate::Kept { delay_ns, .. } if *delay_ns > 0 => Some(*delay_ns),
            _ => None,
        });
        let (least, most) = (delays.clone().min(), delays.clone().max());
        assert!(least.is_some_and(|ns| (6_000..6_010).contains(&ns)), "{least:?}");
        assert!(most.is_some_and(|ns| (13_990..14_000).contains(&ns)), "{most:?}");
        let (sum, n) = delays.fold((0, 0), |(sum, n), ns| (sum + ns, n + 1));
        assert!((9_950..10_050).contains(&(sum / n)), "the mean is the delay: {}", sum / n);
    }

    #[test]
    fn certain_is_certain_and_impossible_is_impossible() {
        let mut sure = links(Fault { loss: 1.0, corrupt: 1.0, ..Fault::default() });
        assert!(fates(&mut sure, Way::Out(0)).iter().all(|fate| *fate == Fate::Lost));
        let bits: Vec<_> = (0..10_000).filter_map(|_| sure.corrupted_bit(Way::Out(0), 3)).collect();
        assert_eq!(bits.len(), 10_000);
        assert!((0..24).all(|bit| bits.iter().filter(|b| **b == bit).count() > 300), "each bit has its turn");
        assert!(bits.iter().all(|bit| *bit < 24));
        let mut never = links(Fault::default());
        let kept = Fate::Kept { delay_ns: 0, twice: false };
        assert!(fates(&mut never, Way::In(0)).iter().all(|fate| *fate == kept));
        assert!((0..1000).all(|_| never.corrupted_bit(Way::In(0), 100).is_none()));
    }

    #[test]
    fn the_same_seed_makes_the_same_faults_and_every_way_of_every_port_has_its_own() {
        let faults = [Some(ALL), Some(ALL)];
        let all = |seed| {
            let mut links = links_of(seed, &faults).expect("there are faults");
            [Way::In(0), Way::Out(0), Way::In(1), Way::Out(1)].map(|way| fates(&mut links, way))
        };
        assert_eq!(all(1), all(1));
        let streams = [all(1), all(2)].concat();
        for (index, stream) in streams.iter().enumerate() {
            assert!(!streams[..index].contains(stream));
        }
    }

    #[test]
    fn the_same_packets_are_lost_whatever_else_happens_to_them() {
        let lost = |fault| fates(&mut links(fault), Way::In(0)).iter().map(|f| *f == Fate::Lost).collect::<Vec<_>>();
        assert_eq!(lost(ALL), lost(Fault { loss: ALL.loss, ..Fault::default() }));
    }

    #[test]
    fn only_the_way_that_is_meant_is_faulty_and_sound_links_cost_nothing() {
        assert!(links_of(1, &[None, None]).is_none());
        let sure = |direction| Some(Fault { direction, loss: 1.0, ..Fault::default() });
        let mut links = links_of(1, &[sure(Direction::In), None, sure(Direction::Out)]).expect("there are faults");
        let mut lost = |way| links.fate(way) == Fate::Lost;
        assert_eq!([lost(Way::In(0)), lost(Way::Out(0))], [true, false]);
        assert_eq!([lost(Way::In(1)), lost(Way::Out(1))], [false, false]);
        assert_eq!([lost(Way::In(2)), lost(Way::Out(2))], [false, true]);
        assert!(!lost(Way::In(3)), "there is no port 3");
    }

    #[test]
    fn what_is_held_back_comes_out_in_order_of_time_and_of_its_coming() {
        let mut links = links(ALL);
        for (frame, at) in [(1, 50), (2, 30), (3, 50), (4, 10), (5, 30)] {
            links.hold(at, Way::In(0), &Phv::default(), frame);
        }
        assert_eq!(links.next_release(), Some(10));
        assert!(links.release(9).is_none());
        assert_eq!(links.release(10).map(|held| held.frame), Some(4));
        assert!(links.release(29).is_none());
        let order: Vec<_> = std::iter::from_fn(|| links.release(50)).map(|held| held.frame).collect();
        assert_eq!((order, links.next_release()), (vec![2, 5, 1, 3], None));
    }
}
