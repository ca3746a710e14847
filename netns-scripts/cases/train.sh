#!/usr/bin/env bash
# Four workers train through the switch: with bsp every sum equals that of a single process, bit for bit; the model learns; a
# worker alone that is no member, or of another size, is told why not.
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

stop_switch || fail "the switch ended with status $?"
check_conservation
