#!/usr/bin/env bash
# Worker processes are killed while they train: one that is started again takes its rank and the run goes on, one that stays
# away is dropped by the job's policy. When the switch is killed and started again, workers end and say what is lost.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "$0")/../lib.sh"
require_machine jq

"$scripts/up.sh" 3 --config-out "$work/switch.toml"
cat >>"$work/switch.toml" <<-END
	[serene]
	address = "10.0.255.254"
	load = ["job.toml"]
END
cat >"$work/job.toml" <<-END
	[job]
	id = 1
	members = ["10.0.0.1:7001", "10.0.0.2:7001", "10.0.0.3:7001"]
	segments = 10
	lanes = 256
	[[policy]]
	when = "silent(worker) > 2s"
	then = "drop_member(worker)"
END
start_switch

declare -A workers
start_worker() { # NUMBER
	ip netns exec "$prefix-h$(($1 + 1))" "$symphony" train --job "$work/job.toml" --switch 10.0.255.254 --data digits \
		--hidden 32 --padding 5ms --worker "$1" >"$work/worker$1" 2>&1 &
	workers[$1]=$!
}
kill_worker() { # NUMBER; the process that trains is the only child of the one that was started, which tells its end
	pkill -KILL -P "${workers[$1]}"
	! wait "${workers[$1]}" || fail "worker $1 was killed, and nobody says so"
	grep -q "worker $1 ended without a word" "$work/worker$1" || fail "worker $1: $(cat "$work/worker$1")"
}
state() { ctl --json status | jq -e "$1"; }
goes_on() {
	local before
	before=$(state '.jobs[0].max_round')
	within 10 state ".jobs[0].max_round > $before + 20" || fail "$1: $(ctl status) $(tail -n 2 "$work"/worker?)"
}
says() {
	within 10 grep -q "$1" "$work/switch.err" || fail "the log does not say: $1"
}

for worker in 0 1 2; do start_worker $worker; done
goes_on "three workers do not train"

echo "killed, and started again"
kill_worker 2
start_worker 2
says 'worker 2 joined again: a new process'
goes_on "a restarted worker holds the others up"

echo "killed for good"
kill_worker 2
status=0
ctl swap --timeout 1 'ssp(3)' >"$work/swap" 2>&1 || status=$?
[ $status = 1 ] || fail "a swap that waits for a dead worker ends with status $status: $(cat "$work/swap")"
grep -q 'not in force after 1 s.*worker 2 has not pushed for it\|not in force after 1 s.*workers .*2' "$work/swap" ||
	fail "a swap that waits for a dead worker: $(cat "$work/swap")"
says 'WARN.*worker 2 dropped: silent for 2[0-9]* ms'
says 'complete: bsp of 3 workers -> ssp(3) of 2 workers'
goes_on "a dead worker holds the others up"

echo "and back after all, killed and started again while its membership is swapped in"
start_worker 2
says 'worker 2 asks to take part again'
kill_worker 2
start_worker 2
says 'complete: ssp(3) of 2 workers -> ssp(3) of 3 workers'
goes_on "a worker that came back holds the others up"

echo "the switch is killed"
kill -KILL "$switch_pid"
wait "$switch_pid" 2>/dev/null || true
start_switch
for worker in 0 1 2; do
	status=0
	timeout 10 tail --pid="${workers[$worker]}" -f /dev/null || fail "worker $worker hangs"
	wait "${workers[$worker]}" || status=$?
	[ $status = 2 ] || fail "worker $worker ends with status $status"
	grep -q 'the switch lost the sums of job 1 after round [1-9].*from a checkpoint' "$work/worker$worker" ||
		fail "worker $worker says: $(cat "$work/worker$worker")"
done
for worker in 0 1 2; do start_worker $worker; done
goes_on "nobody trains after the switch was killed"
stop_switch || fail "the switch ended with status $?"
check_conservation
