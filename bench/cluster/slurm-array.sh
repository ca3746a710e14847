#!/bin/bash
# A sweep of the simulator as a Slurm array: each task runs a shard, the last job merges them.
#
#   SCENARIO=multi SEEDS=200 sbatch --array=0-31 bench/cluster/slurm-array.sh
#   sbatch --dependency=afterok:JOBID --wrap 'symphony sim merge sweep-multi/part-*.jsonl --report sweep-multi/page'
#
# A shard that failed can be run again by itself: sbatch --array=7 with SHARDS=32. Numbers of shards and of CPUs a task are
# independent; the merge says which run is missing.
#SBATCH --job-name=symphony-sim
#SBATCH --array=0-31
#SBATCH --cpus-per-task=4
#SBATCH --mem-per-cpu=1G
#SBATCH --time=02:00:00
set -euo pipefail

scenario=${SCENARIO:-straggler-3}
seeds=${SEEDS:-200}
shards=${SHARDS:-$SLURM_ARRAY_TASK_COUNT}
dir=${DIR:-sweep-$scenario}
mkdir -p "$dir"

# EXTRA: more options, for instance EXTRA="--cc hpcc300 --arm eager=t:0.25"; words are split on purpose.
# shellcheck disable=SC2086
exec "${SYMPHONY:-symphony}" sim "$scenario" --seeds "$seeds" ${EXTRA:-} \
	--shard "$SLURM_ARRAY_TASK_ID/$shards" --out "$dir/part-$SLURM_ARRAY_TASK_ID.jsonl" \
	--threads "${SLURM_CPUS_PER_TASK:-1}"
