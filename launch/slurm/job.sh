# shellcheck shell=bash
# The common part of the job scripts in this folder, which source it. A job runs one step of adtrain. Where that stops on
# request, after a checkpoint, the job is requeued, and continues from the checkpoint when it starts again.
# Settings from the environment of sbatch:
#   ADTRAIN_MAX_REQUEUES   how often the job may requeue itself (20)
# and those of ../training.sh: ADTRAIN, ADTRAIN_MODULES, ADTRAIN_ENVIRONMENT.

launch_folder=$(dirname "${BASH_SOURCE[0]}")
readonly launch_folder
readonly logs=$SLURM_JOB_NAME-$SLURM_JOB_ID # a folder, where sbatch was called
readonly started=$EPOCHSECONDS # by this script: a job that was requeued has older logs too
readonly requeue_code=75                    # adtrain's exit code: stopped on request after a checkpoint
ended_by_scheduler=

say() { printf '%s: %s\n' "$SLURM_JOB_NAME" "$*"; }

# shellcheck source=launch/training.sh
source "$launch_folder/../training.sh"

# In a job array each task is a job of its own, and one of them has the array's number too: only this name means that task alone.
job_name() {
  if [[ -n ${SLURM_ARRAY_JOB_ID-} ]]; then echo "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; else echo "$SLURM_JOB_ID"; fi
}

starts_anew() { # arguments of adtrain...: this is the job's first start, and an existing run is to be overwritten
  [[ ${SLURM_RESTART_COUNT:-0} == 0 && " $* " == *" --overwrite "* ]]
}

# config arguments of adtrain...: sets `training`, the command of each rank, and `run_folder`. In a job array %a in the arguments
# is the task's number, as in sbatch's file names.
prepare() {
  find_training "${@//%a/${SLURM_ARRAY_TASK_ID-%a}}"
  if has_checkpoints && ! starts_anew "${@:2}"; then training+=(--resume); fi
  rm -f "$run_folder/requeue" # an earlier job's
  mkdir -p "$logs"
}

# process: waits for it, also if signals are handled meanwhile (the handlers set `interrupted`); returns its exit code.
end_of() {
  local status
  interrupted=yes
  while [[ -n $interrupted ]]; do
    interrupted=
    wait "$1" && status=0 || status=$?
  done
  return "$status"
}

# name command...: runs the command as every task of a step. Each task has a log, NAME-N.log; the first one's is copied
# to the job's log. SLURM sends the warning before the time limit (--signal) directly to the tasks.
# Returns the highest exit code of the tasks.
run_step() {
  local first_log=$logs/$1-0.log status=0 step
  touch "$first_log"
  # sbatch's --gres counts more than the script's --gpus-per-node, which would still reach srun by this variable.
  [[ ${SLURM_GPUS_PER_NODE-} == *"${SLURM_GPUS_ON_NODE-}" ]] || unset SLURM_GPUS_PER_NODE
  # The ranks need no MPI to connect. Since SLURM 22.05 srun needs --cpus-per-task again.
  srun --mpi=none --kill-on-bad-exit=1 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
    --input=none --open-mode=append --output="$logs/$1-%t.log" "${@:2}" &
  step=$!
  tail --lines=0 --follow --sleep-interval=0.2 --pid="$step" "$first_log" &
  # The scheduler sends SIGTERM, also to the tasks: the job was cancelled, or its nodes are needed for another job.
  trap 'interrupted=yes ended_by_scheduler=yes' TERM
  end_of "$step" || status=$?
  wait
  return "$status"
}

# status: of the step. One rank may be killed for another's exit code 75, and torchrun does not return that code. Then the
# file `requeue` that adtrain writes decides.
stopped_on_request() { (($1 == requeue_code)) || [[ -e $run_folder/requeue ]]; }

# status: of the step. srun returns the highest code of its tasks, also of one that it has ended itself because another had
# failed (143). The code of the rank that failed first is in the block at the end of all logs.
code_of_the_failure() {
  local code=
  if (($1 == 143)); then
    code=$(find "$logs" -name '*.log' -newermt "@$started" -exec tail -q -n 40 {} + |
      sed -n 's/^ *exit code *\([0-9][0-9]*\)$/\1/p' | tail -n 1)
  fi
  echo "${code:-$1}"
}

# status: of the step. Ends the job, or sends it back to the queue, once for all tasks.
finish() {
  local restarts=${SLURM_RESTART_COUNT:-0} allowed=${ADTRAIN_MAX_REQUEUES:-20} code
  if ! stopped_on_request "$1"; then
    code=$(code_of_the_failure "$1")
    ((code == 0)) || say "the step ended with exit code $code; the logs of all tasks are in $logs/" >&2
    exit "$code"
  fi
  if [[ -n $ended_by_scheduler ]]; then
    say "ended by the scheduler, after a checkpoint; the same job, submitted again, continues"
  elif ((restarts >= allowed)); then
    say "stopped with a checkpoint after $restarts restarts, and no more are allowed (ADTRAIN_MAX_REQUEUES);" \
      "the same job, submitted again, continues" >&2
  else
    say "stopped with a checkpoint; goes back to the queue for restart $((restarts + 1)) of at most $allowed"
    trap - TERM # the scheduler ends this script with it
    scontrol requeue "$(job_name)" && sleep 60
  fi
  exit "$requeue_code"
}
