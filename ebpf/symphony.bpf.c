// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The switch's kernel side: parses a frame, tracks its job, hands frame and findings
 * to the AF_XDP socket of its port and queue. Forwards nothing by itself.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "ingress.h"
#include "maps.h"
#include "parse.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The verdict of a packet that ends here. */
static __always_inline int drop(struct stats *count, enum drop_reason reason)
{
	count->drops[reason]++;
	return XDP_DROP;
}

/* Parses and tracks; what it finds goes before the frame. */
static __always_inline void inspect(struct cursor *at, struct stats *count, struct packet_metadata *meta)
{
	struct packet_metadata found = { .received_at = bpf_ktime_get_ns(), .flags = META_TRACKED };
	struct roce roce;

	if (parse_roce(at, &roce)) {
		found.opcode = roce.opcode;
		found.psn = roce.psn;
		track(&roce, count, &found);
	} else {
		count->not_roce++;
	}
	*meta = found;
}

SEC("xdp")
int symphony(struct xdp_md *ctx)
{
	__u32 zero = 0, ifindex = ctx->ingress_ifindex, key;
	struct packet_metadata *meta;
	struct cursor at;
	struct stats *count;
	struct port *port;

	count = bpf_map_lookup_elem(&stats, &zero);
	if (!count)
		return XDP_ABORTED;	/* cannot be; the verifier does not know */

	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port || ctx->rx_queue_index >= MAX_QUEUES)
		return drop(count, DROP_NO_SOCKET);
	key = port->slot * MAX_QUEUES + ctx->rx_queue_index;
	if (!bpf_map_lookup_elem(&xsks, &key))
		return drop(count, DROP_NO_SOCKET);

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return drop(count, DROP_NO_HEADROOM);
	meta = (void *)(long)ctx->data_meta;
	at.pos = (void *)(long)ctx->data;
	at.end = (void *)(long)ctx->data_end;
	if ((void *)(meta + 1) > at.pos)
		return drop(count, DROP_NO_HEADROOM);

	/* Only what goes on is tracked: a packet lost here is a gap, like one lost before us. */
	inspect(&at, count, meta);
	count->redirected++;
	return bpf_redirect_map(&xsks, key, XDP_DROP);
}

/* For the far end of a veth: a veth takes redirected frames only if its peer runs NAPI, and this makes it do so. */
SEC("xdp")
int peer_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}
