#!/usr/bin/env bash
# How many packets a second the switch forwards, next to the Linux bridge on the same veths:
#
#   bridge      the Linux bridge
#   afxdp-off   symphony run with its function off: [symphony] enabled = false, no job
#   afxdp       symphony run with Symphony on, and all flows of a known job
#
#   CPU A                 |  CPU B
#   h1: packet source ----|--> sw-h1  forwarder  sw-h2 --> h2: sink, counts and drops
#   <---- at most 256 packets on their way, as many new ones as have arrived ---->
#
# All work on a packet is done on CPU B: receiving (NAPI, the XDP program), forwarding, sending. The source has CPU A to
# itself and always has a packet ready, so the figure is what one CPU can carry; it is checked that the source found the
# window full most of the time. Nothing is lost on the way, so every packet is tracked. Packets are RC WRITEs between two
# ranks of a ring, messages of 64, ECT(0), one packet of each flow in turn: the worst order for caches. The flows are spread
# over a message, so half of them lead by more than the threshold and are marked. A size is the RDMA payload of a packet;
# the frame has 58 bytes more.
#
# How to read it: compare forwarders within a row. A round measures each forwarder once, every other round in reverse order;
# figures are medians over the rounds, and the ratios are medians of the ratios within a round. The spread of on/off is its
# quartiles: on a machine that does other things too, a difference smaller than that says nothing. The absolute
# figures are those of veths, where AF_XDP copies each packet twice and builds a socket buffer to send it; a network card with
# zero-copy AF_XDP does neither. The sink's share, some 100 ns a packet, is in the figures of all forwarders.
set -euo pipefail

usage() {
	cat <<-END
	usage: forward.sh [--json] [--quick] [--rounds N]

	  --json      print one JSON object and nothing else: {"version":1,"rows":[{"forwarder":..,"size":..,"flows":..,"mpps":..}]}
	  --quick     under a minute: shorter, and 5 rounds
	  --rounds N  default 11
	END
}

die() {
	echo "forward.sh: $*" >&2
	exit 2
}

readonly FORWARDERS=(bridge afxdp-off afxdp)
readonly MOST_LIMITED_PCT=20 # refused attempts below this: the source may have been the limit
json=no
rounds=11
milliseconds=300
while [ $# -gt 0 ]; do
	case $1 in
	--json) json=yes ;;
	--quick) rounds=5 milliseconds=100 ;;
	--rounds)
		[[ ${2:-} =~ ^[1-9][0-9]{0,2}$ ]] || die "--rounds needs a number from 1 to 999"
		rounds=$2
		shift
		;;
	-h | --help)
		usage
		exit 0
		;;
	*) die "what is $1? see forward.sh --help" ;;
	esac
	shift
done

[ "$(id -u)" = 0 ] || die "network namespaces and XDP need root; run: sudo $0"
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin
for tool in cargo ip ethtool jq taskset pgrep; do
	command -v $tool >/dev/null || die "$tool is missing; .ci/setup says what to install"
done
# The first two CPUs that we may use.
mapfile -t cpus < <(taskset -pc $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }')
[ "${#cpus[@]}" -ge 2 ] || die "two CPUs are needed, one for the packet source and one for the forwarder"
readonly SOURCE_CPU=${cpus[0]} SWITCH_CPU=${cpus[1]}

cargo build --quiet --release --locked --bin symphony --example source || die "the build failed; .ci/setup says what it needs"
target=${CARGO_TARGET_DIR:-target}/release
symphony=$target/symphony
"$symphony" check >/dev/null || die "this machine cannot run the switch; symphony check says why"

prefix=${SYMPHONY_NS_PREFIX:-sym-bench}
work=$(mktemp -d)
switch_pid=

cleanup() {
	[ -z "$switch_pid" ] || kill "$switch_pid" 2>/dev/null || true
	netns-scripts/down.sh --prefix "$prefix" || true
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 2' INT TERM

progress() {
	[ ! -t 2 ] || printf '\r\033[K%s' "$*" >&2
}

warn() {
	echo "forward.sh: $*" >&2
}

in_switch() {
	ip netns exec "$prefix-sw" "$@"
}

make_network() {
	netns-scripts/up.sh --prefix "$prefix" --neighbours 2 >/dev/null
	# GRO makes the port run NAPI, also under the bridge: a veth takes no XDP frames otherwise, and that is how the source
	# sends. Threaded NAPI can be put on a CPU of its own.
	in_switch ethtool -K sw-h1 gro on >/dev/null
	in_switch sh -c 'echo 1 >/sys/class/net/sw-h1/threaded' || die "this kernel has no threaded NAPI (Linux 5.12 or newer has)"
}

write_configs() {
	local common
	common=$(
		cat <<-END
		[switch]
		name = "$prefix"
		control = "$work/switch.sock"

		[[port]]
		name = "h1"
		interface = "sw-h1"

		[[port]]
		name = "h2"
		interface = "sw-h2"
		END
	)
	printf '%s\n\n[symphony]\nenabled = false\n' "$common" >"$work/afxdp-off.toml"
	cat >"$work/afxdp.toml" <<-END
	$common

	[[job]]
	id = 1
	ring = ["10.0.0.1", "10.0.0.2"]
	packets_per_step = 64
	idle = "15ms"
	END
}

start() {
	if [ "$1" = bridge ]; then
		ip -n "$prefix-sw" link add bridge type bridge
		ip -n "$prefix-sw" link set sw-h1 master bridge
		ip -n "$prefix-sw" link set sw-h2 master bridge
		ip -n "$prefix-sw" link set bridge up
		return
	fi
	ip netns exec "$prefix-sw" taskset -c "$SWITCH_CPU" "$symphony" run --config "$work/$1.toml" --json \
		>"$work/switch.json" 2>"$work/switch.err" &
	switch_pid=$!
	local try
	for ((try = 0; try < 200; try++)); do
		"$symphony" ctl --socket "$work/switch.sock" stats >/dev/null 2>&1 && return
		kill -0 "$switch_pid" 2>/dev/null || break
		sleep 0.05
	done
	die "symphony run does not start: $(tail -n 3 "$work/switch.err")"
}

stop() {
	if [ "$1" = bridge ]; then
		ip -n "$prefix-sw" link del bridge
		return
	fi
	kill -TERM "$switch_pid"
	wait "$switch_pid" || die "symphony run failed: $(tail -n 3 "$work/switch.err")"
	switch_pid=
	# "on" must mean that packets were tracked, and "off" that none was.
	local tracked
	tracked=$(jq '100 * .kernel.in_order / (.kernel.redirected + 1) | floor' "$work/switch.json")
	case $1 in
	afxdp) [ "$tracked" -ge 95 ] || warn "only $tracked % of the packets were in order: the machine was too busy" ;;
	afxdp-off) [ "$tracked" = 0 ] || die "$tracked % of the packets were tracked though the function is off" ;;
	esac
}

# NAPI's thread comes with the port's NAPI instance, so it is looked for after each start.
pin_napi() {
	local pid
	for pid in $(pgrep '^napi/sw-h1-'); do
		taskset -pc "$SWITCH_CPU" "$pid" >/dev/null || true
	done
}

measure() {
	local forwarder=$1 round=$2
	start "$forwarder"
	pin_napi
	taskset -c "$SOURCE_CPU" "$target/examples/source" --prefix "$prefix" --milliseconds "$milliseconds" >"$work/lines" ||
		die "the packet source failed"
	while read -r size flows pps refused_pct lost; do
		[ "${refused_pct%.*}" -ge $MOST_LIMITED_PCT ] ||
			warn "$forwarder, $size bytes, $flows flows: the window was full at only $refused_pct % of attempts; the source may be the limit"
		[ "$lost" = 0 ] || warn "$forwarder, $size bytes, $flows flows: $lost packets lost"
		echo "{\"round\":$round,\"forwarder\":\"$forwarder\",\"size\":$size,\"flows\":$flows,\"mpps\":$pps}"
	done <"$work/lines" >>"$work/measured"
	stop "$forwarder"
}

# shellcheck disable=SC2016 # $ is jq's
readonly MEDIANS='
	def quantile($q): sort as $s | ($q * (($s | length) - 1)) as $i | ($i | floor) as $low
		| $s[$low] + ($i - $low) * (($s[$low + 1] // $s[$low]) - $s[$low]);
	def median: quantile(0.5);
	def rounded($n): . * $n | round / $n;
	map(.mpps /= 1e6)'

rows() {
	jq -cs "$MEDIANS"' | {version: 1, rows: (group_by([.size, .flows, .forwarder]) | map(
		(.[0] | {forwarder, size, flows}) + {mpps: (map(.mpps) | median | rounded(10000))}))}' "$work/measured"
}

table() {
	echo "$(nproc) CPUs, $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), Linux $(uname -r); load average $load_before before, $(cut -d ' ' -f 1 /proc/loadavg) after"
	echo "source on CPU $SOURCE_CPU, forwarder on CPU $SWITCH_CPU; millions of packets a second, medians of $rounds rounds of $milliseconds ms"
	echo
	printf '%6s %6s %9s %9s %9s %12s %9s %7s  %s\n' size flows bridge off on off/bridge on/bridge on/off '(quartiles)'
	jq -rs "$MEDIANS"' | group_by([.size, .flows])[] | . as $all
		| def of($name): map(select(.forwarder == $name)) | sort_by(.round) | map(.mpps);
		def per($a; $b): [of($a), of($b)] | transpose | map(.[0] / .[1]);
		per("afxdp"; "afxdp-off") as $cost
		| [.[0].size, .[0].flows, (of("bridge") | median), (of("afxdp-off") | median), (of("afxdp") | median),
		   (per("afxdp-off"; "bridge") | median), (per("afxdp"; "bridge") | median), ($cost | median),
		   ($cost | quantile(0.25)), ($cost | quantile(0.75))] | @tsv' "$work/measured" |
		while read -r size flows bridge off on off_bridge on_bridge on_off low high; do
			printf '%6d %6d %9.3f %9.3f %9.3f %12.2f %9.2f %7.3f  (%.3f to %.3f)\n' \
				"$size" "$flows" "$bridge" "$off" "$on" "$off_bridge" "$on_bridge" "$on_off" "$low" "$high"
		done
}

load_before=$(cut -d ' ' -f 1 /proc/loadavg)
write_configs
make_network
for ((round = 1; round <= rounds; round++)); do
	for ((i = 0; i < ${#FORWARDERS[@]}; i++)); do
		forwarder=${FORWARDERS[round % 2 ? i : ${#FORWARDERS[@]} - 1 - i]}
		progress "round $round of $rounds: $forwarder"
		measure "$forwarder" "$round"
	done
done
progress
if [ $json = yes ]; then rows; else table; fi
