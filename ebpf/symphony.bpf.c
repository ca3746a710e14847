// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The switch's kernel side: parses a frame, tracks its job, hands frame and findings
 * to the AF_XDP socket of its port and queue. Forwards nothing by itself.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "maps.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The verdict of a packet that ends here. */
static __always_inline int drop(struct stats *count, enum drop_reason reason)
{
	count->drops[reason]++;
	return XDP_DROP;
}

SEC("xdp")
int symphony(struct xdp_md *ctx)
{
	struct packet_metadata *meta;
	__u32 zero = 0, ifindex = ctx->ingress_ifindex, key;
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
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return drop(count, DROP_NO_HEADROOM);

	__builtin_memset(meta, 0, sizeof(*meta));
	meta->received_at = bpf_ktime_get_ns();

	count->redirected++;
	return bpf_redirect_map(&xsks, key, XDP_DROP);
}

/* For the far end of a veth: a veth takes redirected frames only if its peer runs NAPI, and this makes it do so. */
SEC("xdp")
int peer_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}
