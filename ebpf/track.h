/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The registers of a flow. Twin of src/functions/symphony/{track,step}.rs.
 *
 * A flow comes in on one CPU at a time; should the scheduler move it, a count may be lost.
 */
#ifndef SYMPHONY_TRACK_H
#define SYMPHONY_TRACK_H

#include <stdbool.h>
#include "abi.h"
#include "parse.h"

#define TICK_SHIFT	10	/* a tick is 1024 ns */
#define PATIENCE_SHIFT	4	/* a gap is given up after 2^4 epochs */
#define PSN_MASK	((1u << PSN_BITS) - 1)
#define PSN_HALF	(1u << (PSN_BITS - 1))	/* from here on a difference is negative */
#define GENERATION_MASK	0x7f
#define TAG_BITS	14
#define TAG_MASK	((1u << TAG_BITS) - 1)

/* A packet's place in its flow, as a go-back-N responder sees it. */
enum order {
	IN_ORDER,
	OLD,
	GAP,		/* some before it are missing; they will come again, and this one after them */
	RESYNC,		/* not the expected one, but the flow is not going to send that one again */
};

/* What is known of the packet in hand. */
struct packet {
	const struct roce *roce;
	const struct job_config *job;
	__u32 tick;
	__u32 generation;	/* of the job */
	bool data;
	bool advance;		/* it moves its flow on */
	bool takes_part;	/* it is ring traffic */
	bool withdraw;		/* its flow was taken for ring traffic until now, and is not */
	bool end;		/* it ends a with-immediate message, for the first time */
	bool step_end;		/* it ends a step */
};

static __always_inline bool has(const struct packet *p, __u64 opcodes)
{
	return is_in(p->roce->opcode, opcodes);
}

/* PSNs that a request takes: one a packet, but a READ takes those of its responses. */
static __always_inline __u32 psns_taken(const struct packet *p)
{
	__u8 shift = p->job->path_mtu_shift;
	__u32 n;

	if (!has(p, OP_READ_REQUEST))
		return 1;
	n = (p->roce->dma_len + (1ULL << shift) - 1) >> shift;
	return n ? n : 1;
}

/* {expected, gap_since} */
static __always_inline enum order psn(struct flow_state *flow, const struct packet *p)
{
	__u32 distance = (p->roce->psn - flow->expected) & PSN_MASK;
	__u32 old_generation = flow->expected >> PSN_BITS & GENERATION_MASK;
	__u32 generation = p->data ? p->generation & GENERATION_MASK : old_generation;
	__u32 patience_shift = p->job->epoch_shift + PATIENCE_SHIFT - TICK_SHIFT;
	__s32 patience_ticks = 1 << (patience_shift > 30 ? 30 : patience_shift);
	bool older = distance >= PSN_HALF;
	__u32 expected = flow->expected;
	enum order order;

	if (!(flow->expected & PSN_VALID) || distance == 0)
		order = IN_ORDER;
	else if (older && generation != old_generation)
		order = RESYNC;		/* back after the job was idle: the queue pair was made anew */
	else if (!older && has(p, OPS_UC))
		order = RESYNC;		/* nobody sends it again */
	else if (!older && p->job->step_source == STEP_UDP_SPORT)
		order = RESYNC;		/* packets tell their step: what is missing may have gone another way */
	else if (!older && flow->gap_since && (__s32)(p->tick - flow->gap_since) > patience_ticks)
		order = RESYNC;
	else
		order = older ? OLD : GAP;

	if (order == IN_ORDER || order == RESYNC) {
		flow->gap_since = 0;
		expected = p->roce->psn + psns_taken(p);
	} else if (order == GAP && !flow->gap_since) {
		flow->gap_since = p->tick | 1;
	}
	flow->expected = PSN_VALID | generation << PSN_BITS | (expected & PSN_MASK);
	return order;
}

/* {newest, retransmitted}: for statistics only. */
static __always_inline void newest(struct flow_state *flow, __u32 psn)
{
	__u32 distance = (psn - flow->newest) & PSN_MASK;

	if (flow->newest & PSN_VALID && (distance == 0 || distance >= PSN_HALF))
		flow->retransmitted++;
	else
		flow->newest = psn | PSN_VALID;
}

/* {packets, messages}: for statistics only. */
static __always_inline void count_packet(struct flow_state *flow, const struct packet *p)
{
	flow->packets++;
	if (p->advance && has(p, OPS_IMMEDIATE))
		flow->messages++;
}

/* {generation, requests, kind}: what the flow is, and the end of a step where messages tell it. */
static __always_inline void requests(struct flow_state *flow, struct packet *p)
{
	bool with_immediate = has(p, OPS_IMMEDIATE);
	bool plain_end = has(p, OPS_MESSAGE_END) && !with_immediate;
	bool only_plain = has(p, OPS_ONLY) && !with_immediate;	/* clear-to-send and the like */

	if (flow->requests_generation != (__u16)p->generation) {
		flow->requests_generation = p->generation;
		flow->requests = 0;
	}

	p->takes_part = !only_plain && (flow->kind == KIND_RING ||
					(flow->kind == KIND_UNKNOWN && !plain_end) ||
					(flow->kind == KIND_PLAIN && with_immediate));
	p->withdraw = p->advance && plain_end && !only_plain && flow->kind == KIND_UNKNOWN;
	p->end = p->advance && with_immediate;
	if (p->end)
		flow->kind = KIND_RING;
	else if (p->withdraw)
		flow->kind = KIND_PLAIN;

	if (!p->end)
		return;
	switch (p->job->step_source) {
	case STEP_MESSAGE:
	case STEP_UDP_SPORT:
		flow->requests++;
		p->step_end = flow->requests >= p->job->requests_per_step;
		if (p->step_end)
			flow->requests = 0;
		break;
	case STEP_IMM:
		p->step_end = ((p->roce->immediate + 1) & (p->job->requests_per_step - 1)) == 0;
		break;
	}
}

/* The step tag of a packet, as in the paper's prototype. */
static __always_inline __u16 step_tag(const struct packet *p)
{
	return p->job->step_source == STEP_UDP_SPORT ? p->roce->sport & TAG_MASK : 0;
}

/* {packets, generation, tag}: packets in the step before this one, and the end of a step where packets tell it. */
static __always_inline __u32 step_packets(struct flow_state *flow, struct packet *p)
{
	__u16 tag = p->advance ? step_tag(p) : flow->tag;
	__u32 before, after;

	if (flow->packets_generation != (__u16)p->generation || flow->tag != tag) {
		flow->step_packets = 0;
		flow->packets_generation = p->generation;
		flow->tag = tag;
	}
	before = flow->step_packets;
	if (p->advance && p->takes_part) {
		after = before + (before != ~0u);
		if (p->job->step_source == STEP_PSN && after >= p->job->packets_per_step)
			p->step_end = true;
		flow->step_packets = p->step_end ? 0 : after;
	}
	return before;
}

/* {steps_done, generation, in_collective}: steps completed before this packet, and whether it is its collective's last. */
static __always_inline __u32 steps(struct flow_state *flow, const struct packet *p, bool *last)
{
	__u32 per_collective = p->job->steps_per_collective, before;
	__u8 source = p->job->step_source;
	__s32 delta = 0;
	__s64 steps;
	bool whole;

	if (flow->steps_generation != (__u16)p->generation) {
		flow->steps_generation = p->generation;
		flow->in_collective = 0;
		if (source == STEP_UDP_SPORT)
			flow->steps_done = step_tag(p);
		else if (source != STEP_IMM)	/* the immediate counts on, whatever the ring does */
			flow->steps_done = 0;
	}

	before = flow->steps_done;
	switch (source) {
	case STEP_MESSAGE:
	case STEP_PSN:
		delta = p->step_end;
		flow->steps_done += delta;
		break;
	case STEP_IMM:
		if (p->end)
			flow->steps_done = (p->roce->immediate + 1) >> p->job->request_shift;
		if (p->step_end)	/* a collective's first step may follow a jump of the counter */
			delta = flow->in_collective ? flow->steps_done - before : 1;
		break;
	case STEP_UDP_SPORT:
		if (p->advance) {
			/* The difference of two tags, signed. */
			delta = (__s32)((step_tag(p) - before) << (32 - TAG_BITS)) >> (32 - TAG_BITS);
			before += delta;
			flow->steps_done = before;
		}
		break;
	}

	steps = (__s64)flow->in_collective + delta;
	if (steps < 0)
		steps = 0;
	if (steps > 0xffff)
		steps = 0xffff;
	whole = steps >= per_collective;
	if (whole)
		steps -= per_collective;
	if (steps >= per_collective)	/* of no use */
		steps = 0;
	flow->in_collective = steps;
	/* A tag names the step in hand, the other sources tell of completed ones. */
	*last = p->step_end && (source == STEP_UDP_SPORT ? steps + 1 == per_collective : whole);
	return before;
}

/* In 1/256 steps: `steps` completed ones, and `packets` of the step in hand where its size is known. */
static __always_inline __u32 progress(const struct job_config *job, __u32 steps, __u64 packets)
{
	if (packets > job->packets_per_step)
		packets = job->packets_per_step;
	packets = packets * 256 * job->reciprocal >> 32;
	return steps * 256 + (packets > 255 ? 255 : packets);
}
#endif
