//! The switch: the dataplane's own, with that simulator's ECMP, behind lines that round each packet to whole nanoseconds.

use super::super::node::{Functions, Node, Progress};
use super::super::packet::Transport;
use super::super::results::Results;
use super::super::topology::{End, Plan};
use super::{line_ns, node};
use crate::dataplane::{
    Cx, Departure, DropReason, Function, IpAddress, Nanos, Phv, PortId, PortSet, Switch, SwitchConfig, Tracer, Verdict,
};

/// Shortest paths by hop count, and of several the one that the hash picks.
#[derive(Clone, Debug)]
pub(super) struct Ecmp {
    /// By destination node.
    next_hops: Vec<Vec<PortId>>,
    /// The switch's own node number.
    seed: u32,
}

impl Ecmp {
    /// That of every switch. `nodes` are the numbers of the hosts; switches are numbered behind them.
    pub(super) fn all(plan: &Plan, nodes: &[u32]) -> Vec<Ecmp> {
        let own = |number: u32| Ecmp { next_hops: vec![Vec::new(); nodes.len()], seed: nodes.len() as u32 + number };
        let mut all: Vec<Ecmp> = (0..plan.switches.len() as u32).map(own).collect();
        for (host, &node) in nodes.iter().enumerate() {
            // Breadth first from the host, neighbours in the order of their numbers.
            let (first, port) = plan.hosts[host];
            let mut distance = vec![u32::MAX; plan.switches.len()];
            distance[first as usize] = 1;
            all[first as usize].next_hops[node as usize].push(port);
            let mut queue = vec![first];
            let mut at = 0;
            while let Some(&via) = queue.get(at) {
                at += 1;
                let mut neighbours: Vec<(u32, PortId)> =
                    plan.switches[via as usize].ends.iter().filter_map(switch).collect();
                neighbours.sort_unstable();
                for (next, port) in neighbours {
                    if distance[next as usize] == u32::MAX {
                        distance[next as usize] = distance[via as usize] + 1;
                        queue.push(next);
                    }
                    if distance[next as usize] == distance[via as usize] + 1 {
                        all[next as usize].next_hops[node as usize].push(port);
                    }
                }
            }
        }
        all
    }

    fn choose(&self, phv: &Phv) -> Option<PortId> {
        match self.next_hops.get(node(&phv.dst)? as usize)?.as_slice() {
            [only] => Some(*only),
            hops => {
                let ports = u32::from(phv.sport) | u32::from(phv.dport) << 16;
                let hash = murmur3([v4(&phv.src), v4(&phv.dst), ports], self.seed);
                hops.get(hash as usize % hops.len().max(1)).copied()
            }
        }
    }
}

fn switch(end: &End) -> Option<(u32, PortId)> {
    match *end {
        End::Switch(switch, port) => Some((switch, port)),
        End::Host(_) => None,
    }
}

fn v4(address: &IpAddress) -> u32 {
    u32::from_be_bytes([address[12], address[13], address[14], address[15]])
}

/// MurmurHash3 (Appleby, x86 32 bit) of three words.
fn murmur3(words: [u32; 3], seed: u32) -> u32 {
    let mut hash = seed;
    for word in words {
        hash ^= word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    hash ^= 12;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

impl Function for Ecmp {
    #[inline]
    fn ingress<T: Tracer>(&mut self, _: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        self.choose(phv).map_or(Verdict::Drop(DropReason::NoRoute), Verdict::Forward)
    }
}

/// A switch whose lines are here: each packet takes whole nanoseconds.
pub(super) struct WholeNanos<F, H> {
    switch: Switch<F, H>,
    lines: Vec<Line>,
}

struct Line {
    bps: u64,
    free_at: Nanos,
    /// A packet is on it, and its end is an event of its own: what comes at the same time is in the queue by then.
    sending: bool,
}

impl<F: Function, H> WholeNanos<F, H> {
    pub(super) fn new(config: &SwitchConfig, functions: F) -> Self {
        let line = |bps: Option<u64>| Line { bps: bps.unwrap_or(u64::MAX), free_at: 0, sending: false };
        let lines = config.ports.iter().map(|port| line(port.rate_bps)).collect();
        let mut unpaced = config.clone();
        unpaced.ports.iter_mut().for_each(|port| port.rate_bps = None);
        WholeNanos { switch: Switch::new(&unpaced, functions), lines }
    }
}

impl<W: Transport, F: Functions> Node<W> for WholeNanos<F, W::Handle> {
    #[inline]
    fn arrive(&mut self, port: PortId, now: Nanos, phv: &Phv, frame: W::Handle, wire: &mut W, progress: &Progress) {
        self.switch.arrive(port, now, phv, frame, wire, progress);
    }

    #[inline]
    fn dequeue(&mut self, port: PortId, now: Nanos, wire: &mut W, progress: &Progress) -> Option<Departure<W::Handle>> {
        let line = self.lines.get_mut(usize::from(port)).filter(|line| line.free_at <= now)?;
        line.sending = false;
        let mut departure = Node::dequeue(&mut self.switch, port, now, wire, progress)?;
        line.sending = true;
        line.free_at = now + line_ns(departure.phv.frame_bytes, line.bps);
        departure.ends_at = line.free_at;
        Some(departure)
    }

    #[inline]
    fn next_departure(&self, port: PortId) -> Option<Nanos> {
        let line = self.lines.get(usize::from(port))?;
        if line.sending { Some(line.free_at) } else { self.switch.next_departure(port) }
    }

    #[inline]
    fn backlog(&self) -> PortSet {
        self.switch.backlog()
    }

    fn pause(&mut self, port: PortId, now: Nanos, paused: bool) {
        self.switch.pause(port, now, paused);
    }

    fn take_pauses(&mut self) -> impl Iterator<Item = (PortId, bool)> + use<W, F> {
        self.switch.take_pauses()
    }

    fn report(&self, results: &mut Results) {
        Node::<W>::report(&self.switch, results);
    }
}

#[cfg(test)]
mod tests {
    use super::super::address;
    use super::*;

    #[test]
    fn the_hash_is_murmur3() {
        let words = [*b"Hell", *b"o, w", *b"orld"].map(u32::from_le_bytes);
        assert_eq!(murmur3(words, 1234), 0x584d_5953);
    }

    #[test]
    fn addresses_name_their_nodes() {
        for number in [0, 1, 255, 256, 700] {
            assert_eq!(node(&address(number)), Some(number));
        }
    }
}
