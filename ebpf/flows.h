/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which slot a flow has. The table `flows` knows, and gives each flow one slot whatever
 * CPUs its packets come in on. It is asked for new flows; known ones are found by a hint,
 * which costs two cache misses where the table costs four.
 */
#ifndef SYMPHONY_FLOWS_H
#define SYMPHONY_FLOWS_H

#include <stdbool.h>
#include "abi.h"
#include "maps.h"

#define HINT_BITS	16
#define KEY_WORDS	(sizeof(struct edge_key) / 8)	/* and half a word: the queue pair */

typedef __u64 __attribute__((may_alias)) word;

/* By a hash of its key, the slot that a flow had. It is the flow's if the slot says so: others may have had it since. */
static __u16 hints[1 << HINT_BITS];
_Static_assert(MAX_FLOWS <= 1 << 16, "a slot fits a hint");

/* Multiplying by the golden ratio keeps queue pairs apart that follow one another. */
static __always_inline __u32 hash(const struct flow_key *key)
{
	const word *words = (const word *)key;
	const __u64 golden = 0x9e3779b97f4a7c15;
	__u64 hash = 0;
	int i;

#pragma unroll
	for (i = 0; i < KEY_WORDS; i++) {
		hash = (hash ^ words[i]) * golden;
		hash ^= hash >> 32;
	}
	return (hash ^ key->dest_qpn) * golden >> (64 - HINT_BITS);
}

static __always_inline bool same_flow(const struct flow_key *a, const struct flow_key *b)
{
	const word *a_words = (const word *)a, *b_words = (const word *)b;
	__u64 difference = a->dest_qpn ^ b->dest_qpn;
	int i;

#pragma unroll
	for (i = 0; i < KEY_WORDS; i++)
		difference |= a_words[i] ^ b_words[i];
	return !difference;
}

/* The flow, if there is a hint where it is; NULL says nothing. */
static __always_inline struct flow_state *hinted_flow(const struct flow_key *key, __u32 *slot)
{
	struct flow_state *state;

	*slot = hints[hash(key)];
	state = bpf_map_lookup_elem(&flow_state, slot);
	return state && state->in_use && same_flow(&state->key, key) ? state : NULL;
}

/* The flow by the table, and a hint to it; NULL if it has no slot. */
static __always_inline struct flow_state *known_flow(const struct flow_key *key, __u32 *slot)
{
	__u32 *found = bpf_map_lookup_elem(&flows, key);

	if (!found)
		return NULL;
	*slot = *found;
	hints[hash(key)] = *slot;
	return bpf_map_lookup_elem(&flow_state, slot);
}

/* Gives a new flow the slot at the head of the queue; NULL when there is none. */
static __always_inline struct flow_state *new_flow(const struct flow_key *key, __u16 job, __u32 tick, __u32 *slot)
{
	struct flow_state *state;

	if (bpf_map_pop_elem(&free_slots, slot))
		return NULL;
	state = bpf_map_lookup_elem(&flow_state, slot);
	if (!state)
		return NULL;	/* cannot be; the verifier does not know */
	*state = (struct flow_state){};
	if (bpf_map_update_elem(&flows, key, slot, BPF_NOEXIST)) {
		/* Another CPU was faster. */
		bpf_map_push_elem(&free_slots, slot, 0);
		return known_flow(key, slot);
	}
	hints[hash(key)] = *slot;
	state->key = *key;
	state->job = job;
	state->last_tick = tick;
	/* Userspace reads at any time: this store must come after those before it. */
	__sync_lock_test_and_set(&state->in_use, 1);
	return state;
}
#endif
