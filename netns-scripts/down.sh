#!/usr/bin/env bash
# Removes what up.sh made with the same prefix, and the processes in it. Does nothing where there is nothing.
#
#   down.sh [--prefix NAME]
exec "$(dirname "$0")/up.sh" --down "$@"
