#!/usr/bin/env bash
# Ring all-reduces through the switch, over IPv4 and IPv6 and two jobs at once: every reduced value is right, the switch
# counts each step once, and nothing is lost.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "$0")/../lib.sh"
require_machine jq

"$scripts/up.sh" 4 --config-out "$work/switch.toml" --jobs 2 --rate 200Mbit
printf '[[job]]\nid = 6\nring = ["fd00::1", "fd00::2", "fd00::3", "fd00::4"]\n' >>"$work/switch.toml"
start_switch

hosts=$prefix-h1,$prefix-h2,$prefix-h3,$prefix-h4
ring() { # JOB RING
	"$symphony" ring --json --job "$1" --ring "$2" --all --netns "$hosts" --bytes 2MiB --path-mtu 2048 \
		--requests-per-step 1 --line-rate 200Mbit >"$work/ring$1.json" 2>"$work/ring$1.err"
}
ring 1 10.0.1.1,10.0.1.2,10.0.1.3,10.0.1.4 &
first=$!
ring 2 10.0.2.1,10.0.2.2,10.0.2.3,10.0.2.4 || fail "ring of job 2: $(cat "$work"/ring2.*)"
wait $first || fail "ring of job 1: $(cat "$work"/ring1.*)"
ring 6 fd00::1,fd00::2,fd00::3,fd00::4 || fail "ring over IPv6: $(cat "$work"/ring6.*)"

# 4 ranks: 6 steps of one message each on each edge, 256 packets a step.
ctl flows --json >"$work/flows"
jq -e '.flows | length == 12 and all(.messages == 6 and .step == 6)' "$work/flows" >/dev/null ||
	fail "steps are not tracked: $(ctl flows)"
jq -e '.flows | all(.packets == 6 * 256 + .retransmitted)' "$work/flows" >/dev/null ||
	fail "packets are not counted: $(ctl flows)"
ctl jobs --json | jq -e '.jobs | all(.min_step == 6 and .max_step == 6)' >/dev/null || fail "jobs: $(ctl jobs)"

stop_switch || fail "the switch ended with status $?"
check_conservation
lost='.drops | del(.link_local) | add == 0'
jq -e "$lost" "$work/switch.json" >/dev/null || fail "packets were lost: $(jq -c .drops "$work/switch.json")"
