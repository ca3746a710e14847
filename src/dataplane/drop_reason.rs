// The only list of reasons for which a packet can be dropped. `build.rs` includes this file to write the C header
// of the kernel side, so it may use nothing but `core`.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $label:literal,)*) => {
        /// Why a packet was dropped. Metric label, JSON key, trace text, pcapng comment and the kernel side's
        /// `enum drop_reason` are all made from this list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $variant,)* }

        impl DropReason {
            /// Every reason, in the order of its number.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)*];

            /// The reason's name outside of Rust: lower case, underscores.
            pub const fn label(self) -> &'static str {
                match self { $(DropReason::$variant => $label,)* }
            }
        }
    };
}

drop_reasons! {
    /// The frame ends before its Ethernet header does.
    Runt = "runt",
    /// A link-local control frame (802.1D/802.1Q reserved 01:80:C2:00:00:0x: STP, PAUSE, PFC) that a bridge must not forward.
    LinkLocal = "link_local",
    /// The source MAC is a group address, which no station may use (IEEE 802.3 3.2.3).
    BadSourceMac = "bad_source_mac",
    /// The destination is on the port that the frame came from.
    SamePort = "same_port",
    /// No route, and the mode does not flood.
    NoRoute = "no_route",
    /// IPv4 TTL or IPv6 hop limit ran out in L3 forwarding.
    TtlExpired = "ttl_expired",
    /// The port's own buffer limit is reached.
    TailDrop = "tail_drop",
    /// The buffer that all ports share is full.
    BufferFull = "buffer_full",
    /// The headroom of the ingress port is full: its neighbour sent on although it was paused, or too much was on its way.
    HeadroomFull = "headroom_full",
    /// No free frame for a replica of a flooded or multicast packet, or for one that a function emits.
    NoFrame = "no_frame",
    /// The egress port is down or gone.
    PortDown = "port_down",
    /// The frame is longer than the egress port's frame buffer carries.
    TooLong = "too_long",
    /// Kernel side: no socket is bound to the queue that the frame came in on.
    NoSocket = "no_socket",
    /// Kernel side: no room before the frame for the metadata.
    NoHeadroom = "no_headroom",
    /// The transmit ring stayed full for too long; the peer does not drain it.
    TxStalled = "tx_stalled",
    /// A function of the switch decided so.
    Function = "function",
    /// The port's link was told to lose packets, or to corrupt one that has no bytes.
    FaultLoss = "fault_loss",
    /// Sent to the aggregation service, and no aggregation packet: version, type or length are wrong.
    AggregationMalformed = "aggregation_malformed",
    /// Sent to the aggregation service, and damaged on its way: the IPv4 or UDP checksum is wrong.
    AggregationCorrupted = "aggregation_corrupted",
    /// An aggregation packet of a type that its sender may not send: an answer, or a controller's not by the CPU port.
    NotControl = "not_control",
    /// An aggregation packet of the control plane, or a copy of an answer, of a job that is not there. Workers are told.
    UnknownJob = "unknown_job",
    /// An aggregation packet whose worker is not of its job, or sent from another address.
    NotMember = "not_member",
    /// A contribution to a segment that the job does not have.
    BadSegment = "bad_segment",
    /// A contribution with another number of lanes than the job's segments have.
    BadLanes = "bad_lanes",
    /// A contribution to round 0, or to one of 2^31 or above.
    BadRound = "bad_round",
    /// A contribution to a round further ahead of what its worker has seen than the rule allows.
    Premature = "premature",
}
