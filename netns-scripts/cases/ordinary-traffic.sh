#!/usr/bin/env bash
# ping, ARP, neighbour discovery and TCP work through the switch, and nothing is lost on the way.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "$0")/../lib.sh"
require_machine nc jq

"$scripts/up.sh" 3 --config-out "$work/switch.toml"
start_switch
has_xdp || fail "no XDP program is attached"

# Neighbours are not known yet: ARP and ND come first.
for host in 2 3; do
	on 1 ping -c 3 -i 0.2 -W 2 "10.0.0.$host" || fail "ping over IPv4 to host $host"
	on 1 ping -c 3 -i 0.2 -W 2 "fd00::$host" || fail "ping over IPv6 to host $host"
done
grep -q 02:00:00:00:00:02 <<<"$(on 1 ip neighbour show 10.0.0.2)" || fail "ARP did not learn"
grep -q 02:00:00:00:00:03 <<<"$(on 1 ip -6 neighbour show fd00::3)" || fail "neighbour discovery did not learn"
on 2 ping -c 2 -i 0.2 -W 2 -s 2172 -M 'do' 10.0.0.3 || fail "a packet as large as the MTU takes"

listens() { [ -n "$(on 2 ss -Hltn 'sport = 5000')" ]; }

# TCP, both ways at once; a wrong checksum would stall it. The listener ends it: nc -l stops as soon as the other side
# has shut down, whatever itself has yet to send.
head -c 8000000 /dev/urandom >"$work/sent"
for family in 4:10.0.0.2 6:fd00::2; do
	on 2 timeout 30 nc -N "-${family%%:*}" -l 5000 <"$work/sent" >"$work/received" &
	listener=$!
	within 5 listens || fail "nc does not listen"
	on 1 timeout 30 nc "${family#*:}" 5000 <"$work/sent" >"$work/returned" || fail "TCP to ${family#*:}"
	wait $listener || fail "TCP from ${family#*:}"
	cmp "$work/sent" "$work/received" || fail "TCP to ${family#*:} changed bytes"
	cmp "$work/sent" "$work/returned" || fail "TCP from ${family#*:} changed bytes"
done

stop_switch || fail "the switch ended with status $?"
check_conservation
! has_xdp || fail "an XDP program is left behind"
[ ! -e "/run/symphony/$prefix.sock" ] || fail "the control socket is left behind"
