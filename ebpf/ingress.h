/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ingress stages: classify, track, progress. Twin of src/functions/symphony/mod.rs:
 * the same registers in the same order, each touched once.
 */
#ifndef SYMPHONY_INGRESS_H
#define SYMPHONY_INGRESS_H

#include "abi.h"
#include "flows.h"
#include "maps.h"
#include "parse.h"
#include "progress.h"
#include "track.h"

/* A data packet of a flow that has a slot: which step is it of, and how far ahead. */
static __always_inline void step(struct flow_state *flow, struct job_state *job, struct packet *p, struct stats *count,
				 struct packet_metadata *meta)
{
	__u32 owner = meta->flow + 1, packets;
	bool last, stale;

	if (p->generation > UNARMED)
		meta->flags |= META_ARMED;
	requests(flow, p);
	if (!p->takes_part && !p->withdraw)
		return;
	packets = step_packets(flow, p);
	meta->steps_done = steps(flow, p, &last);
	meta->progress = progress(p->job, meta->steps_done, packets);

	stale = new_epoch(job, meta->received_at, p->job->epoch_shift, p->generation);
	if (p->withdraw) {
		withdraw(job, owner, stale, count);
		meta->steps_done = 0;
		meta->progress = 0;
		meta->flags |= META_LEAVES;
		return;
	}
	meta->lead = minimum(job, owner, meta->progress, stale, last, count);
	meta->flags |= META_DATA | (last ? META_LEAVES : 0);
}

/* Tracks a RoCEv2 packet that came in at `meta->received_at`; what it finds goes into `meta`. */
static __always_inline void track(const struct roce *roce, struct stats *count, struct packet_metadata *meta)
{
	struct packet p = {
		.roce = roce,
		.tick = meta->received_at >> TICK_SHIFT,
		.data = is_in(roce->opcode, OPS_REQUEST_DATA),
	};
	struct flow_state *state;
	struct job_state *job;
	struct edge *edge;
	__u32 job_slot, slot;

	if (!p.data && !has(&p, OP_READ_REQUEST | OPS_ATOMIC)) {
		count->not_data++;
		return;
	}

	/* A flow goes when its job does. So the tables are for new flows, and for those that no hint leads to. */
	state = hinted_flow(&roce->key, &slot);
	if (state) {
		job_slot = state->job;
	} else {
		edge = bpf_map_lookup_elem(&edges, &roce->key.edge);
		if (!edge)
			goto not_of_a_job;
		job_slot = edge->job;
		state = known_flow(&roce->key, &slot);
	}
	job = bpf_map_lookup_elem(&job_state, &job_slot);
	p.job = bpf_map_lookup_elem(&jobs, &job_slot);
	if (!job || !p.job || !p.job->enabled)
		goto not_of_a_job;

	if (!state) {
		if (!p.data)
			goto not_of_a_job;
		state = new_flow(&roce->key, job_slot, p.tick, &slot);
	}
	if (!state) {
		count->flows_full++;
		return;
	}
	state->last_tick = p.tick;
	meta->job = job_slot;
	meta->flow = slot;

	if (p.data)
		p.generation = activity(job, p.tick, p.job->idle_ticks);
	switch (psn(state, &p)) {
	case IN_ORDER:
		count->in_order++;
		p.advance = true;
		break;
	case RESYNC:
		count->resync++;
		state->resyncs++;
		p.advance = true;
		break;
	case OLD:
		count->old++;
		break;
	case GAP:
		count->gap++;
		break;
	}
	if (!p.data)
		return;
	newest(state, roce->psn);
	count_packet(state, &p);
	step(state, job, &p, count, meta);
	return;

not_of_a_job:
	count->not_of_a_job++;
}
#endif
