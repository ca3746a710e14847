//! Events of the pipeline, recorded and put into the form of the trace.

use serde::Serialize;

use crate::dataplane::{Event, PortId, Tracer};

/// Keeps the events of one pass.
#[derive(Debug, Default)]
pub struct Recorder(Vec<Event>);

impl Tracer for Recorder {
    const ENABLED: bool = true;

    fn event(&mut self, event: Event) {
        self.0.push(event);
    }
}

impl Recorder {
    /// The events since the last call.
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.0)
    }
}

/// Cuts `events` behind its first drop and returns the rest: egress may drop several packets before one departs.
pub fn split_after_drop(events: &mut Vec<Event>) -> Vec<Event> {
    let drop_at = events.iter().position(|event| matches!(event, Event::Drop(_)));
    events.split_off(drop_at.map_or(events.len(), |at| at + 1))
}

/// One pass through ingress or egress. Numbers that are 64 bits wide in a register are given as two 32-bit words, the
/// first one first, since JSON readers lose bits of longer ones.
#[derive(Debug, Default, Serialize)]
pub struct Pass {
    /// The stages, in order.
    stages: Vec<Stage>,
    /// Queues that the packet was put into, with the bytes in the port's data queue with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    enqueued: Vec<Depth>,
    /// The queue that it was taken from, with the bytes left behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    dequeued: Option<Depth>,
    /// Whether RED hit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    red: Option<bool>,
    /// Who set CE: "red", "symphony" or "both".
    #[serde(skip_serializing_if = "Option::is_none")]
    marked: Option<&'static str>,
    /// Reasons for which it, or a replica, was dropped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dropped: Vec<&'static str>,
    /// It ended in the switch, as every packet does where there are no ports.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    consumed: bool,
}

#[derive(Debug, Serialize)]
struct Depth {
    port: PortId,
    depth_bytes: u64,
}

#[derive(Debug, Default, Serialize)]
struct Stage {
    stage: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tables: Vec<Table>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    registers: Vec<Access>,
}

#[derive(Debug, Serialize)]
struct Table {
    table: &'static str,
    hit: bool,
}

/// The one read-modify-write of a register.
#[derive(Debug, Serialize)]
struct Access {
    register: &'static str,
    index: u32,
    read: [u32; 2],
    written: [u32; 2],
}

impl Pass {
    /// From the events of a pass.
    pub fn new(events: &[Event]) -> Self {
        let mut pass = Pass::default();
        for event in events {
            match *event {
                Event::Stage { name, .. } => pass.stages.push(Stage { stage: name, ..Stage::default() }),
                Event::Table { name, hit } => pass.stage().tables.push(Table { table: name, hit }),
                Event::Register { name, index, old, new } => {
                    let access = Access { register: name, index, read: words(old), written: words(new) };
                    pass.stage().registers.push(access);
                }
                Event::Enqueue { port, depth_bytes } => pass.enqueued.push(Depth { port, depth_bytes }),
                Event::Dequeue { port, depth_bytes, red } => {
                    pass.dequeued = Some(Depth { port, depth_bytes });
                    pass.red = Some(red);
                }
                Event::Mark { .. } => {}
                Event::Drop(reason) => pass.dropped.push(reason.label()),
                Event::Consume => pass.consumed = true,
            }
        }
        pass.marked = marked_by(events);
        pass
    }

    /// The stage in hand.
    fn stage(&mut self) -> &mut Stage {
        if self.stages.is_empty() {
            self.stages.push(Stage::default());
        }
        let last = self.stages.len() - 1;
        &mut self.stages[last]
    }
}

fn words(cell: u64) -> [u32; 2] {
    [cell as u32, (cell >> 32) as u32]
}

/// Who set CE: "red", "symphony" or "both"; `None` when nobody did.
pub fn marked_by(events: &[Event]) -> Option<&'static str> {
    events.iter().find_map(|event| match event {
        Event::Mark { red: true, extra: true } => Some("both"),
        Event::Mark { red: true, .. } => Some("red"),
        Event::Mark { .. } => Some("symphony"),
        _ => None,
    })
}

/// The labels of the drops among the events.
pub fn drops(events: &[Event]) -> impl Iterator<Item = &'static str> {
    events.iter().filter_map(|event| match event {
        Event::Drop(reason) => Some(reason.label()),
        _ => None,
    })
}

/// Packets that were put into a queue.
pub fn enqueued(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Enqueue { .. })).count()
}
