// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A source of RoCEv2 packets and a sink for them, for bench/forward.sh.
 *
 * The source runs by BPF_PROG_TEST_RUN with live frames: the kernel calls it for one
 * frame after another, all made from the same template, and it makes each the next
 * packet of its flow. It is a closed loop: at most `window` packets are on their way
 * at any time. So the switch always has work, and yet nothing is lost before it, for
 * lost packets would spare it the work that tracking is.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MESSAGE_PACKETS	64	/* a power of two */
#define STALL_NS	50000000	/* what has not arrived for so long is lost */

enum {
	WRITE_FIRST = 0x06,
	WRITE_MIDDLE = 0x07,
	WRITE_LAST_WITH_IMMEDIATE = 0x09,
};

struct bth {
	__u8 opcode;
	__u8 flags;
	__be16 pkey;
	__be32 dest_qpn;
	__be32 psn;
};

/* As far as the frame is the same for all packets, it comes from userspace. */
struct frame {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct bth bth;
	union {
		struct {
			__be64 va;
			__be32 rkey;
			__be32 dma_len;
		} __attribute__((packed)) reth;
		__be32 immediate;
	};
} __attribute__((packed));

/* Written by userspace before a run. Fields as in main.rs. */
struct plan {
	__u32 ifindex;
	__u32 first_qpn;
	__u32 flows_shift;	/* 2^flows_shift flows, one packet of each in turn */
	__u32 payload_bytes;	/* of a MIDDLE */
	__u32 window;		/* packets */
	__u32 sent_before;	/* packets of these flows, by an earlier run */
};

/* Set to zero by userspace before a run. Fields as in main.rs. */
struct counts {
	__u64 first_at;		/* ns: the first call */
	__u64 last_at;		/* ns: the last call */
	__u64 sent;
	__u64 refused;		/* the window was full */
	__u64 lost;
	__u64 received;		/* at the sink */
	__u64 received_by_then;	/* `received` at the last call */
	__u64 moved_at;		/* ns: when the last call that saw `received` change was */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plan);
} plan SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/* Looks at clock and sink; whether the window has room. */
static __always_inline bool may_send(const struct plan *plan, struct counts *count)
{
	__u64 received = *(volatile __u64 *)&count->received;
	__u64 now = bpf_ktime_get_ns();

	if (!count->first_at)
		count->first_at = now;
	count->last_at = now;
	if (received != count->received_by_then || !count->moved_at) {
		count->received_by_then = received;
		count->moved_at = now;
	}
	if ((__s64)(count->sent - count->lost - received) < (__s64)plan->window)
		return true;
	count->refused++;
	if (now - count->moved_at > STALL_NS) {
		count->lost = count->sent - received;
		count->moved_at = now;
	}
	return false;
}

SEC("xdp")
int source(struct xdp_md *ctx)
{
	struct frame *frame = (void *)(long)ctx->data;
	__u32 zero = 0, n, flow, round, psn, place;
	struct counts *count;
	struct plan *p;

	p = bpf_map_lookup_elem(&plan, &zero);
	count = bpf_map_lookup_elem(&counts, &zero);
	if (!p || !count || (void *)(frame + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	if (!may_send(p, count))
		return XDP_DROP;

	n = p->sent_before + count->sent;
	flow = n & ((1u << p->flows_shift) - 1);
	round = n >> p->flows_shift;
	/* The flows are spread over a message, so that some lead and some lag. */
	psn = round + ((flow * MESSAGE_PACKETS) >> p->flows_shift);
	place = psn & (MESSAGE_PACKETS - 1);
	frame->bth.dest_qpn = bpf_htonl(p->first_qpn + flow);
	frame->bth.psn = bpf_htonl(psn & 0xffffff);
	if (place == 0) {
		frame->bth.opcode = WRITE_FIRST;
		frame->reth.va = 0;
		frame->reth.rkey = 0;
		frame->reth.dma_len = bpf_htonl(MESSAGE_PACKETS * p->payload_bytes);
	} else if (place == MESSAGE_PACKETS - 1) {
		frame->bth.opcode = WRITE_LAST_WITH_IMMEDIATE;
		frame->immediate = bpf_htonl(psn / MESSAGE_PACKETS);
	} else {
		frame->bth.opcode = WRITE_MIDDLE;
	}
	count->sent++;
	return bpf_redirect(p->ifindex, 0);
}

SEC("tc")
int sink(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct counts *count = bpf_map_lookup_elem(&counts, &zero);

	if (count)
		__sync_fetch_and_add(&count->received, 1);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
