#!/usr/bin/env bash
# The switch outlives its ports, a killed one leaves nothing that hinders the next, and a second one is refused.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "$0")/../lib.sh"
require_machine jq

"$scripts/up.sh" 3 --config-out "$work/switch.toml"
start_switch
reaches() { on 1 ping -c 1 -W 1 10.0.0.2; }
within 5 reaches || fail "no way from host 1 to host 2"

if ip netns exec "$prefix-sw" "$symphony" run --config "$work/switch.toml" --duration 1 2>"$work/second"; then
	fail "a second switch on the same interfaces starts"
fi
grep -qi 'another switch answers\|busy' "$work/second" || fail "the second switch says: $(cat "$work/second")"
within 5 reaches || fail "the second switch has hurt the first"

echo "a port goes down and up, at either end"
for interface in "$prefix-sw:sw-h2" "$prefix-h2:eth0"; do
	ip -n "${interface%:*}" link set "${interface#*:}" down
	sleep 1
	switch_answers >/dev/null || fail "the switch dies with $interface down"
	ip -n "${interface%:*}" link set "${interface#*:}" up
	within 10 reaches || fail "no way after $interface was down"
done

echo "a host vanishes"
ip netns del "$prefix-h3"
within 5 eval "! ip -n $prefix-sw link show sw-h3" || fail "sw-h3 is still there"
within 5 reaches || fail "no way after another host vanished"
switch_answers >/dev/null || fail "the switch dies with a host"

echo "killed, and started again at once"
"$scripts/up.sh" 3 --config-out "$work/switch.toml" # ends the switch of these namespaces with SIGKILL, too
wait "$switch_pid" 2>/dev/null || true
start_switch
within 5 reaches || fail "no way from host 1 to host 2"
kill -KILL "$switch_pid"
wait "$switch_pid" 2>/dev/null || true
! has_xdp || fail "a killed switch leaves its XDP program"
start_switch
within 5 reaches || fail "no way after a kill"
for _ in 1 2 3; do
	kill -KILL "$switch_pid" # and not waited for: the kernel is still cleaning up
	start_switch
	within 5 reaches || fail "no way after a kill and a start in the same moment"
done

echo "signals end it cleanly"
kill -INT "$switch_pid"
kill -INT "$switch_pid" 2>/dev/null || true # as timeout(1) does: once itself, once with its group
wait "$switch_pid" || fail "SIGINT ends the switch with status $?"
switch_pid=
! has_xdp || fail "an XDP program is left behind"
check_conservation
