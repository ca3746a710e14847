#!/usr/bin/env bash
# Two aggregation jobs and a ring of RoCE on one switch at the same time: each sum and each reduced value is right. The job's
# strategy is swapped from the command line meanwhile, and tshark sees the switch's answers.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "$0")/../lib.sh"
require_machine jq tcpdump tshark

"$scripts/up.sh" 4 --config-out "$work/switch.toml" --jobs 1 --rate 200Mbit
printf '[serene]\naddress = "10.0.255.254"\n' >>"$work/switch.toml"
# 64 * 32 + 32 + 32 * 10 + 10 parameters in 10 packets.
cat >"$work/job.toml" <<-END
	[job]
	id = 3
	members = ["10.0.0.1:7001", "10.0.0.2:7001", "10.0.0.3:7001"]
	segments = 10
	lanes = 256
END
sed 's/id = 3/id = 4/; s/:7001/:7002/g' "$work/job.toml" >"$work/second.toml"
start_switch

refused() { # EXPECTED TEXT, then a command
	local expected=$1 status=0
	shift
	ctl "$@" 2>"$work/refused" || status=$?
	[ $status = 2 ] || fail "ctl $* ends with status $status"
	grep -q "$expected" "$work/refused" || fail "ctl $* says: $(cat "$work/refused")"
}
state() { ctl --json status | jq -e "$1" >/dev/null; }
train() { # JOB FILE ..
	local file=$1
	shift
	"$symphony" train --job "$work/$file.toml" --switch 10.0.255.254 --data digits --hidden 32 --learning-rate 0.2 --json \
		--netns-prefix "$prefix-h" "$@"
}

refused 'no aggregation job' swap bsp
ctl --json job load "$work/job.toml" | jq -e '.job == 3 and .done == "loaded"' >/dev/null || fail "the job is not loaded"
refused 'job 3' job load "$work/job.toml"
refused 'no aggregation job 9' swap --job 9 bsp
refused 'k' swap 'partial(k = 4)'
state '.jobs | length == 1 and .[0].strategy == "bsp" and (.[0].members | length == 3)' || fail "status: $(ctl status)"

echo "two jobs as bsp beside a ring: every sum is that of a single process, every reduced value is right"
ctl job load "$work/second.toml" || fail "the second job is not loaded"
refused '3, 4' swap bsp
ip netns exec "$prefix-h1" timeout 30 tcpdump -q -i eth0 -Q in -c 200 -w "$work/answers.pcap" \
	udp src port 24190 and dst port 7001 2>"$work/tcpdump" &
capture=$!
within 10 grep -q listening "$work/tcpdump" || fail "tcpdump says: $(cat "$work/tcpdump")"
train job --padding 0ms --rounds 200 --verify >"$work/train.json" 2>"$work/train.err" &
training=$!
train second --padding 0ms --rounds 200 --verify --seed 2 >"$work/second.json" 2>"$work/second.err" &
second=$!
within 10 state '.jobs[0].max_round > 5' || fail "no training: $(cat "$work/train.err")"
"$symphony" ring --json --job 1 --ring 10.0.1.1,10.0.1.2,10.0.1.3,10.0.1.4 --all \
	--netns "$prefix-h1,$prefix-h2,$prefix-h3,$prefix-h4" --bytes 1MiB --path-mtu 2048 --requests-per-step 1 \
	--line-rate 200Mbit >"$work/ring.json" 2>"$work/ring.err" || fail "ring: $(cat "$work"/ring.*)"
wait $training || fail "training: $(cat "$work"/train.*)"
wait $second || fail "training of the second job: $(cat "$work"/second.*)"
for job in train second; do
	jq -e '.rounds == 200 and .wrong_sums == 0' "$work/$job.json" >/dev/null ||
		fail "training: $(jq -c 'del(.workers, .curve)' "$work/$job.json")"
done
ctl job unload 4 || fail "the second job is not unloaded"
ctl flows --json | jq -e '.flows | length == 4 and all(.messages == 6 and .step == 6)' >/dev/null ||
	fail "steps are not tracked: $(ctl flows)"
wait $capture || fail "tcpdump ends with status $?"
# RESULT (version 1, type 1) of job 3 for worker 0, from the service to the member: 32 + 4 * 256 bytes.
tshark -r "$work/answers.pcap" -Y 'udp.length == 1064' -T fields -e ip.src -e ip.dst -e udp.dstport -e data.data 2>/dev/null |
	cut -c 1-80 >"$work/answers"
grep -qP '^10\.0\.255\.254\t10\.0\.0\.1\t7001\t11..0300' "$work/answers" || fail "answers: $(head -n 3 "$work/answers")"
! grep -vqP '^10\.0\.255\.254\t10\.0\.0\.1\t7001\t11..0300' "$work/answers" ||
	fail "answers for others: $(grep -vP '\t11..0300' "$work/answers" | head -n 3)"

echo "swaps while it trains"
train job --padding 5ms --seconds 5 >"$work/swaps.json" 2>"$work/swaps.err" &
training=$!
within 10 state '.jobs[0].max_round > 210' || fail "no training: $(cat "$work/swaps.err")"
for strategy in 'ssp(3)' 'partial(k = n-1, late = return)' asp bsp; do
	ctl --json swap "$strategy" 2>/dev/null |
		jq -e --arg to "$strategy" '.outcome == "stable" and .swap.to == $to and .swap.stable_at_ns > .swap.armed_at_ns' \
			>"$work/swap" || fail "swap to $strategy: $(cat "$work/swap")"
done
ctl --json swap bsp | jq -e '.outcome == "stable" and .swap == null' >/dev/null || fail "a swap to what is in force"
ctl --json trace | jq -e '.swaps | map(select(.cause == "asked for").to) |
	. == ["ssp(3)", "partial(k = n-1, late = return)", "asp", "bsp"]' >/dev/null || fail "trace: $(ctl trace)"
ctl --json trace | jq -e '.swaps | map(select(.outcome == "stable")) | map(.boundary) == (map(.boundary) | unique) and
	map(.version) == (map(.version) | unique)' >/dev/null || fail "trace: $(ctl trace)"
wait $training || fail "training: $(cat "$work"/swaps.*)"
grep -q 'complete: bsp of 3 workers -> ssp(3) of 3 workers' "$work/switch.err" || fail "the log says nothing of swaps"

ctl --json job unload 3 | jq -e '.done == "unloaded"' >/dev/null || fail "the job is not unloaded"
refused 'no aggregation job 3' job unload 3
stop_switch || fail "the switch ended with status $?"
check_conservation
