/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tracking: how far a flow has come. Twin of src/functions/symphony: the same stages in
 * the same order, each touching its register once.
 */
#ifndef SYMPHONY_TRACK_H
#define SYMPHONY_TRACK_H

#include <stdbool.h>
#include "abi.h"
#include "maps.h"
#include "parse.h"
#include "progress.h"

#define PSN_MASK	0xffffff
#define PSN_HALF	0x800000	/* distances from here on are behind (wire.md: 24-bit serial numbers) */
#define TAG_BITS	14
#define TAG_MASK	((1 << TAG_BITS) - 1)

enum psn_verdict {
	PSN_IN_ORDER,
	PSN_OLD,
	PSN_GAP,
	PSN_RESYNC,
};

/* What the stages know of the packet in hand. */
struct packet {
	const struct roce *roce;
	const struct job_config *job;
	__u32 tick;
	__u16 generation;	/* of the job */
	__u16 tag;		/* STEP_UDP_SPORT: low bits of the source port */
	bool advance;		/* in order, or made so */
	bool ends;		/* ends a message with an immediate, and counts */
	bool takes_part;	/* in the job's minimum */
	bool withdraw;		/* the flow turned out to be no ring flow */
	bool step_end;		/* last packet of a step */
};

static __always_inline bool has(const struct roce *roce, __u64 set)
{
	return is_in(roce->opcode, set);
}

/* How many PSNs the request takes: a READ reserves those of its responses. */
static __always_inline __u32 psns_taken(const struct roce *roce, __u8 path_mtu_shift)
{
	__u32 n;

	if (!has(roce, OP_READ_REQUEST))
		return 1;
	n = ((__u64)roce->dma_len + (1ULL << path_mtu_shift) - 1) >> path_mtu_shift;
	return n ? n : 1;
}

/* {expected, gap_since}: as a go-back-N responder sees it. */
static __always_inline enum psn_verdict psn(struct flow_state *flow, const struct packet *p)
{
	__u32 next = (p->roce->psn + psns_taken(p->roce, p->job->path_mtu_shift)) & PSN_MASK;
	__u32 distance = (p->roce->psn - flow->expected) & PSN_MASK;
	enum psn_verdict verdict = PSN_IN_ORDER;

	if (flow->expected & PSN_VALID) {
		if (distance >= PSN_HALF)
			return PSN_OLD;
		if (distance > 0) {
			__u32 epoch_ticks = 1u << (p->job->epoch_shift - TICK_SHIFT);

			if (!has(p->roce, OPS_UC)) {
				if (!flow->gap_since) {
					flow->gap_since = p->tick | 1;
					return PSN_GAP;
				}
				if (p->tick - flow->gap_since <= epoch_ticks)
					return PSN_GAP;
			}
			flow->resyncs++;
			verdict = PSN_RESYNC;
		}
	}
	flow->expected = next | PSN_VALID;
	flow->gap_since = 0;
	return verdict;
}

/* {newest, retransmitted} */
static __always_inline void newest(struct flow_state *flow, __u32 psn)
{
	__u32 distance = (psn - flow->newest) & PSN_MASK;

	if (flow->newest & PSN_VALID && (distance == 0 || distance >= PSN_HALF))
		flow->retransmitted++;
	else
		flow->newest = psn | PSN_VALID;
}

/* {packets, messages} */
static __always_inline void count_packet(struct flow_state *flow, const struct packet *p)
{
	flow->packets++;
	if (p->ends)
		flow->messages++;
}

/* {generation, requests, kind}: whether the packet takes part, and the end of a step where requests tell it. */
static __always_inline void requests(struct flow_state *flow, struct packet *p)
{
	bool with_immediate = has(p->roce, OPS_IMMEDIATE);
	bool only_plain = has(p->roce, OPS_ONLY) && !with_immediate;	/* clear-to-send and the like */
	bool plain_end = has(p->roce, OPS_MESSAGE_END) && !with_immediate;
	__u16 per_step = p->job->requests_per_step;

	if (flow->requests_generation != p->generation) {
		flow->requests_generation = p->generation;
		flow->requests = 0;
	}
	switch (flow->kind) {
	case KIND_RING:
		p->takes_part = !only_plain;
		break;
	case KIND_UNKNOWN:
		p->takes_part = !only_plain && !plain_end;
		break;
	default:
		p->takes_part = with_immediate;
	}
	if (p->ends) {
		flow->kind = KIND_RING;
	} else if (p->advance && plain_end && !only_plain && flow->kind == KIND_UNKNOWN) {
		flow->kind = KIND_PLAIN;
		p->withdraw = true;
	}
	if (!p->ends)
		return;
	switch (p->job->step_source) {
	case STEP_MESSAGE:
	case STEP_UDP_SPORT:
		flow->requests++;
		if (flow->requests == per_step) {
			flow->requests = 0;
			p->step_end = true;
		}
		break;
	case STEP_IMM:
		p->step_end = ((p->roce->immediate + 1) & (per_step - 1)) == 0;
		break;
	}
}

/* {packets, generation, tag}: packets of the step before this one, and the end of a step where packets tell it. */
static __always_inline __u32 step_packets(struct flow_state *flow, struct packet *p)
{
	__u32 before;

	if (flow->packets_generation != p->generation || (flow->tag != p->tag && p->advance)) {
		flow->step_packets = 0;
		flow->packets_generation = p->generation;
		flow->tag = p->tag;
	}
	before = flow->step_packets;
	if (!p->advance || !p->takes_part)
		return before;
	if (p->job->step_source == STEP_PSN)
		p->step_end = before + 1 >= p->job->packets_per_step;
	flow->step_packets = p->step_end ? 0 : before + 1;
	return before;
}

/* {steps_done, generation, in_collective}: steps before this packet, and whether it is the collective's last. */
static __always_inline __u32 steps(struct flow_state *flow, struct packet *p, bool *last)
{
	__u32 per_collective = p->job->steps_per_collective;
	bool fresh = flow->steps_generation != p->generation;
	bool by_sport = p->job->step_source == STEP_UDP_SPORT;
	__u32 before, delta = 0;

	if (fresh) {
		flow->steps_generation = p->generation;
		flow->steps_in_collective = 0;
		if (by_sport)
			flow->steps_done = p->tag;
		else if (p->job->step_source != STEP_IMM)
			flow->steps_done = 0;
	}

	before = flow->steps_done;
	switch (p->job->step_source) {
	case STEP_MESSAGE:
	case STEP_PSN:
		if (p->step_end)
			delta = 1;
		flow->steps_done += delta;
		flow->steps_in_collective += delta;
		break;
	case STEP_IMM:
		if (!p->ends)
			break;
		flow->steps_done = (p->roce->immediate + 1) >> p->job->request_shift;
		delta = fresh ? 1 : flow->steps_done - before;
		if (p->step_end)
			flow->steps_in_collective += delta;
		break;
	case STEP_UDP_SPORT:
		if (!p->advance)
			break;
		delta = (__s32)((p->tag - before) << (32 - TAG_BITS)) >> (32 - TAG_BITS);	/* the shortest way */
		flow->steps_done += delta;
		flow->steps_in_collective += delta;
		before = flow->steps_done;
		break;
	}

	*last = p->step_end;
	if (by_sport || p->step_end) {
		if (flow->steps_in_collective >= per_collective) {
			flow->steps_in_collective -= per_collective;
			if (flow->steps_in_collective >= per_collective)
				flow->steps_in_collective = 0;
		} else if (!by_sport) {
			*last = false;
		}
	}
	if (by_sport && flow->steps_in_collective != per_collective - 1)
		*last = false;
	return before;
}

/* Part of the step in hand that is done, in 1/256. */
static __always_inline __u32 fraction(const struct job_config *job, __u32 packets)
{
	__u64 share;

	if (!job->packets_per_step)
		return 0;
	if (packets > job->packets_per_step)
		packets = job->packets_per_step;
	share = (__u64)packets * 256 * job->reciprocal >> 32;
	return share > 255 ? 255 : share;
}

/* Gives a new flow the slot at the head of the queue. NULL when there is none. */
static __always_inline __u32 *new_flow(const struct flow_key *key, const struct edge *edge)
{
	struct flow_state *flow;
	__u32 slot;

	if (bpf_map_pop_elem(&free_slots, &slot))
		return NULL;
	flow = bpf_map_lookup_elem(&flow_state, &slot);
	if (flow)
		*flow = (struct flow_state){ .job = edge->job, .rank = edge->rank };
	/* Another CPU may have been faster. */
	if (bpf_map_update_elem(&flows, key, &slot, BPF_NOEXIST))
		bpf_map_push_elem(&free_slots, &slot, 0);
	return bpf_map_lookup_elem(&flows, key);
}

/* Tracks a RoCEv2 packet; fills in what becomes of it in the metadata. */
static __always_inline void track(const struct roce *roce, __u64 now, struct stats *count, struct packet_metadata *meta)
{
	bool data = has(roce, OPS_REQUEST_DATA), restart, last;
	struct packet p = { .roce = roce, .tick = now >> TICK_SHIFT };
	struct flow_state *flow;
	struct job_state *job;
	struct edge *edge;
	__u32 slot, *flow_slot, generation, packets;

	if (!data && !has(roce, OP_READ_REQUEST | OPS_ATOMIC)) {
		count->not_data++;
		return;
	}

	edge = bpf_map_lookup_elem(&edges, &roce->key.edge);
	if (!edge)
		goto not_of_a_job;
	slot = edge->job;
	job = bpf_map_lookup_elem(&job_state, &slot);
	p.job = bpf_map_lookup_elem(&jobs, &slot);
	if (!job || !p.job || !p.job->enabled)
		goto not_of_a_job;

	flow_slot = bpf_map_lookup_elem(&flows, &roce->key);
	if (!flow_slot) {
		if (!data) {
			count->not_data++;
			return;
		}
		flow_slot = new_flow(&roce->key, edge);
	}
	flow = flow_slot ? bpf_map_lookup_elem(&flow_state, flow_slot) : NULL;
	if (!flow) {
		count->flows_full++;
		return;
	}
	flow->last_tick = p.tick;

	if (data) {
		generation = activity(job, p.tick, p.job->idle_ticks, &restart);
		p.generation = generation;
	}
	switch (psn(flow, &p)) {
	case PSN_IN_ORDER:
		count->in_order++;
		p.advance = true;
		break;
	case PSN_RESYNC:
		count->resync++;
		p.advance = true;
		break;
	case PSN_OLD:
		count->old++;
		break;
	case PSN_GAP:
		count->gap++;
		break;
	}
	if (!data)
		return;

	p.ends = p.advance && has(roce, OPS_IMMEDIATE);
	if (p.job->step_source == STEP_UDP_SPORT)
		p.tag = roce->sport & TAG_MASK;
	meta->job = slot;
	meta->flow = *flow_slot;
	if (generation)
		meta->flags |= META_ARMED;

	newest(flow, roce->psn);
	count_packet(flow, &p);
	requests(flow, &p);
	if (p.withdraw) {
		disown(job, *flow_slot + 1, count);
		return;
	}
	if (!p.takes_part)
		return;
	packets = step_packets(flow, &p);
	meta->steps_done = steps(flow, &p, &last);
	meta->progress = (meta->steps_done << 8) + fraction(p.job, packets);
	meta->lead = minimum(job, *flow_slot + 1, meta->progress, new_epoch(job, now, p.job->epoch_shift, restart), last,
			     count);
	meta->flags |= META_DATA;
	if (last)
		meta->flags |= META_LEAVES;
	flow->progress = meta->progress;
	return;

not_of_a_job:
	count->not_of_a_job++;
}
#endif
