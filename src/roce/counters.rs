//! What an endpoint counts.

use serde::Serialize;

use crate::dataplane::Nanos;

/// Counters of one rank. Bytes are frame bytes without FCS, but for `data_bytes_*` and `retransmitted_bytes`: payload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets sent, of every kind.
    pub packets_sent: u64,
    /// Their frame bytes.
    pub bytes_sent: u64,
    /// Packets received for this rank's queue pairs.
    pub packets_received: u64,
    /// Their frame bytes.
    pub bytes_received: u64,
    /// RDMA WRITE packets sent, retransmissions included.
    pub data_packets_sent: u64,
    /// Their payload.
    pub data_bytes_sent: u64,
    /// RDMA WRITE packets that came in order, each once.
    pub data_packets_received: u64,
    /// Their payload.
    pub data_bytes_received: u64,
    /// Packets sent again.
    pub retransmitted_packets: u64,
    /// Their payload.
    pub retransmitted_bytes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// NAKs sent.
    pub naks_sent: u64,
    /// NAKs received.
    pub naks_received: u64,
    /// Data packets that came with CE.
    pub ce_received: u64,
    /// CNPs sent.
    pub cnps_sent: u64,
    /// CNPs received.
    pub cnps_received: u64,
    /// Data packets that had come before.
    pub duplicates: u64,
    /// Data packets ahead of a gap, thrown away.
    pub out_of_order: u64,
    /// Packets for a queue pair or from an address that this rank does not know (an earlier run, another job).
    pub unknown: u64,
    /// Packets that a queue pair could not use.
    pub unexpected: u64,
    /// Most that the driver was late for a data packet, beyond what pacing asked.
    pub late_max_ns: Nanos,
    /// Sending time lost because the driver was later than the pacing credit covers.
    pub late_lost_ns: Nanos,
}
