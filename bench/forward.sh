#!/usr/bin/env bash
# How many packets a second the switch forwards, next to the Linux bridge on the same veths:
#
#   bridge      the Linux bridge
#   afxdp-off   symphony run with its function off: [symphony] enabled = false, no job
#   afxdp       symphony run with Symphony on, and all flows of a known job
#
#   CPU A                |  CPU B
#   h1: packet source ---|--> sw-h1  forwarder  sw-h2 --> h2: sink, counts and drops
#        <---------------- at most 192 packets are on their way ----------------
#
# All work on a packet is done on CPU B: receiving (NAPI, the XDP program), forwarding, sending, and the sink. The source has
# CPU A to itself and always has a packet ready, so the figure is what one CPU can carry. That the source is not the limit is
# checked: most of its attempts to send must find the 192 packets still on their way. Nothing is lost, so every packet is
# tracked; with plain overload the switch would be spared the work on what was dropped before it.
#
# The packets are RC WRITEs from one rank of a ring to the next, messages of 64 packets that end with an immediate, ECT(0), one
# packet of each flow in turn, which is the worst order for caches. Flows start at different places of a message, so that
# some lead and are marked. A size is the RDMA payload of a packet; its frame has 58 bytes more.
#
# How to read it: compare forwarders within a row. Off and on are the same process, switched over by symphony ctl between two
# measurements, which so are a fraction of a second apart; a round has two such pairs for each row, in the order off, on, on,
# off or the reverse. Figures are medians. on/off is the median over pairs, with the 95 % interval of that median (by ranks, so
# it assumes nothing but that pairs are independent); the ratios to the bridge are medians over rounds. The bridge's, NAPI's and
# the source's threads get the same real-time priority as symphony run gives itself, so that other load on the machine disturbs
# as little as can be.
#
# The limits: absolute figures are those of veths, where AF_XDP copies each packet twice and builds a socket buffer to send it,
# which a network card with zero-copy AF_XDP spares it. The sink's share is in all figures. In a switch that has more than one
# CPU, NAPI and the worker run side by side.
set -euo pipefail

usage() {
	cat <<-END
	usage: forward.sh [--json] [--quick] [--rounds N]

	  --json      print one JSON object and nothing else: {"version":1,"rows":[{"forwarder":..,"size":..,"flows":..,"mpps":..}]}
	  --quick     under a minute: 3 short rounds
	  --rounds N  default 25, which take 4 minutes
	END
}

die() {
	echo "forward.sh: $*" >&2
	exit 2
}

warn() {
	echo "forward.sh: $*" >&2
}

readonly ROWS=("64 1" "1024 1" "64 64" "1024 64" "64 4096" "1024 4096") # payload bytes and flows
readonly LEAST_REFUSED_PCT=20 # below this share of refused attempts the source may have been the limit
json=no
rounds=25
milliseconds=100
while [ $# -gt 0 ]; do
	case $1 in
	--json) json=yes ;;
	--quick) rounds=3 milliseconds=50 ;;
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
for tool in cargo ip ethtool jq taskset chrt pgrep; do
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

realtime=(chrt --rr 1)
"${realtime[@]}" true 2>/dev/null || {
	realtime=()
	warn "no right to real-time priority (CAP_SYS_NICE): other load on this machine disturbs more"
}
prefix=${SYMPHONY_NS_PREFIX:-sym-bench}
work=$(mktemp -d)
switch_pid=
source_pid=

cleanup() {
	[ -z "$source_pid" ] || kill "$source_pid" 2>/dev/null || true
	[ -z "$switch_pid" ] || kill "$switch_pid" 2>/dev/null || true
	netns-scripts/down.sh --prefix "$prefix" || true
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 2' INT TERM

progress() {
	[ ! -t 2 ] || printf '\r\033[K%s' "$*" >&2
}

in_switch() {
	ip netns exec "$prefix-sw" "$@"
}

make_network() {
	netns-scripts/up.sh --prefix "$prefix" --neighbours 2 >/dev/null
	# GRO makes the port run NAPI, also under the bridge: a veth takes no XDP frames otherwise, and that is how the source
	# sends. Threaded NAPI can be put on a CPU; else packets would be taken in on the source's.
	in_switch ethtool -K sw-h1 gro on >/dev/null
	thread_napi sw sw-h1
	thread_napi h2 eth0
}

thread_napi() {
	ip netns exec "$prefix-$1" sh -c "echo 1 >/sys/class/net/$2/threaded" ||
		die "this kernel has no threaded NAPI (Linux 5.12 or newer has)"
}

write_config() {
	cat >"$work/switch.toml" <<-END
	[switch]
	name = "$prefix"
	control = "$work/switch.sock"

	[[port]]
	name = "h1"
	interface = "sw-h1"

	[[port]]
	name = "h2"
	interface = "sw-h2"

	[symphony]
	enabled = false
	END
}

ctl() {
	"$symphony" ctl --socket "$work/switch.sock" "$@"
}

start_bridge() {
	ip -n "$prefix-sw" link add bridge type bridge
	ip -n "$prefix-sw" link set sw-h1 master bridge
	ip -n "$prefix-sw" link set sw-h2 master bridge
	ip -n "$prefix-sw" link set bridge up
	pin_napi
}

stop_bridge() {
	ip -n "$prefix-sw" link del bridge
}

start_switch() {
	ip netns exec "$prefix-sw" taskset -c "$SWITCH_CPU" "$symphony" run --config "$work/switch.toml" --json \
		>"$work/switch.json" 2>"$work/switch.err" &
	switch_pid=$!
	local try
	for ((try = 0; try < 200; try++)); do
		if ctl stats >/dev/null 2>&1; then
			pin_napi
			return
		fi
		kill -0 "$switch_pid" 2>/dev/null || break
		sleep 0.05
	done
	die "symphony run does not start: $(tail -n 3 "$work/switch.err")"
}

stop_switch() {
	kill -TERM "$switch_pid"
	wait "$switch_pid" || die "symphony run failed: $(tail -n 3 "$work/switch.err")"
	switch_pid=
}

# Its job comes anew each time, so that no state is left from the time before.
turn() {
	case $1 in
	on)
		ctl set enabled=true
		ctl job add --id 1 --ring 10.0.0.1,10.0.0.2 --packets-per-step 64 --idle 15ms
		;;
	off)
		ctl job remove 1
		ctl set enabled=false
		;;
	esac >/dev/null
}

# The threads come and go with NAPI, which a forwarder may switch off and on.
pin_napi() {
	local pid
	for pid in $(pgrep '^napi/(sw-h1|eth0)-'); do
		taskset -pc "$SWITCH_CPU" "$pid" >/dev/null || true
		[ ${#realtime[@]} = 0 ] || chrt --rr -p 1 "$pid" || true
	done
}

start_source() {
	coproc SOURCE {
		exec "${realtime[@]}" taskset -c "$SOURCE_CPU" "$target/examples/source" --prefix "$prefix" --milliseconds "$milliseconds"
	}
	source_pid=$!
}

# Measures a row: forwarder, its number, pair.
measure() {
	local forwarder=$1 row=$2 pair=$3 size flows pps refused_pct lost
	read -r size flows <<<"${ROWS[row]}"
	echo "$size $flows" >&"${SOURCE[1]}"
	read -r pps refused_pct lost <&"${SOURCE[0]}" || die "the packet source failed"
	if [ "$lost" != 0 ]; then
		stalled=$((stalled + 1))
		return
	fi
	[ "${refused_pct%.*}" -ge $LEAST_REFUSED_PCT ] ||
		warn "$forwarder, $size bytes, $flows flows: the window was full at only $refused_pct % of attempts; the source may be the limit"
	echo "{\"pair\":$pair,\"forwarder\":\"$forwarder\",\"size\":$size,\"flows\":$flows,\"mpps\":$pps}" >>"$work/measured"
}

# So many packets the switch has handed on so far, and so many of them moved their flows on.
tracked() {
	ctl --json stats | jq -r '[.kernel.redirected, .kernel.in_order + .kernel.resync] | @tsv'
}

# "On" must mean that packets are tracked, and "off" that none is.
measure_switch() {
	local before after redirected advanced
	before=$(tracked)
	measure "$@"
	after=$(tracked)
	read -r redirected advanced <<<"$(paste <(echo "$before") <(echo "$after") | awk '{ print $3 - $1, $4 - $2 }')"
	case $1 in
	afxdp) [ $((100 * advanced)) -ge $((98 * redirected)) ] || warn "only $advanced of $redirected packets moved their flows on" ;;
	afxdp-off) [ "$advanced" = 0 ] || die "$advanced packets were tracked though the function is off" ;;
	esac
}

measure_bridges_rows() {
	start_bridge
	for row in "${!ROWS[@]}"; do
		measure bridge "$row" $((2 * round))
	done
	stop_bridge
}

measure_switchs_rows() {
	start_switch
	for row in "${!ROWS[@]}"; do
		if (((round + row) % 2)); then
			measure_switch afxdp-off "$row" $((2 * round))
			turn on
			measure_switch afxdp "$row" $((2 * round))
			measure_switch afxdp "$row" $((2 * round + 1))
			turn off
			measure_switch afxdp-off "$row" $((2 * round + 1))
		else
			turn on
			measure_switch afxdp "$row" $((2 * round))
			turn off
			measure_switch afxdp-off "$row" $((2 * round))
			measure_switch afxdp-off "$row" $((2 * round + 1))
			turn on
			measure_switch afxdp "$row" $((2 * round + 1))
			turn off
		fi
	done
	stop_switch
}

# shellcheck disable=SC2016 # $ is jq's
readonly MEDIANS='
	def quantile($q): sort as $s | ($q * (($s | length) - 1)) as $i | ($i | floor) as $low
		| $s[$low] + ($i - $low) * (($s[$low + 1] // $s[$low]) - $s[$low]);
	def median: quantile(0.5);
	# The end of its 95 % interval: how many of n pairs lie below the median has a standard deviation of sqrt(n) / 2.
	def medians_bound($side): length as $n | quantile([[0.5 + $side * 0.98 / ($n | sqrt), 0] | max, 1] | min);
	def rounded($n): . * $n | round / $n;
	map(.mpps /= 1e6)'

rows() {
	jq -cs "$MEDIANS"' | {version: 1, rows: (group_by([.size, .flows, .forwarder]) | map(
		(.[0] | {forwarder, size, flows}) + {mpps: (map(.mpps) | median | rounded(10000))}))}' "$work/measured"
}

table() {
	echo "$(nproc) CPUs, $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), Linux $(uname -r); load average $load_before before, $(cut -d ' ' -f 1 /proc/loadavg) after"
	echo "source on CPU $SOURCE_CPU, forwarder on CPU $SWITCH_CPU; millions of packets a second, medians of $rounds rounds"
	echo
	printf '%6s %6s %9s %9s %9s %12s %9s %7s  %s\n' size flows bridge off on off/bridge on/bridge on/off '(95 % interval)'
	jq -rs "$MEDIANS"' | group_by([.size, .flows])[]
		| def of($name): map(select(.forwarder == $name).mpps);
		def per($a; $b): group_by(.pair) | map([of($a)[0], of($b)[0]] | select(all) | .[0] / .[1]);
		per("afxdp"; "afxdp-off") as $cost
		| [.[0].size, .[0].flows, (of("bridge") | median), (of("afxdp-off") | median), (of("afxdp") | median),
		   (per("afxdp-off"; "bridge") | median), (per("afxdp"; "bridge") | median), ($cost | median),
		   ($cost | medians_bound(-1)), ($cost | medians_bound(1))] | @tsv' "$work/measured" |
		while read -r size flows bridge off on off_bridge on_bridge on_off low high; do
			printf '%6d %6d %9.3f %9.3f %9.3f %12.2f %9.2f %7.3f  (%.3f to %.3f)\n' \
				"$size" "$flows" "$bridge" "$off" "$on" "$off_bridge" "$on_bridge" "$on_off" "$low" "$high"
		done
}

stalled=0
load_before=$(cut -d ' ' -f 1 /proc/loadavg)
write_config
make_network
start_source
for ((round = 1; round <= rounds; round++)); do
	progress "round $round of $rounds"
	if ((round % 2)); then
		measure_bridges_rows
		measure_switchs_rows
	else
		measure_switchs_rows
		measure_bridges_rows
	fi
done
progress
[ $stalled = 0 ] || warn "$stalled of $((rounds * ${#ROWS[@]} * 5)) measurements are left out: nothing arrived for 50 ms, so the machine was too busy"
[ "$(jq -s 'group_by([.size, .flows, .forwarder]) | length' "$work/measured")" = 18 ] || die "no figure for some rows; the machine is too busy"
if [ $json = yes ]; then rows; else table; fi
