#!/usr/bin/env bash
# Jobs and parameters change while packets flow; what cannot be is refused with a reason and status 2.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "$0")/../lib.sh"
require_machine nc jq

"$scripts/up.sh" 2 --config-out "$work/switch.toml" --jobs 1
start_switch
on 1 ping -c 100 -i 0.05 -W 1 10.0.0.2 >"$work/ping" &
ping=$!

ctl_json() { ctl --json "$@" | jq -e "$filter" >/dev/null; }
filter='.jobs | length == 1 and .[0].job == 1 and .[0].enabled'
ctl_json jobs || fail "the configured job is not there: $(ctl jobs)"
ctl job add --id 2 --ring 10.0.2.1,10.0.2.2 --step-size 64KiB || fail "job 2 is not added"
filter='[.jobs[].job] == [1, 2]'
ctl_json jobs || fail "after adding job 2: $(ctl jobs)"
ctl job disable 2 || fail "job 2 is not switched off"
filter='[.jobs[].enabled] == [true, false]'
ctl_json jobs || fail "after switching job 2 off: $(ctl jobs)"
ctl job enable 2 || fail "job 2 is not switched on"
ctl job remove 1 || fail "job 1 is not removed"
filter='[.jobs[].job] == [2]'
ctl_json jobs || fail "after removing job 1: $(ctl jobs)"
printf '[[job]]\nid = 7\nring = ["fd00::1:1", "fd00::1:2"]\n[[job]]\nid = 8\nring = ["fd00::2:1", "fd00::2:2"]\n' >"$work/jobs"
ctl job add "$work/jobs" || fail "jobs of a file are not added"
filter='[.jobs[].job] | sort == [2, 7, 8]'
ctl_json jobs || fail "after adding jobs 7 and 8: $(ctl jobs)"

refused() { # EXPECTED TEXT, then a command
	local expected=$1 status=0
	shift
	ctl "$@" 2>"$work/refused" || status=$?
	[ $status = 2 ] || fail "ctl $* ends with status $status"
	grep -q "$expected" "$work/refused" || fail "ctl $* says: $(cat "$work/refused")"
}
refused 'job' job add --id 2 --ring 10.0.9.1,10.0.9.2
refused 'edge' job add --id 9 --ring 10.0.2.1,10.0.2.2
refused 'job' job remove 77
refused 'did you mean .threshold.?' set treshold=1
refused 'threshold: -1 steps' set threshold=-1

filter='.symphony | .threshold == 0.25 and .gap == "50us" and .policy == "gold"'
ctl_json set threshold=0.25 gap=50us policy=gold || fail "parameters are not set"
ctl_json set || fail "parameters do not stay: $(ctl set)"
filter='.symphony.enabled == false'
ctl_json set enabled=false || fail "Symphony is not switched off"
grep -q 'conservation_rx: [1-9]' <<<"$(ctl stats)" || fail "ctl stats shows nothing received"
ctl flows >/dev/null || fail "ctl flows"

echo "abuse: garbage, and clients that hang"
socket=/run/symphony/$prefix.sock
[ "$(stat -c %a "$socket")" = 600 ] || fail "the socket is not private"
head -c 3000000 /dev/urandom | timeout 20 nc -N -U "$socket" >/dev/null || true
hanging=()
for _ in $(seq 40); do
	timeout 20 nc -U "$socket" >/dev/null </dev/zero &
	hanging+=($!)
done
sleep 0.5
kill "${hanging[@]}" 2>/dev/null || true
wait "${hanging[@]}" 2>/dev/null || true
within 15 switch_answers || fail "the control socket is dead after abuse"

wait $ping || fail "packets were lost meanwhile: $(tail -n 2 "$work/ping")"
grep -q '100 received' "$work/ping" || fail "packets were lost meanwhile: $(tail -n 2 "$work/ping")"
stop_switch || fail "the switch ended with status $?"
check_conservation
