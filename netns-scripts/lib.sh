# shellcheck shell=bash
# What the end-to-end cases share. A case sources this first; it then has a directory of its own, $work, and on any end
# everything it made is removed. A case ends with status 0 (passed), 77 (skipped, with the reason) or another (failed).
set -euo pipefail

readonly SKIPPED=77
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
symphony=${SYMPHONY_BIN:-$scripts/../target/debug/symphony}
prefix=${SYMPHONY_NS_PREFIX:-sym-case}
export SYMPHONY_NS_PREFIX=$prefix
work=$(mktemp -d)
switch_pid=

skip() {
	echo "SKIPPED: $*"
	exit $SKIPPED
}

fail() {
	echo "FAILED: $*"
	[ ! -s "$work/switch.err" ] || sed 's/^/  switch: /' "$work/switch.err" | tail -n 20
	exit 1
}

cleanup() {
	[ -z "$switch_pid" ] || kill "$switch_pid" 2>/dev/null || true
	[ "$(id -u)" != 0 ] || "$scripts/down.sh" || true
	rm -rf "$work"
}

# Whether this machine can run a switch at all; else the case is skipped.
require_machine() {
	[ "$(id -u)" = 0 ] || skip "needs root: sudo make test"
	[ -x "$symphony" ] || fail "$symphony is not there; cargo build"
	local broken
	broken=$("$symphony" check) || skip "this machine cannot run it: $(grep -A 1 '^FAILURE' <<<"$broken" | tr -s ' \n' ' ')"
	for tool in "$@"; do
		command -v "$tool" >/dev/null || skip "$tool is missing; .ci/setup installs it"
	done
}

# Runs a command on a host: on 1 ping ..
on() {
	local host=$1
	shift
	ip netns exec "$prefix-h$host" "$@"
}

ctl() {
	"$symphony" ctl --socket "/run/symphony/$prefix.sock" "$@"
}

# Waits until a command succeeds: within SECONDS COMMAND ..
within() {
	local tries=$(($1 * 20))
	shift
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.05
	done
}

# Starts the switch on $work/switch.toml and waits until it forwards. Its last words come to $work/switch.json.
start_switch() {
	ip netns exec "$prefix-sw" "$symphony" run --config "$work/switch.toml" --json \
		>"$work/switch.json" 2>"$work/switch.err" &
	switch_pid=$!
	within 10 switch_answers || fail "the switch does not start"
}

switch_answers() {
	kill -0 "$switch_pid" && ctl stats
}

# Ends it with SIGTERM and returns its status.
stop_switch() {
	local status=0
	kill -TERM "$switch_pid"
	wait "$switch_pid" || status=$?
	switch_pid=
	return $status
}

# The law of conservation in the last words of a switch that was stopped.
check_conservation() {
	jq -e '.conservation | .rx + .emitted + .replicas == .tx + .consumed + .dropped + .queued' "$work/switch.json" \
		>/dev/null || fail "packets are not conserved: $(jq -c .conservation "$work/switch.json")"
	jq -e '.conservation.rx > 0' "$work/switch.json" >/dev/null || fail "the switch saw no packet"
}

has_xdp() {
	grep -q 'prog/xdp' <<<"$(ip -n "$prefix-sw" -details link show)"
}

trap cleanup EXIT
trap 'exit 1' INT TERM
