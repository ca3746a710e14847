//! Every flow of request data in a capture, of known jobs or not, tracked as Symphony tracks those of its jobs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::classify::RocePacket;
use crate::functions::symphony::{
    CountCell, NewestCell, PsnCell, count_action, newest_action, psn_action, takes_psn_without_data,
};

/// A flow's name: source, destination, destination queue pair.
pub type FlowKey = (IpAddr, IpAddr, u32);

/// A flow's state.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    psn: PsnCell,
    /// Retransmissions.
    pub newest: NewestCell,
    /// Packets and messages.
    pub count: CountCell,
    /// For the PSNs that a READ takes: seen in the packets of messages of several.
    path_mtu_shift: u8,
}

/// A path MTU of 1024, until the flow shows its own.
const DEFAULT_PATH_MTU_SHIFT: u8 = 10;

/// The flows, in the order of their names.
#[derive(Clone, Debug)]
pub struct Flows {
    table: BTreeMap<FlowKey, Flow>,
    /// A gap that lasts longer is not going to be refilled.
    patience_ticks: u32,
}

impl Flows {
    /// None yet.
    pub fn new(patience_ticks: u32) -> Self {
        Flows { table: BTreeMap::new(), patience_ticks }
    }

    /// Tracks a packet.
    pub fn packet(&mut self, packet: &RocePacket, tick: u32) {
        let roce = &packet.roce;
        let is_data = roce.opcode.is_request_data();
        let key = (packet.src, packet.dst, roce.dest_qpn);
        let flow = match self.table.get_mut(&key) {
            Some(flow) if is_data || takes_psn_without_data(roce.opcode) => flow,
            None if is_data => self.table.entry(key).or_insert(Flow::new()),
            _ => return,
        };
        if is_data && !roce.opcode.is_message_end() {
            flow.learn_path_mtu(packet.payload_len);
        }
        let order = psn_action(&mut flow.psn, roce, flow.path_mtu_shift, None, tick, self.patience_ticks);
        if is_data {
            newest_action(&mut flow.newest, roce.psn);
            count_action(&mut flow.count, roce.opcode, order);
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&FlowKey, &Flow)> {
        self.table.iter()
    }
}

impl Flow {
    fn new() -> Self {
        Flow {
            psn: PsnCell::default(),
            newest: NewestCell::default(),
            count: CountCell::default(),
            path_mtu_shift: DEFAULT_PATH_MTU_SHIFT,
        }
    }

    /// First and middle packets carry a whole path MTU.
    fn learn_path_mtu(&mut self, payload_len: Option<usize>) {
        if let Some(bytes @ 256..=4096) = payload_len
            && bytes.is_power_of_two()
        {
            self.path_mtu_shift = bytes.ilog2() as u8;
        }
    }
}
