#!/usr/bin/env bash
# Runs the end-to-end cases, each in fresh namespaces: all of cases/, or those named.
#
#   run-all.sh [NAME ..]        SYMPHONY_BIN: the binary (default target/debug/symphony)
#
# Status: 0 all passed, 1 one failed, 77 none failed but one was skipped (it says why: no root, no XDP).
set -uo pipefail
cd "$(dirname "$0")" || exit 1
readonly SKIPPED=77 SECONDS_EACH=120

passed=0 failed=0 skipped=0
if [ $# -gt 0 ]; then cases=("${@/#/cases/}") && cases=("${cases[@]/%/.sh}"); else cases=(cases/*.sh); fi
output=$(mktemp)
runner=
trap 'rm -f "$output"' EXIT
trap '[ -z "$runner" ] || kill -TERM "$runner"; exit 1' INT TERM

for case in "${cases[@]}"; do
	name=$(basename "$case" .sh)
	start=$SECONDS
	SYMPHONY_NS_PREFIX=sym-$name timeout -k 10 $SECONDS_EACH bash "$case" >"$output" 2>&1 &
	runner=$!
	wait $runner
	status=$?
	runner=
	took=$((SECONDS - start))
	case $status in
	0) passed=$((passed + 1)) && echo "case $name ... ok ($took s)" ;;
	"$SKIPPED") skipped=$((skipped + 1)) && echo "case $name ... $(tail -n 1 "$output")" ;;
	*)
		failed=$((failed + 1))
		[ $status != 124 ] || echo "it took longer than $SECONDS_EACH s" >>"$output"
		echo "case $name ... FAILED (status $status, $took s)"
		sed 's/^/    /' "$output"
		;;
	esac
	# A case that was killed could not clean up.
	[ "$(id -u)" != 0 ] || ./down.sh --prefix "sym-$name" || true
done

[ $skipped = 0 ] || echo "$skipped cases were skipped for the reasons above; nothing is proved by them"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] || exit 1
[ $skipped = 0 ] || exit $SKIPPED
