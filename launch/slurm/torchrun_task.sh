#!/usr/bin/env bash
# torchrun arguments...: runs torchrun as a task of a SLURM step, and forwards SLURM's requests to stop after a checkpoint
# to its ranks. SLURM signals the task alone or, depending on its ProctrackType, every process below it. USR1 would end
# torchrun, and after TERM it gives its ranks 30 seconds.
set -uo pipefail
# shellcheck source=launch/slurm/job.sh
source "$(dirname "$0")/job.sh"

ask_ranks_to_stop() {
  local ranks
  interrupted=yes
  mapfile -d ' ' -t ranks < <(cat /proc/"$torchrun"/task/*/children)
  ((${#ranks[@]} == 0)) || kill -USR1 "${ranks[@]}"
}

trap '' USR1 # torchrun inherits this; adtrain installs a handler of its own
"$1" --log-dir="$logs/node-$SLURM_NODEID" --redirects=3 --tee=0:3 "${@:2}" & # one file per rank; the node's first rank is shown too
torchrun=$!
trap ask_ranks_to_stop USR1 TERM
end_of "$torchrun"
