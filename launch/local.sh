#!/usr/bin/env bash
# Trains on the GPUs of this machine, one rank a GPU:
#   bash launch/local.sh configs/quickstart.yaml [arguments of adtrain]
# It checks the configuration, shows the GPUs, tests the ranks (`adtrain test`), and starts the training, with --resume where the
# run has checkpoints and neither --resume nor --overwrite is given. All output goes to runs/launch-logs/local-DATE-PROCESS/ too.
# Settings from the environment, in addition to those in training.sh:
#   GPUS    their ids, as in GPUS=0,2; else all visible ones
#   RANKS   how many; else one for each GPU, and a single one on the CPU without GPUs
set -euo pipefail
say() { printf 'local.sh: %s\n' "$*"; }
# shellcheck source=launch/training.sh
source "$(dirname "$0")/training.sh"

logs=runs/launch-logs/local-$(date +%Y-%m-%d-%H%M%S)-$$
find_training "$@"
[[ " ${*:2} " == *" --overwrite "* || " ${*:2} " == *" --resume "* ]] || ! has_checkpoints || training+=(--resume)
launch=("$adtrain" launch --logs "$logs" ${GPUS:+--gpu-ids "$GPUS"} ${RANKS:+--nproc "$RANKS"})
mkdir -p "$logs"

if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=index,name,memory.used,memory.total --format=csv || say "nvidia-smi does not work: is the driver loaded?"
fi
mapfile -t changes < <(overrides "${@:2}" | grep '^--set=device=' || true)
say "testing the ranks; the output is in $logs/test.log"
"${launch[@]}" test --largest 1 "${changes[@]}" >"$logs/test.log" 2>&1 || {
  status=$?
  tail -n 20 "$logs/test.log" >&2
  say "the test of the ranks ended with exit code $status, and training was not started" >&2
  exit "$status"
}
tail -n 1 "$logs/test.log"

say "training into $run_folder; the output is in $logs/training.log"
# The signals that ask for a checkpoint are for the launcher; the log goes on to its end.
exec {log}> >(trap '' INT TERM HUP USR1 && exec tee "$logs/training.log")
writer=$!
"${launch[@]}" "${training[@]:1}" >&"$log" 2>&1 {log}>&- &
launcher=$!
exec {log}>&-
interrupted=
# What a script starts in the background ignores INT.
trap 'interrupted=yes; kill -TERM "$launcher" 2>/dev/null' INT TERM HUP
trap 'interrupted=yes; kill -USR1 "$launcher" 2>/dev/null' USR1
interrupted=yes
while [[ -n $interrupted ]]; do
  interrupted=
  wait "$launcher" && status=0 || status=$?
done
wait "$writer" || true
((status != 75)) || say "stopped with a checkpoint; the same command continues"
exit "$status"
