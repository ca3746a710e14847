#!/usr/bin/env bash
# The two examples are workers of one job: each prints the sum of both vectors. A worker that is killed between its
# contribution and the answer has a successor, and counts once. One that finds nobody says whom it asked for what.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "$0")/../lib.sh"
require_machine python3 jq

sum=${symphony%/symphony}/examples/sum
[ -x "$sum" ] || fail "$sum is not there; cargo build --example sum"
service=10.0.0.254:24190

"$scripts/up.sh" 2 --config-out "$work/switch.toml"
cat >>"$work/switch.toml" <<-END
	[serene]
	address = "10.0.0.254"
END
cat >"$work/job.toml" <<-END
	[job]
	id = 1
	members = ["10.0.0.1:7001", "10.0.0.2:7001"]
	segments = 1
	lanes = 8
	scale_log2 = 24
	start = "bsp"
END
start_switch

ctl job load "$work/job.toml" || fail "the job is not loaded"
on 2 python3 "$scripts/../examples/sum.py" $service 10.0.0.2:7001 1 0.5 2 -3 >"$work/python" 2>"$work/python.err" &
python=$!
on 1 "$sum" $service 10.0.0.1:7001 0 1.5 2 3 >"$work/rust" || fail "the Rust worker ends with status $?"
wait $python || fail "the Python worker says: $(cat "$work/python.err")"
[ "$(cat "$work/rust")" = "2 4 0 0 0 0 0 0" ] || fail "the Rust worker says: $(cat "$work/rust")"
[ "$(cat "$work/python")" = "2.0 4.0 0.0 0.0 0.0 0.0 0.0 0.0" ] || fail "the Python worker says: $(cat "$work/python")"

# A worker is killed while it waits for the other; its successor takes its place, and its contribution counts once.
ctl job unload 1 || fail "the job is not unloaded"
ctl job load "$work/job.toml" || fail "the job is not loaded again"
ip netns exec "$prefix-h1" "$sum" $service 10.0.0.1:7001 0 1 2>"$work/first.err" &
first=$!
pushed() { ctl --json status | jq -e '.jobs[0].max_round == 1'; }
within 10 pushed || fail "the first worker does not push: $(ctl --json status) $(cat "$work/first.err")"
kill -KILL $first
wait $first || true
on 1 "$sum" $service 10.0.0.1:7001 0 1 >"$work/second" 2>"$work/second.err" &
second=$!
on 2 "$sum" $service 10.0.0.2:7001 1 2 >"$work/other" || fail "the other worker ends with status $?"
wait $second || fail "the restarted worker says: $(cat "$work/second.err")"
grep -q '^3 ' "$work/other" || fail "the other worker says: $(cat "$work/other")"

status=0
on 1 "$sum" 10.0.0.253:24190 10.0.0.1:7001 0 1 2>"$work/nobody" || status=$?
[ $status = 1 ] || fail "with nobody at the address it ends with status $status"
grep -q '10.0.0.253:24190.*no answer to JOIN of job 1' "$work/nobody" || fail "it says: $(cat "$work/nobody")"

stop_switch || fail "the switch ends with status $?"
check_conservation
