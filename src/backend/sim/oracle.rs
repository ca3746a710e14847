//! A switch that knows everything: each port sends the packet with the least lead over its own job's true minimum.
//!
//! It has endless buffers and marks nothing. No switch can be built so; it says how much an order of packets can gain.

use std::collections::VecDeque;

use super::node::{Node, Progress};
use super::packet::Transport;
use super::results::Results;
use super::topology::serialisation_ps;
use crate::dataplane::{Cx, Departure, Function, Nanos, NoBytes, NoTrace, Phv, PortId, PortSet, SwitchConfig, Verdict};

/// Packets of one flow that wait for one port, in their order.
struct Waiting<H> {
    /// Flow as the hosts number it; priority packets and foreign traffic come first.
    flow: Option<u32>,
    packets: VecDeque<(Phv, H)>,
}

struct Port<H> {
    bps: u64,
    free_ps: u64,
    flows: Vec<Waiting<H>>,
    data_bytes: u64,
    max_bytes: u64,
}

/// The switch.
pub(super) struct Oracle<F, H> {
    forward: F,
    ports: Vec<Port<H>>,
    backlog: PortSet,
    passes: u64,
}

impl<F, H> Oracle<F, H> {
    /// `forward` is a function whose ingress says where packets go.
    pub(super) fn new(config: &SwitchConfig, forward: F) -> Self {
        let port = |bps: Option<u64>| Port {
            bps: bps.unwrap_or(u64::MAX),
            free_ps: 0,
            flows: Vec::new(),
            data_bytes: 0,
            max_bytes: 0,
        };
        Oracle {
            forward,
            ports: config.ports.iter().map(|config| port(config.rate_bps)).collect(),
            backlog: PortSet::default(),
            passes: 0,
        }
    }
}

impl<W: Transport, F: Function> Node<W> for Oracle<F, W::Handle> {
    fn arrive(&mut self, port: PortId, now: Nanos, phv: &Phv, frame: W::Handle, wire: &mut W, progress: &Progress) {
        let mut phv = Phv { ingress_port: port, ..*phv };
        self.passes += 1;
        let mut emissions = Vec::new();
        let mut cx = Cx { now, pass: self.passes, trace: &mut NoTrace, emissions: &mut emissions, frame: &mut NoBytes };
        let Verdict::Forward(out) = self.forward.ingress(&mut cx, &mut phv) else { return wire.free(frame) };
        let own = &mut self.ports[usize::from(out)];
        let flow = if phv.is_priority() { None } else { progress.flow(&phv) };
        own.data_bytes += u64::from(phv.frame_bytes);
        own.max_bytes = own.max_bytes.max(own.data_bytes);
        self.backlog = self.backlog.with(out);
        match own.flows.iter_mut().find(|waiting| waiting.flow == flow) {
            Some(waiting) => waiting.packets.push_back((phv, frame)),
            None => own.flows.push(Waiting { flow, packets: VecDeque::from([(phv, frame)]) }),
        }
    }

    fn dequeue(&mut self, port: PortId, now: Nanos, _: &mut W, progress: &Progress) -> Option<Departure<W::Handle>> {
        let own = self.ports.get_mut(usize::from(port))?;
        let lead = |waiting: &Waiting<W::Handle>| match (waiting.flow, waiting.packets.front()) {
            (Some(flow), Some((phv, _))) => progress.lead(flow, phv),
            _ => i64::MIN,
        };
        let choice = (0..own.flows.len()).min_by_key(|&i| lead(&own.flows[i]))?;
        let (phv, frame) = own.flows[choice].packets.pop_front()?;
        if own.flows[choice].packets.is_empty() {
            own.flows.remove(choice);
        }
        if own.flows.is_empty() {
            self.backlog = self.backlog.without(port);
        }
        own.data_bytes -= u64::from(phv.frame_bytes);
        own.free_ps = own.free_ps.max(now * 1000) + serialisation_ps(phv.frame_bytes, own.bps);
        let ends_at = own.free_ps.div_ceil(1000);
        Some(Departure { frame, phv, port, at: now, ends_at, depth_bytes: own.data_bytes, red: false })
    }

    fn next_departure(&self, port: PortId) -> Option<Nanos> {
        let own = self.ports.get(usize::from(port))?;
        (!own.flows.is_empty()).then(|| own.free_ps.div_ceil(1000))
    }

    fn backlog(&self) -> PortSet {
        self.backlog
    }

    fn pause(&mut self, _: PortId, _: Nanos, _: bool) {}

    fn take_pauses(&mut self) -> impl Iterator<Item = (PortId, bool)> + use<W, F> {
        std::iter::empty()
    }

    fn report(&self, results: &mut Results) {
        let deepest = self.ports.iter().map(|port| port.max_bytes).max().unwrap_or(0);
        results.max_queue_bytes = results.max_queue_bytes.max(deepest);
    }
}
