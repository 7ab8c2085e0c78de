#!/usr/bin/env bash
# torchrun arguments...: runs torchrun as a task of a SLURM step, and hands its ranks SLURM's requests to stop behind
# a checkpoint. SLURM signals the task alone or, depending on its ProctrackType, every process below it; torchrun would
# end by USR1, and upon TERM it leaves its ranks 30 seconds.
set -uo pipefail
# shellcheck source=launch/slurm/job.sh
source "$(dirname "$0")/job.sh"

ask_ranks_to_stop() {
  local ranks
  interrupted=yes
  mapfile -d ' ' -t ranks < <(cat /proc/"$torchrun"/task/*/children)
  ((${#ranks[@]} == 0)) || kill -USR1 "${ranks[@]}"
}

trap '' USR1 # torchrun inherits that; adtrain has a handler of its own
"$1" --log-dir="$logs/node-$SLURM_NODEID" --redirects=3 --tee=0:3 "${@:2}" & # a file a rank, the node's first seen too
torchrun=$!
trap ask_ranks_to_stop USR1 TERM
end_of "$torchrun"
