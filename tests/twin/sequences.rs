//! Random packet sequences through both.

use std::net::IpAddr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use symphony::dataplane::{Nanos, Step};
use symphony::functions::symphony::{Job, StepSource};

use super::frames::Packet;
use super::ring::{Sender, below, chance, pick};
use super::twins::Twins;

const SEQUENCES: u64 = 3000;

/// Says which sequence it was when a comparison fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("in sequence {}", self.0);
        }
    }
}

/// Things that must have happened for the comparison to mean something.
#[derive(Debug, Default)]
struct Seen {
    data: u64,
    armed: u64,
    ahead: u64,
    leaves: u64,
    withdrawals: u64,
}

#[test]
fn random_sequences_leave_both_in_the_same_state() {
    let _turn = super::turn();
    let Some(mut twins) = Twins::new() else { return };
    let mut seen = Seen::default();
    for seed in 0..SEQUENCES {
        let _seed = Seed(seed);
        Sequence::new(seed, &mut twins).run(&mut twins, &mut seen);
    }
    let outcomes = twins.symphony.outcomes();
    println!("{seen:?} {outcomes:?}");
    for (what, count) in [
        ("data", seen.data),
        ("armed", seen.armed),
        ("ahead", seen.ahead),
        ("leaves", seen.leaves),
        ("withdrawals", seen.withdrawals),
        ("not_roce", outcomes.not_roce),
        ("not_data", outcomes.not_data),
        ("not_of_a_job", outcomes.not_of_a_job),
        ("in_order", outcomes.in_order),
        ("old", outcomes.old),
        ("gap", outcomes.gap),
        ("resync", outcomes.resync),
    ] {
        assert!(count > SEQUENCES / 10, "{what} happened too rarely: {count}");
    }
}

struct Sequence {
    rng: ChaCha8Rng,
    jobs: Vec<Job>,
    senders: Vec<Sender>,
}

impl Sequence {
    fn new(seed: u64, twins: &mut Twins) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        twins.set_epoch(1 << (14 + below(&mut rng, 5)));
        let jobs: Vec<Job> = (0..1 + below(&mut rng, 3)).map(|id| random_job(&mut rng, id)).collect();
        let mut senders = Vec::new();
        for job in &jobs {
            twins.add_job(job);
            for (rank, src) in job.ring.iter().enumerate() {
                let dst = job.ring[(rank + 1) % job.ring.len()];
                senders.extend((0..1 + below(&mut rng, 2)).map(|_| Sender::new(&mut rng, *src, dst)));
            }
        }
        Sequence { rng, jobs, senders }
    }

    fn run(mut self, twins: &mut Twins, seen: &mut Seen) {
        for _ in 0..40 + below(&mut self.rng, 80) {
            for frame in self.act(twins) {
                let bridged = twins.feed(&frame).bridged;
                seen.data += u64::from(bridged.step == Step::Data);
                seen.armed += u64::from(bridged.armed);
                seen.ahead += u64::from(bridged.lead > 0);
                seen.leaves += u64::from(bridged.leaves && bridged.step == Step::Data);
                seen.withdrawals += u64::from(bridged.leaves && bridged.step == Step::None);
            }
        }
        twins.check_everything();
        for job in &self.jobs {
            twins.remove_job(job.id);
        }
        assert_eq!(twins.bench.kernel.flows(), [], "the flows go with their job");
    }

    /// What happens next, and the frames that come of it.
    fn act(&mut self, twins: &mut Twins) -> Vec<Vec<u8>> {
        let rng = &mut self.rng;
        let sender = below(rng, self.senders.len() as u32) as usize;
        let sender = &mut self.senders[sender];
        match below(rng, 100) {
            0..60 => return (0..1 + below(rng, 4)).map(|_| sender.next(rng).bytes()).collect(),
            60..65 => drop(sender.next(rng)), // lost before us
            65..73 => return sender.again(rng).iter().map(Packet::bytes).collect(),
            73..77 => return vec![sender.other(rng).bytes()],
            77..80 => return vec![sender.stray(*pick(rng, &[0x11, 0x81, 0x0d, 0x10, 0x12, 0x64, 0x65])).bytes()],
            80..83 => return vec![sender.stray(0x0a).bytes()], // clear-to-send
            83..85 => return vec![sender.stray(rng.next_u32() as u8).bytes()],
            85..87 => sender.restart(rng),
            87..91 => {
                let packet = sender.next(rng);
                return vec![mangled(rng, packet)];
            }
            91..93 => {
                let stranger = IpAddr::from([192, 0, 2, 1]);
                return vec![Packet { src: stranger, dst: stranger, ..Packet::default() }.bytes()];
            }
            93..95 => {
                let job = pick(rng, &self.jobs);
                let on = twins
                    .symphony
                    .job_slot(job.id)
                    .and_then(|slot| twins.symphony.job(slot))
                    .is_some_and(|j| j.1.enabled);
                twins.enable_job(job.id, !on);
            }
            95..96 => {
                let job = pick(rng, &self.jobs);
                twins.remove_job(job.id);
                twins.add_job(job);
            }
            _ => {
                // Around the limit at which the job counts as idle, to a tick or two.
                let job = pick(rng, &self.jobs);
                twins.pause(job.idle_ns.saturating_sub(4096) + Nanos::from(below(rng, 6000)));
            }
        }
        Vec::new()
    }
}

fn random_job(rng: &mut ChaCha8Rng, id: u32) -> Job {
    let ranks = 2 + below(rng, 3);
    let address = |rank| match id {
        0 => IpAddr::from([10, 0, 0, rank as u8]),
        1 => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 1, rank as u16]),
        _ => IpAddr::from([10, 0, 2, rank as u8]),
    };
    let step_source = *pick(rng, &[StepSource::Message, StepSource::Psn, StepSource::Imm, StepSource::UdpSport]);
    let sized = step_source == StepSource::Psn || chance(rng, 60);
    Job {
        id,
        name: String::new(),
        ring: (1..=ranks).map(address).collect(),
        step_source,
        requests_per_step: *pick(rng, &[1, 1, 2, 4]),
        packets_per_step: sized.then(|| 1 + below(rng, 9)),
        path_mtu: *pick(rng, &[256, 1024, 4096]),
        steps_per_collective: 1 + below(rng, 8),
        step_ns: None,
        idle_ns: Nanos::from(10_000 + below(rng, 50_000)),
        enabled: chance(rng, 90),
    }
}

/// Wrong in one of many ways, or only unusual.
fn mangled(rng: &mut ChaCha8Rng, mut packet: Packet) -> Vec<u8> {
    let tpid = *pick(rng, &[0x8100, 0x88a8, 0x9100]);
    match below(rng, 8) {
        0 => packet.tags = vec![tpid; 1 + below(rng, 3) as usize],
        1 => packet.fragment = rng.next_u32() as u16,
        2 => packet.header_words = below(rng, 16) as u8,
        3 => packet.ip_len = Some(below(rng, 120) as u16),
        4 => packet.udp_len = Some(below(rng, 80) as u16),
        5 => packet.padding = below(rng, 40) as usize,
        6 => {
            let mut bytes = packet.bytes();
            bytes.truncate(14 + below(rng, bytes.len() as u32 - 14) as usize);
            return bytes;
        }
        _ => {
            let mut bytes = packet.bytes();
            for _ in 0..1 + below(rng, 4) {
                let at = below(rng, bytes.len() as u32) as usize;
                bytes[at] = rng.next_u32() as u8;
            }
            return bytes;
        }
    }
    packet.bytes()
}
