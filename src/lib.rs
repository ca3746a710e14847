//! A Linux software switch for distributed-training traffic.
//!
//! The house has six floors; a module imports only from floors below its own
//! (`tests/floors.rs` holds this):
//!
//! | floor | module | what it promises |
//! |---|---|---|
//! | 0 | [`wire`] | bytes <-> fields; never panics on any bytes |
//! | 0 | [`capture`] | pcap and pcapng files, read and written |
//! | 1 | [`dataplane`] | the switch itself: parser, stages, traffic manager, deparser. Pure: no I/O, clock, thread, lock, log, allocation per packet |
//! | 2 | [`functions`] | what runs in the stages: forwarding, Symphony, Serene. They do not know each other |
//! | 2 | [`roce`] | the hosts: RC queue pairs, DCQCN, ring collectives. Sans-I/O |
//! | 2 | [`worker`] | one rank of a job that aggregates in the switch. Sans-I/O |
//! | 2 | [`training`] | what the workers compute: a network, its gradients, minibatches, stragglers. Pure |
//! | 3 | [`backend`] | drivers that feed the pure core: AF_XDP, XDP, capture replay, UDP sockets. The only `unsafe` |
//! | 4 | [`control`] | configuration, control socket, telemetry |
//! | 5 | [`cli`] | one file a subcommand |

pub mod backend;
pub mod capture;
pub mod cli;
pub mod control;
pub mod dataplane;
pub mod functions;
pub mod roce;
pub mod training;
pub mod wire;
pub mod worker;
