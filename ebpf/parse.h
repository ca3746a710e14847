/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parser: finds the RoCEv2 part of a frame. Twin of src/dataplane/parser.rs, as far
 * as tracking needs it.
 *
 * Lengths are believed only as far as the frame holds them. What follows the IP packet
 * (Ethernet padding) is ignored.
 */
#ifndef SYMPHONY_PARSE_H
#define SYMPHONY_PARSE_H

#include <stdbool.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include "abi.h"

#define ROCE_PORT	4791
#define MAX_VLAN_TAGS	2

/* Opcodes below 64 as a set: RC and, 0x20 above it, UC. */
#define OP(n)			(1ULL << (n))
#define RC_UC(set)		((set) | (set) << 0x20)
#define OP_READ_REQUEST		OP(0x0c)
#define OPS_ATOMIC		(OP(0x13) | OP(0x14))
#define OPS_INVALIDATE		(OP(0x16) | OP(0x17))
#define OPS_IMMEDIATE		RC_UC(OP(0x03) | OP(0x05) | OP(0x09) | OP(0x0b))
#define OPS_ONLY		(RC_UC(OP(0x04) | OP(0x05) | OP(0x0a) | OP(0x0b)) | OP(0x17))
#define OPS_MESSAGE_END		(OPS_ONLY | OPS_IMMEDIATE | RC_UC(OP(0x02) | OP(0x08)) | OP(0x16))
#define OPS_REQUEST_DATA	(RC_UC(0xfffULL) | OPS_INVALIDATE)
#define OPS_UC			(0xffffffffULL << 0x20)
#define OPS_RETH		(RC_UC(OP(0x06) | OP(0x0a) | OP(0x0b)) | OP_READ_REQUEST)
#define OP_ATOMIC_ACK		OP(0x12)
#define OPS_AETH		(OP(0x0d) | OP(0x0f) | OP(0x10) | OP(0x11) | OP_ATOMIC_ACK)
#define UD_SEND_ONLY		0x64
#define UD_SEND_ONLY_IMMEDIATE	0x65

struct bth {
	__u8 opcode;
	__u8 flags;
	__be16 pkey;
	__be32 dest_qpn;	/* below 8 bits of FECN, BECN, reserved */
	__be32 psn;		/* below AckReq and 7 reserved bits */
};

struct reth {
	__be64 va;
	__be32 rkey;
	__be32 dma_len;
} __attribute__((packed));

struct vlan {
	__be16 tci;
	__be16 ethertype;
};

/* Bytes yet to be parsed. */
struct cursor {
	void *pos;
	void *end;
};

/* A RoCEv2 packet. */
struct roce {
	struct flow_key key __attribute__((aligned(8)));
	__u32 psn;
	__u32 dma_len;		/* 0 without RETH */
	__u32 immediate;	/* 0 without */
	__u16 sport;
	__u8 opcode;
};

/* Takes the next `size` bytes; NULL when the frame ends before. */
static __always_inline void *take(struct cursor *at, __u32 size)
{
	void *header = at->pos;

	if (header + size > at->end)
		return NULL;
	at->pos = header + size;
	return header;
}

static __always_inline bool is_in(__u8 opcode, __u64 set)
{
	return opcode < 64 && set >> opcode & 1;
}

/* Bytes of extension headers that the opcode asks for; of AtomicETH the parser wants 20 only. */
static __always_inline __u32 extensions_len(__u8 opcode)
{
	__u32 len = 0;

	if (is_in(opcode, OPS_RETH))
		len += sizeof(struct reth);
	if (is_in(opcode, OPS_IMMEDIATE | OPS_AETH | OPS_INVALIDATE))
		len += 4;
	if (is_in(opcode, OP_ATOMIC_ACK))
		len += 8;
	if (is_in(opcode, OPS_ATOMIC))
		len += 20;
	if (opcode == UD_SEND_ONLY)
		len += 8;
	if (opcode == UD_SEND_ONLY_IMMEDIATE)
		len += 12;
	return len;
}

/* Returns the EtherType behind the tags in network order; 0 when the frame ends before it. */
static __always_inline __be16 parse_ethernet(struct cursor *at)
{
	struct ethhdr *eth = take(at, sizeof(*eth));
	__be16 ethertype;
	int i;

	if (!eth)
		return 0;
	ethertype = eth->h_proto;
#pragma unroll
	for (i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan *tag;

		if (ethertype != bpf_htons(ETH_P_8021Q) && ethertype != bpf_htons(ETH_P_8021AD))
			break;
		tag = take(at, sizeof(*tag));
		if (!tag)
			return 0;
		ethertype = tag->ethertype;
	}
	return ethertype;
}

static __always_inline void copy_address(__u8 *to, const void *from)
{
	__builtin_memcpy(to, from, 16);
}

static __always_inline void map_address(__u8 *to, __be32 v4)
{
	__u32 mapped[4] = { 0, 0, bpf_htonl(0xffff), v4 };

	__builtin_memcpy(to, mapped, 16);
}

/* These two return the length of the IP payload if it is UDP and whole; 0 otherwise. */
static __always_inline __u32 parse_ipv4(struct cursor *at, struct edge_key *edge)
{
	__u32 left = at->end - at->pos, len;
	struct iphdr *ip = take(at, sizeof(*ip));

	if (!ip || *(__u8 *)ip != 0x45)	/* version 4, no options */
		return 0;
	len = bpf_ntohs(ip->tot_len);
	if (len < sizeof(*ip) || len > left)
		return 0;
	if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x3fff))	/* MF, offset */
		return 0;
	map_address(edge->src, ip->saddr);
	map_address(edge->dst, ip->daddr);
	return len - sizeof(*ip);
}

static __always_inline __u32 parse_ipv6(struct cursor *at, struct edge_key *edge)
{
	__u32 left = at->end - at->pos, len;
	struct ipv6hdr *ip = take(at, sizeof(*ip));

	if (!ip || *(__u8 *)ip >> 4 != 6)
		return 0;
	len = bpf_ntohs(ip->payload_len);
	if (sizeof(*ip) + len > left)
		return 0;
	if (ip->nexthdr != IPPROTO_UDP)
		return 0;
	copy_address(edge->src, &ip->saddr);
	copy_address(edge->dst, &ip->daddr);
	return len;
}

/* Whether the frame is a RoCEv2 packet; `roce` is filled in only then. */
static __always_inline bool parse_roce(struct cursor *at, struct roce *roce)
{
	struct udphdr *udp;
	struct bth *bth;
	__u32 left, len;

	switch (parse_ethernet(at)) {
	case bpf_htons(ETH_P_IP):
		left = parse_ipv4(at, &roce->key.edge);
		break;
	case bpf_htons(ETH_P_IPV6):
		left = parse_ipv6(at, &roce->key.edge);
		break;
	default:
		return false;
	}

	udp = take(at, sizeof(*udp));
	if (!udp || left < sizeof(*udp))
		return false;
	len = bpf_ntohs(udp->len);
	if (len < sizeof(*udp) + sizeof(*bth) || len > left || udp->dest != bpf_htons(ROCE_PORT))
		return false;
	roce->sport = bpf_ntohs(udp->source);

	bth = take(at, sizeof(*bth));
	if (!bth)
		return false;
	roce->opcode = bth->opcode;
	roce->key.dest_qpn = bpf_ntohl(bth->dest_qpn) & 0xffffff;
	roce->psn = bpf_ntohl(bth->psn) & 0xffffff;
	if (len - sizeof(*udp) - sizeof(*bth) < extensions_len(roce->opcode))
		return false;

	roce->dma_len = 0;
	if (is_in(roce->opcode, OPS_RETH)) {
		struct reth *reth = take(at, sizeof(*reth));

		if (!reth)
			return false;
		roce->dma_len = bpf_ntohl(reth->dma_len);
	}
	roce->immediate = 0;
	if (is_in(roce->opcode, OPS_IMMEDIATE)) {
		__be32 *immediate = take(at, sizeof(*immediate));

		if (!immediate)
			return false;
		roce->immediate = bpf_ntohl(*immediate);
	}
	return true;
}
#endif
