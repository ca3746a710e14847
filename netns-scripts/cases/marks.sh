#!/usr/bin/env bash
# What tshark sees behind a congested switch: CE on ECT data only, never on ACKs, CNPs or Not-ECT packets, and as often
# as the switch says. None at all with Symphony and RED off.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "$0")/../lib.sh"
require_machine jq tcpdump tshark

"$scripts/up.sh" 4 --config-out "$work/switch.toml" --jobs 1 --rate 40Mbit
sed -i 's/^rate = .*/&\necn = "off"/' "$work/switch.toml"
printf '[symphony]\nenabled = false\n' >>"$work/switch.toml"
hosts=$prefix-h1,$prefix-h2,$prefix-h3,$prefix-h4
start_switch

# A ring whose NICs are faster than the switch's ports, so that queues form; what arrives goes to $work/ce: ECN and
# opcode of each packet behind the switch.
run_ring() {
	local host captures=()
	for host in 1 2 3 4; do
		# Not through a function: \$! has to be tcpdump's number. At once, or what comes last waits up to a second for its block.
		ip netns exec "$prefix-h$host" tcpdump -q --immediate-mode -i eth0 -Q in -s 128 -B 16384 -w "$work/h$host.pcap" 2>"$work/tcpdump$host" &
		captures+=($!)
	done
	for host in 1 2 3 4; do
		within 5 grep -q 'listening on' "$work/tcpdump$host" || fail "tcpdump does not listen"
	done
	sleep 0.3 # longer than the job's idle time: it is armed with the next packet
	on 1 ping -q -i 0.01 -c 100 10.0.0.2 >"$work/ping" &
	"$symphony" ring --json --job 1 --ring 10.0.1.1,10.0.1.2,10.0.1.3,10.0.1.4 --all --netns "$hosts" \
		--bytes 1MiB --path-mtu 1024 --requests-per-step 1 --line-rate 80Mbit --run "$1" >"$work/ring.json" ||
		fail "ring: $(cat "$work/ring.json")"
	wait $! || fail "ping"
	sleep 0.3
	kill -TERM "${captures[@]}"
	wait "${captures[@]}" || true
	for host in 1 2 3 4; do
		grep -q '^0 packets dropped by kernel' "$work/tcpdump$host" || fail "tcpdump lost packets: $(cat "$work/tcpdump$host")"
		tshark -r "$work/h$host.pcap" -Y ip -T fields -e ip.dsfield.ecn -e infiniband.bth.opcode 2>/dev/null
	done >"$work/ecn"
}

# Packets with the ECN value $1 (3 is CE) whose BTH opcode matches $2 (empty: no RoCEv2).
count() {
	awk -F '\t' -v ecn="$1" -v opcode="^($2)\$" '$1 == ecn && $2 ~ opcode { n++ } END { print n + 0 }' "$work/ecn"
}
data='6|7|8|9|10|11' # RC RDMA WRITE
marks() { ctl stats --json | jq '.marks.red + .marks.symphony'; }

echo "both off"
run_ring 1
[ "$(count 3 '.*')" = 0 ] || fail "marks with Symphony and RED off"
[ "$(count 2 "$data")" -gt 1000 ] || fail "tshark sees no ECT data"
[ "$(marks)" = 0 ] || fail "the switch counts marks with Symphony and RED off"

echo "a coin instead of the lead test, on any queue"
ctl set enabled=true policy=blind blind_probability=0.5 queue=0 gap=0 >/dev/null
run_ring 2
marked=$(count 3 "$data")
[ "$marked" -gt 100 ] || fail "only $marked packets of data are marked"
[ "$(count 3 '.*')" = "$marked" ] || fail "something else than data is marked: $(sort "$work/ecn" | uniq -c)"
[ "$(($(count 0 17) + $(count 2 17)))" -gt 0 ] || fail "tshark sees no ACK"
[ "$(count 0 '')" -ge 100 ] || fail "tshark sees no ping"
[ "$(marks)" = "$marked" ] || fail "tshark sees $marked marks, the switch says $(marks)"

stop_switch || fail "the switch ended with status $?"
check_conservation
