//! The packet source and the sink of `bench/forward.sh`, which says what is measured. `source.bpf.c` does the work.
//!
//! Reads a line for each measurement, "SIZE FLOWS", and answers with one: packets received in a second, and per cent of the
//! source's attempts that found the window full (near 0: the source was the limit, not the switch), and packets lost.

use std::io::{BufRead, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, TC_INGRESS, TcHookBuilder, set_print};
use symphony::backend::host;
use symphony::wire::Opcode;
use symphony::wire::roce::Repr;

const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// Attempts of the source in a millisecond, about. A run is one system call, which takes a number of attempts and no time;
/// between two of them the kernel waits for an RCU grace period.
const ATTEMPTS_PER_MS: u32 = 12_000;
/// Queue pairs of the flows start here.
const FIRST_QPN: u32 = 0x100;
/// With ECT(0), as NCCL's usual traffic class has it.
const TOS: u8 = 0x6a;
/// In which flows get known.
const WARM_UP_MS: u32 = 20;

#[derive(Parser)]
struct Args {
    /// Of the namespaces that netns-scripts/up.sh made: from NAME-h1 to NAME-h2
    #[arg(long, value_name = "NAME")]
    prefix: String,
    /// Milliseconds to measure each, about
    #[arg(long, default_value_t = 150)]
    milliseconds: u32,
    /// Packets on their way at most. A veth's ring has 256 places, of which up to 16 may not be freed yet
    #[arg(long, default_value_t = 192)]
    window: u32,
    /// Milliseconds of silence between runs: longer than the job's `idle`, after which it may be marked
    #[arg(long, default_value_t = 20)]
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
    let receiver = UdpSocket::bind(("10.0.0.2", 0)).context("h2 does not have 10.0.0.2")?;
    attach_sink(&object)?;
    enter(&args.prefix, "h1")?;
    Source { object: &object, receiver, ifindex: interface_index("eth0")?, args: &args }.run()
}

fn enter(prefix: &str, host: &str) -> Result<()> {
    let name = format!("{prefix}-{host}");
    host::netns::enter(&name).with_context(|| format!("cannot enter the network namespace {name}"))
}

/// Of the namespace that this thread is in: sysfs would show the one it was mounted in.
fn interface_index(name: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(name).with_context(|| format!("no interface {name}"))
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
    /// In h2.
    receiver: UdpSocket,
    ifindex: u32,
    args: &'a Args,
}

/// `struct plan` of `source.bpf.c`.
type Plan = [u32; 6];

/// `struct counts` of `source.bpf.c`, as far as it is wanted.
struct Counts {
    took_ns: u64,
    sent: u64,
    refused: u64,
    lost: u64,
    received: u64,
}

impl Source<'_> {
    fn run(&self) -> Result<()> {
        for line in std::io::stdin().lock().lines() {
            let line = line?;
            let (size, flows) = line.split_once(' ').with_context(|| format!("{line:?} is not \"SIZE FLOWS\""))?;
            let counts = self.measure(size.parse()?, flows.parse()?)?;
            let mut out = std::io::stdout().lock();
            writeln!(
                out,
                "{:.0} {:.1} {}",
                counts.received as f64 * 1e9 / counts.took_ns as f64,
                100.0 * counts.refused as f64 / (counts.sent + counts.refused) as f64,
                counts.lost
            )?;
            out.flush()?;
        }
        Ok(())
    }

    /// `size` bytes of RDMA payload a packet, and a power of two of flows.
    fn measure(&self, size: u32, flows: u32) -> Result<Counts> {
        ensure!(flows.is_power_of_two(), "{flows} flows: a power of two is needed");
        let frame = frame(size)?;
        self.receiver.send_to(b"", ("10.0.0.1", 9)).context("cannot send from h2")?; // the forwarder learns where h2 is
        let mut plan = [self.ifindex, FIRST_QPN, flows.trailing_zeros(), size, self.args.window, 0];
        plan[5] = self.send(plan, &frame, WARM_UP_MS)?.sent as u32;
        self.send(plan, &frame, self.args.milliseconds)
    }

    /// Sends as much as the window lets, and is silent for a while.
    fn send(&self, plan: Plan, frame: &[u8], milliseconds: u32) -> Result<Counts> {
        self.map("plan")?.update(&[0; 4], &plan.map(u32::to_ne_bytes).concat(), MapFlags::ANY)?;
        self.map("counts")?.update(&[0; 4], &[0; 64], MapFlags::ANY)?;
        let source = self.object.progs_mut().find(|program| program.name() == "source").context("no source")?;
        let (data_in, flags, repeat) = (Some(frame), BPF_F_TEST_XDP_LIVE_FRAMES, milliseconds * ATTEMPTS_PER_MS);
        source
            .test_run(ProgramInput { data_in, flags, repeat, ..ProgramInput::default() })
            .context("the kernel does not run the packet source; it needs Linux 5.18 or newer")?;
        let counts = self.counts();
        std::thread::sleep(Duration::from_millis(self.args.silence));
        counts
    }

    fn counts(&self) -> Result<Counts> {
        let bytes = self.map("counts")?.lookup(&[0; 4], MapFlags::ANY)?.context("no counts")?;
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let [first_at, last_at, sent, refused, lost, _, received, _] = words[..] else {
            bail!("counts of {} bytes", bytes.len())
        };
        Ok(Counts { took_ns: last_at - first_at, sent, refused, lost, received })
    }

    fn map(&self, name: &str) -> Result<impl MapCore> {
        self.object.maps().find(|map| map.name() == name).with_context(|| format!("no map {name}"))
    }
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
