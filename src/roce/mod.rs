//! The hosts: RC queue pairs, DCQCN, ring collectives. Sans-I/O.
//!
//! An [`Endpoint`] is one rank's NIC with the collective on top. A driver hands it the packets that came
//! ([`Endpoint::on_packet`]), sends what it has ([`Endpoint::poll_transmit`]) and comes back when it wants
//! ([`Endpoint::next_timeout`]): over UDP sockets in `backend::host`, over a modelled fabric in the simulator, where
//! thousands of ranks run without payload. Nothing here stores or copies a packet: what must be sent again is known by its
//! range of PSNs.

pub mod dcqcn;
