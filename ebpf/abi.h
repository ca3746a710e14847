/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel side and userspace agree on: map values, metadata, counters.
 * Userspace gets the same layouts from BTF through the skeleton. Integers are in
 * host order; addresses are in network order, IPv4 mapped into IPv6.
 */
#ifndef SYMPHONY_ABI_H
#define SYMPHONY_ABI_H

#include "drop_reasons.h"	/* enum drop_reason, DROP_REASONS: made from the Rust list */

#define MAX_PORTS	64
#define MAX_QUEUES	16	/* receive queues of a port */
#define MAX_JOBS	1024	/* slots; slot 0 is used */
#define MAX_EDGES	65536
#define MAX_FLOWS	16384	/* flow slots */

/* struct packet_metadata.flags */
#define META_TRACKED	(1 << 0)	/* tracking ran: job and flow of known edges are filled in */
#define META_DATA	(1 << 1)	/* step, progress and lead are valid */
#define META_ARMED	(1 << 2)	/* the job may be marked */
#define META_LEAVES	(1 << 3)	/* the flow leaves the job's minimum with this packet */

/* 32 bytes before the packet. */
struct packet_metadata {
	__u64 received_at;	/* ns, CLOCK_MONOTONIC */
	__u32 progress;		/* 1/256 steps, before this packet */
	__s32 lead;		/* 1/256 steps */
	__u32 steps_done;	/* before this packet */
	__u32 flow;		/* slot */
	__u32 psn;		/* 24 bits; 0 when not RoCEv2 */
	__u16 job;		/* slot */
	__u8 opcode;		/* BTH opcode; 0 when not RoCEv2 */
	__u8 flags;		/* META_* */
};

/* Value of `ports`, whose key is the ingress ifindex. */
struct port {
	__u32 slot;		/* the switch's number of the port; below MAX_PORTS */
};

/* Key of `xsks`: port slot * MAX_QUEUES + receive queue. */

struct edge_key {
	__u8 src[16];
	__u8 dst[16];
};

struct edge {
	__u16 job;		/* slot */
	__u16 rank;		/* of the sender in the ring */
};

struct flow_key {
	struct edge_key edge;
	__u32 dest_qpn;
};

enum step_source {
	STEP_MESSAGE,
	STEP_PSN,
	STEP_IMM,
	STEP_UDP_SPORT,
};

/* Per job, written by userspace before its edges are. */
struct job_config {
	__u8 enabled;
	__u8 step_source;		/* enum step_source */
	__u8 epoch_shift;		/* epoch = 2^shift ns */
	__u8 path_mtu_shift;		/* path MTU = 2^shift bytes: PSNs that a READ takes */
	__u16 requests_per_step;	/* a power of two for STEP_IMM */
	__u8 request_shift;		/* log2(requests_per_step), STEP_IMM only */
	__u8 reserved;
	__u32 steps_per_collective;
	__u32 packets_per_step;		/* 0: not known */
	__u32 reciprocal;		/* ceil(2^32 / packets_per_step), saturating */
	__u32 idle_ticks;		/* idle time after which the counters restart together; a tick is 1024 ns */
};

enum flow_kind {
	KIND_UNKNOWN,		/* no message has ended yet */
	KIND_RING,		/* a message ended with an immediate */
	KIND_PLAIN,		/* messages end without one: clear-to-send, control */
};

/*
 * Per flow slot: registers, and whose they are. Each group of two words is one register
 * of the Rust stages, in the order in which a packet touches them. Written by the kernel,
 * read by userspace through mmap. All zero in a free slot.
 */
struct flow_state {
	__u32 expected;			/* next PSN; generation << PSN_BITS, 7 bits; PSN_VALID */
	__u32 gap_since;		/* tick | 1; 0: no gap */

	__u32 newest;			/* newest PSN | PSN_VALID */
	__u32 retransmitted;		/* packets whose PSN is not newer */

	__u32 packets;			/* data packets, retransmissions included */
	__u32 messages;			/* with-immediate ends, each once */

	__u16 requests_generation;
	__u16 requests;			/* of the step in hand */
	__u32 kind;			/* enum flow_kind */

	__u32 step_packets;		/* of the step in hand */
	__u16 packets_generation;
	__u16 tag;			/* low bits of the UDP source port, STEP_UDP_SPORT only */

	__u32 steps_done;
	__u16 steps_generation;
	__u16 in_collective;		/* steps */

	__u32 resyncs;
	__u32 last_tick;		/* of the last packet, for ageing */

	__u32 reserved[2];		/* up to a cache line */

	struct flow_key key;
	__u16 job;			/* slot; says of a known flow what `edges` says of a new one */
	__u16 reserved_too;
	__u32 in_use;			/* set when key, job and last_tick are */
	__u32 reserved_last[5];		/* up to a pair of lines, which are fetched together */
};

#define PSN_BITS	24
#define PSN_VALID	(1u << 31)

/* Generation of a job that was just added or switched on; zeroed flows never match it. */
#define UNARMED		1

/* Per job slot; registers as above. */
struct job_state {
	__u32 last_tick;	/* activity: of the last data packet */
	__u32 generation;	/* UNARMED, then how often the counters restarted */

	__u32 epoch;		/* E: of the last packet that took part */
	__u32 epoch_generation;

	__u32 min;		/* M: progress of the laggard, 1/256 steps */
	__u32 owner;		/* its flow slot + 1; 0: nobody */
};

/*
 * Per CPU. `redirected` and the drops add up to what came in; the next group counts
 * each of them once more by what tracking made of it.
 */
struct stats {
	__u64 redirected;	/* handed to a socket */
	__u64 drops[DROP_REASONS];

	__u64 not_roce;		/* no RoCEv2 packet */
	__u64 not_data;		/* ACK, CNP, READ response ..: takes no PSN of the request direction */
	__u64 not_of_a_job;	/* no edge of a job that is enabled, or a READ of an unknown flow */
	__u64 flows_full;	/* new flow, but no slot is free */
	__u64 in_order;
	__u64 old;		/* retransmission */
	__u64 gap;		/* loss before us: nothing counted until it is refilled */
	__u64 resync;		/* not the expected PSN, but taken as such */

	__u64 cas_lost;		/* the job's minimum was contended; this packet's progress is not in it */
};
#endif
