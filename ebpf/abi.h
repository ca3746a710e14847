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
#define MAX_JOBS	1024	/* slots; slot 0 is used */
#define MAX_EDGES	65536
#define MAX_FLOWS	16384	/* flow slots */

/* struct packet_metadata.flags */
#define META_TRACKED	(1 << 0)	/* tracking ran: job and flow of known edges are filled in */
#define META_DATA	(1 << 1)	/* step, progress and lead are valid */
#define META_ARMED	(1 << 2)	/* the job may be marked */

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

struct edge_key {
	__u8 src[16];
	__u8 dst[16];
};

struct edge {
	__u16 job;		/* slot */
	__u16 rank;		/* of the sender in the ring */
};

struct flow_key {
	__u8 src[16];
	__u8 dst[16];
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
	__u16 reserved;
	__u32 steps_per_collective;
	__u32 packets_per_step;		/* 0: not known */
	__u32 reciprocal;		/* ceil(2^32 / packets_per_step), saturating */
	__u32 idle_ticks;		/* idle time after which the counters restart together; a tick is 1024 ns */
};
#endif
