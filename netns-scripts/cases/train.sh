#!/usr/bin/env bash
# Four workers train through the switch: with bsp every sum equals that of a single process, bit for bit; the model learns; a
# worker alone that is no member, or of another size, is told why not; when a process is killed, the others leave the job and
# say why.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "$0")/../lib.sh"
require_machine jq

"$scripts/up.sh" 4 --config-out "$work/switch.toml"
cat >>"$work/switch.toml" <<-END
	[serene]
	address = "10.0.255.254"
	load = ["job.toml"]
END
# 64 * 32 + 32 + 32 * 10 + 10 parameters in 10 packets.
cat >"$work/job.toml" <<-END
	[job]
	id = 1
	members = ["10.0.0.1:7001", "10.0.0.2:7001", "10.0.0.3:7001", "10.0.0.4:7001"]
	segments = 10
	lanes = 256
END
start_switch

train() {
	"$symphony" train --job "$work/job.toml" --switch 10.0.255.254 --data digits --hidden 32 --learning-rate 0.2 \
		--padding 0ms "$@"
}
status=0
train --netns-prefix "$prefix-h" --rounds 200 --verify --json >"$work/train.json" 2>"$work/train.err" || status=$?
[ $status = 0 ] || fail "training ended with status $status: $(cat "$work"/train.*)"
jq -e '.rounds == 200 and .wrong_sums == 0 and .accuracy > 0.8' "$work/train.json" >/dev/null ||
	fail "training: $(jq -c 'del(.workers, .curve)' "$work/train.json")"
jq -e '.workers | length == 4 and all(.rounds == 200 and .late == 0)' "$work/train.json" >/dev/null ||
	fail "workers: $(jq -c .workers "$work/train.json")"

if on 1 "$symphony" train --job "$work/job.toml" --switch 10.0.255.254 --data digits --hidden 8 --worker 0 2>"$work/size.err"; then
	fail "a network of another size is taken"
fi
grep -q 'takes segments = 3 of 256 lanes, and the job has 10' "$work/size.err" || fail "size: $(cat "$work/size.err")"

state() { ctl --json status | jq -e "$1"; }
start() {
	"$symphony" train --job "$work/job.toml" --switch 10.0.255.254 --data digits --hidden 32 --padding 5ms --seconds 60 \
		--netns-prefix "$prefix-h" >"$work/killed" 2>&1 &
	coordinator=$!
	within 10 state '.jobs[0] | .released > 200 and .wanted == "bsp" and .swap == null and (.members | all(.state == "joined"))' ||
		fail "no training: $(cat "$work/killed")"
}
echo "who started the workers is killed"
start
kill -KILL $coordinator
! wait $coordinator 2>/dev/null || fail "it was killed, and nobody says so"
within 5 state '.jobs[0].members | all(.state == "left")' || fail "workers: $(ctl status)"
for worker in 0 1 2 3; do
	within 5 grep -q "worker $worker of job 1 stopped, as .symphony train. that started it is gone$" "$work/killed" ||
		fail "killed: $(cat "$work/killed")"
done
echo "a worker is killed"
start
pkill -KILL -o -P $coordinator
status=0
wait $coordinator || status=$?
[ $status = 2 ] || fail "a worker was killed, and training ended with status $status"
grep -q '^symphony: worker 0 ended without a word (signal: 9 (SIGKILL))$' "$work/killed" || fail "killed: $(cat "$work/killed")"
within 5 state '.jobs[0].members | map(.state) == ["joined", "left", "left", "left"]' || fail "workers: $(ctl status)"

stop_switch || fail "the switch ended with status $?"
check_conservation
