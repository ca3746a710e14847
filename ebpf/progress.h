/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The registers of a job: activity, epoch, minimum. Twin of the stages of the same
 * names in src/functions/symphony.
 *
 * A job's flows may come in on several CPUs at once. Every register is one machine word
 * that is replaced whole.
 */
#ifndef SYMPHONY_PROGRESS_H
#define SYMPHONY_PROGRESS_H

#include <stdbool.h>
#include "abi.h"

#define TICK_SHIFT	10	/* a tick is 1024 ns */
#define CAS_TRIES	4

/* Two 32-bit words as one; the first is the low half. */
typedef __u64 __attribute__((may_alias)) pair;

static __always_inline pair make_pair(__u32 low, __u32 high)
{
	return (pair)high << 32 | low;
}

static __always_inline __u32 low(pair p)
{
	return p;
}

static __always_inline __u32 high(pair p)
{
	return p >> 32;
}

/*
 * {last_tick, generation}. Returns the generation, and whether the job's counters restart
 * with this packet. Two CPUs that see the same idle job both write generation + 1.
 */
static __always_inline __u32 activity(struct job_state *job, __u32 tick, __u32 idle_ticks, bool *restart)
{
	volatile pair *cell = (pair *)&job->last_tick;
	pair old = *cell;
	__u32 generation = high(old);

	*restart = tick - low(old) >= idle_ticks;
	if (*restart)
		generation++;
	*cell = make_pair(tick, generation);
	return generation;
}

/* Whether the packet is the first of an epoch. */
static __always_inline bool new_epoch(struct job_state *job, __u64 now, __u8 epoch_shift, bool restart)
{
	__u32 epoch = now >> epoch_shift;

	return __sync_lock_test_and_set(&job->epoch, epoch) != epoch || restart;
}

/* The flow withdraws: the minimum must not be its. */
static __always_inline void disown(struct job_state *job, __u32 owner, struct stats *count)
{
	pair *cell = (pair *)&job->min, old;
	int i;

#pragma unroll
	for (i = 0; i < CAS_TRIES; i++) {
		old = *(volatile pair *)cell;
		if (high(old) != owner)
			return;
		if (__sync_val_compare_and_swap(cell, old, make_pair(low(old), 0)) == old)
			return;
	}
	count->cas_lost++;
}

/*
 * {min, owner}. The laggard writes its own progress; so does whoever comes first in an
 * epoch, or finds nobody. Returns the lead.
 */
static __always_inline __s32 minimum(struct job_state *job, __u32 owner, __u32 progress, bool new_epoch, bool last,
				     struct stats *count)
{
	pair *cell = (pair *)&job->min, old;
	int i;

#pragma unroll
	for (i = 0; i < CAS_TRIES; i++) {
		old = *(volatile pair *)cell;
		__s32 lead = progress - low(old);

		if (!(new_epoch || !high(old) || lead < 0 || high(old) == owner))
			return lead;
		if (__sync_val_compare_and_swap(cell, old, make_pair(progress, last ? 0 : owner)) == old)
			return 0;
	}
	count->cas_lost++;
	return 0;
}
#endif
