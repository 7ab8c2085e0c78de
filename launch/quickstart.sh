#!/usr/bin/env bash
# From a bare machine to an in-context learning curve: set up, build, collect histories, train on two ranks, evaluate.
#   bash launch/quickstart.sh          continues where an earlier call stopped; shows the results if that one finished
#   bash launch/quickstart.sh --fresh  starts over
set -euo pipefail
cd "$(dirname "$0")/.."
source launch/steps.sh

readonly adtrain=build/release/bin/adtrain config=configs/quickstart.yaml run=runs/quickstart
readonly curve=$run/evaluation/latest/learning_curve.png summary=$run/evaluation/latest/summary.json
# The ranks divide the cores among themselves; Open MPI would bind each to one, and count cores without hyper-threads.
readonly on_two_ranks=(mpirun -np 2 --oversubscribe --bind-to none)
if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

stage() { # what command...: like step, but shows the command's own output
  local what=$1 begin=$SECONDS
  shift
  printf '\n%s: %s\n' "$what" "$*"
  "$@" || {
    local status=$?
    printf '\n%s ended with exit code %d; this script, called again, goes on from there\n' "$what" "$status" >&2
    exit "$status"
  }
  echo "$what took $(duration $((SECONDS - begin)))"
}

figure() { sed -n "s/.*\"$1\": *\([-0-9.e]*\).*/\1/p" "$summary"; }

show_results() {
  printf '\nMean return of the last ten episodes: %.2f (a random policy gets %.2f, the best possible is %.2f)\n' \
    "$(figure last10_mean)" "$(figure random_floor)" "$(figure oracle)"
  echo "In-context learning curve: $curve"
  echo "The run: $run"
}

fresh=()
case ${1:-} in
  --fresh) fresh=(--overwrite) && rm -rf "$run" ;;
  '') ;;
  *) give_up "'$1' is not known here; the only option is --fresh, which starts over." ;;
esac
if [[ -e $summary && -e $curve ]]; then
  echo "The quickstart has run here already; \`bash launch/quickstart.sh --fresh\` starts over."
  show_results
  exit
fi

bash launch/setup.sh
echo "Building"
build adtrain
stage "Collecting learning histories" "$adtrain" collect "$config" "${fresh[@]}"
resume=()
if compgen -G "$run/checkpoints/step-*[0-9]" >/dev/null; then resume=(--resume); fi
stage "Training on two ranks" "${on_two_ranks[@]}" "$adtrain" "$config" "${resume[@]}"
stage "Evaluating in context on unseen tasks" "${on_two_ranks[@]}" "$adtrain" evaluate "$run"
show_results
