/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The registers of a job. Twin of src/functions/symphony/progress.rs.
 *
 * A job's flows may come in on several CPUs at once, so each register is replaced as one
 * 64-bit word.
 */
#ifndef SYMPHONY_PROGRESS_H
#define SYMPHONY_PROGRESS_H

#include <stdbool.h>
#include "abi.h"

#define CAS_TRIES	4
#define OVERTAKEN_TICKS	(~0u - (1u << 20))	/* from here on: a second back, another CPU was faster */

/* Two words of a register; the first is the low half. */
typedef __u64 __attribute__((may_alias)) cell;

static __always_inline cell make_cell(__u32 first, __u32 second)
{
	return (cell)second << 32 | first;
}

static __always_inline __u32 first(cell c)
{
	return c;
}

static __always_inline __u32 second(cell c)
{
	return c >> 32;
}

/*
 * {last_tick, generation}: a job that was idle starts over, all its flows together. CPUs
 * that see the same idle job agree on one restart: who comes second finds it no longer idle.
 */
static __always_inline __u32 activity(struct job_state *job, __u32 tick, __u32 idle_ticks)
{
	cell *activity = (cell *)&job->last_tick, old = 0;
	int i;

#pragma unroll
	for (i = 0; i < CAS_TRIES; i++) {
		__u32 elapsed, generation;

		old = *(volatile cell *)activity;
		elapsed = tick - first(old);
		generation = second(old);
		if (elapsed < idle_ticks || elapsed > OVERTAKEN_TICKS) {
			*(volatile __u32 *)&job->last_tick = tick;
			return generation;
		}
		generation = generation >= 0xffff ? UNARMED + 1 : generation + 1;
		if (__sync_val_compare_and_swap(activity, old, make_cell(tick, generation)) == old)
			return generation;
	}
	return second(old);
}

/* {epoch, generation}: whether the minimum is stale. */
static __always_inline bool new_epoch(struct job_state *job, __u64 now, __u8 epoch_shift, __u32 generation)
{
	cell new = make_cell(now >> epoch_shift, generation);

	return __sync_lock_test_and_set((cell *)&job->epoch, new) != new;
}

/*
 * {min, owner}: returns the lead, never negative. The owner's own progress always
 * replaces the minimum, so no flow is ever ahead of its own past.
 */
static __always_inline __s32 minimum(struct job_state *job, __u32 owner, __u32 progress, bool new_epoch, bool last,
				     struct stats *count)
{
	cell *minimum = (cell *)&job->min, new = make_cell(progress, last ? 0 : owner);
	int i;

#pragma unroll
	for (i = 0; i < CAS_TRIES; i++) {
		cell old = *(volatile cell *)minimum;
		__s32 lead = progress - first(old);

		if (!new_epoch && second(old) && lead >= 0 && second(old) != owner)
			return lead;
		if (__sync_val_compare_and_swap(minimum, old, new) == old)
			return 0;
	}
	count->cas_lost++;
	return 0;
}

/* The flow turned out not to be ring traffic. */
static __always_inline void withdraw(struct job_state *job, __u32 owner, bool new_epoch, struct stats *count)
{
	cell *minimum = (cell *)&job->min;
	int i;

#pragma unroll
	for (i = 0; i < CAS_TRIES; i++) {
		cell old = *(volatile cell *)minimum;

		if (!new_epoch && second(old) != owner)
			return;
		if (__sync_val_compare_and_swap(minimum, old, make_cell(first(old), 0)) == old)
			return;
	}
	count->cas_lost++;
}
#endif
