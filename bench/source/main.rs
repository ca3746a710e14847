//! The packet source and the sink of `bench/forward.sh`, which says what is measured. `source.bpf.c` does the work.
//!
//! Prints a line for each size and number of flows: size, flows, packets received in a second, and per cent of the
//! source's attempts that found the window full (near 0: the source was the limit, not the switch).

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, TC_INGRESS, TcHookBuilder, set_print};
use symphony::backend::host;
use symphony::wire::Opcode;
use symphony::wire::roce::Repr;

const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// Calls of the source in one system call: some 20 ms. Each system call makes its frames anew.
const CALLS: u32 = 200_000;
/// Queue pairs of a run start here; those of the next run follow.
const FIRST_QPN: u32 = 0x100;
/// With ECT(0), as NCCL's usual traffic class has it.
const TOS: u8 = 0x6a;
/// In which flows get known and caches warm.
const WARM_UP: Duration = Duration::from_millis(30);

#[derive(Parser)]
struct Args {
    /// Of the namespaces that netns-scripts/up.sh made: from NAME-h1 to NAME-h2
    #[arg(long, value_name = "NAME")]
    prefix: String,
    /// RDMA payload bytes of a packet
    #[arg(long, value_delimiter = ',', default_value = "64,1024")]
    sizes: Vec<u32>,
    /// Numbers of flows, powers of two
    #[arg(long, value_delimiter = ',', default_value = "1,64,4096")]
    flows: Vec<u32>,
    /// Milliseconds to measure each
    #[arg(long, default_value_t = 300)]
    milliseconds: u64,
    /// Packets on their way at most: a veth's ring holds 256
    #[arg(long, default_value_t = 256)]
    window: u32,
    /// Milliseconds of silence after the warm-up, longer than the job's `idle`, after which the job may be marked
    #[arg(long, default_value_t = 30)]
    silence: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    set_print(None); // what matters comes back as an error
    let object = ObjectBuilder::default()
        .open_memory(include_bytes!(concat!(env!("OUT_DIR"), "/source.bpf.o")))?
        .load()
        .context("the kernel refuses the packet source; it needs root and Linux 5.18 or newer")?;

    enter(&args.prefix, "h2")?;
    teach("10.0.0.2", "10.0.0.1").context("cannot send from h2")?;
    attach_sink(&object)?;
    enter(&args.prefix, "h1")?;
    Source { object: &object, ifindex: interface_index("eth0")?, args: &args }.run()
}

fn enter(prefix: &str, host: &str) -> Result<()> {
    let name = format!("{prefix}-{host}");
    host::netns::enter(&name).with_context(|| format!("cannot enter the network namespace {name}"))
}

/// Of the namespace that this thread is in: sysfs would show the one it was mounted in.
fn interface_index(name: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(name).with_context(|| format!("no interface {name}"))
}

/// Lets the switch learn where the receiver is.
fn teach(from: &str, to: &str) -> std::io::Result<()> {
    UdpSocket::bind((from, 0))?.send_to(b"", (to, 9)).map(drop)
}

/// Lets h2 count and drop all that comes in. It stays there until the next source's sink takes its place, or the namespace
/// goes.
fn attach_sink(object: &Object) -> Result<()> {
    let program = object.progs().find(|program| program.name() == "sink").context("no sink")?;
    let mut hook = TcHookBuilder::new(program.as_fd())
        .ifindex(interface_index("eth0")? as i32)
        .replace(true)
        .handle(1)
        .priority(1)
        .hook(TC_INGRESS);
    hook.create().and_then(|mut hook| hook.attach()).context("cannot attach the sink to h2's eth0")?;
    Ok(())
}

struct Source<'a> {
    object: &'a Object,
    ifindex: u32,
    args: &'a Args,
}

/// `struct counts` of `source.bpf.c`, as far as it is read.
struct Counts {
    sent: u64,
    refused: u64,
    lost: u64,
    received: u64,
}

impl Source<'_> {
    fn run(&self) -> Result<()> {
        let mut first_qpn = FIRST_QPN;
        for &flows in &self.args.flows {
            for &size in &self.args.sizes {
                self.measure(size, flows, first_qpn)?;
                first_qpn += flows;
            }
        }
        Ok(())
    }

    fn measure(&self, size: u32, flows: u32, first_qpn: u32) -> Result<()> {
        ensure!(flows.is_power_of_two(), "{flows} flows: a power of two is needed");
        let plan = [self.ifindex, first_qpn, flows.trailing_zeros(), size, self.args.window, 0];
        self.map("plan")?.update(&[0; 4], &words(&plan.map(u32::to_ne_bytes)), MapFlags::ANY)?;
        let counts = [0, 0, 0, 0, host::now(), 0];
        self.map("counts")?.update(&[0; 4], &words(&counts.map(u64::to_ne_bytes)), MapFlags::ANY)?;

        let frame = frame(size)?;
        self.send(&frame, WARM_UP)?;
        std::thread::sleep(Duration::from_millis(self.args.silence));
        self.send(&frame, WARM_UP)?;

        let (before, start) = (self.counts()?, Instant::now());
        self.send(&frame, Duration::from_millis(self.args.milliseconds))?;
        let (after, took) = (self.counts()?, start.elapsed());
        std::thread::sleep(Duration::from_millis(self.args.silence));
        let (sent, refused) = (after.sent - before.sent, after.refused - before.refused);
        println!(
            "{size} {flows} {:.0} {:.1} {}",
            (after.received - before.received) as f64 / took.as_secs_f64(),
            100.0 * refused as f64 / (sent + refused) as f64,
            after.lost - before.lost
        );
        Ok(())
    }

    /// Sends as much as the window lets, until the time is over.
    fn send(&self, frame: &[u8], time: Duration) -> Result<()> {
        let source = self.object.progs_mut().find(|program| program.name() == "source").context("no source")?;
        let until = Instant::now() + time;
        while Instant::now() < until {
            let (data_in, flags) = (Some(frame), BPF_F_TEST_XDP_LIVE_FRAMES);
            source
                .test_run(ProgramInput { data_in, flags, repeat: CALLS, ..ProgramInput::default() })
                .context("the kernel does not run the packet source; it needs Linux 5.18 or newer")?;
        }
        Ok(())
    }

    fn counts(&self) -> Result<Counts> {
        let bytes = self.map("counts")?.lookup(&[0; 4], MapFlags::ANY)?.context("no counts")?;
        let (words, _) = bytes.as_chunks::<8>();
        let [sent, refused, lost, received, ..] = words else { anyhow::bail!("counts of {} bytes", bytes.len()) };
        let [sent, refused, lost, received] = [sent, refused, lost, received].map(|word| u64::from_ne_bytes(*word));
        Ok(Counts { sent, refused, lost, received })
    }

    fn map(&self, name: &str) -> Result<impl MapCore> {
        self.object.maps().find(|map| map.name() == name).with_context(|| format!("no map {name}"))
    }
}

fn words<const N: usize>(words: &[[u8; N]]) -> Vec<u8> {
    words.concat()
}

/// What the source fills in: a WRITE_MIDDLE between the two hosts. Its ICRC is that of the template, which no switch reads.
fn frame(payload_bytes: u32) -> Result<Vec<u8>> {
    let payload = vec![0; payload_bytes as usize];
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let repr =
        Repr { tos: TOS, sport: 0xc000, payload_len: payload.len(), ..Repr::new(src, dst, Opcode::WRITE_MIDDLE, 0) };
    let mut frame = vec![0; payload.len() + 128];
    let len = repr
        .emit_frame([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], &payload, &mut frame)
        .map_err(|error| anyhow::anyhow!("{payload_bytes} bytes do not fit a packet: {error:?}"))?;
    frame.truncate(len);
    Ok(frame)
}
