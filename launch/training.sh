# shellcheck shell=bash
# What the scripts that start a training have in common: local.sh beside it, and slurm/job.sh. They source it.
# Settings from the environment:
#   ADTRAIN               the program; else the build's, else the one in PATH
#   ADTRAIN_MODULES       environment modules to load first: "cuda/13 openmpi"
#   ADTRAIN_ENVIRONMENT   a file of shell lines to source first

training_folder=$(dirname "${BASH_SOURCE[0]}")
readonly training_folder

# Must be defined by the script that sources this one: say MESSAGE.
give_up() { # message
  say "$1" >&2
  exit 2
}

first_program() { # candidates...: the first that can be run, else the last, for which the shell then reports an error
  local candidate
  for candidate; do
    if [[ -n $candidate ]] && command -v "$candidate" >/dev/null; then break; fi
  done
  echo "$candidate"
}

# A script's shell may lack the command `module`, which login shells define by one of these files.
define_module() {
  local file
  for file in "${MODULESHOME-}/init/bash" "${LMOD_PKG-}/init/bash" /etc/profile.d/modules.sh /etc/profile.d/lmod.sh \
    /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash; do
    ! declare -F module >/dev/null || return 0
    # shellcheck source=/dev/null
    if [[ -r $file ]]; then source "$file"; fi
  done
  declare -F module >/dev/null
}

# Loads modules and sources a file, as the settings say. Neither was written for a shell that ends at unset variables and errors.
prepare_environment() {
  local status=0 modules
  if [[ -n ${ADTRAIN_MODULES-} ]]; then
    read -ra modules <<<"$ADTRAIN_MODULES"
    set +eu
    define_module || give_up "ADTRAIN_MODULES is set, and this shell has no command \`module\`: set MODULESHOME, or define it in a file that ADTRAIN_ENVIRONMENT names"
    module load "${modules[@]}" || status=$?
    set -eu
    ((status == 0)) || give_up "\`module load $ADTRAIN_MODULES\` (ADTRAIN_MODULES) ended with exit code $status; \`module avail\` lists what there is"
  fi
  if [[ -n ${ADTRAIN_ENVIRONMENT-} ]]; then
    [[ -r $ADTRAIN_ENVIRONMENT ]] || give_up "ADTRAIN_ENVIRONMENT names $ADTRAIN_ENVIRONMENT, which cannot be read; expected a file of shell lines"
    set +eu
    # shellcheck source=/dev/null
    source "$ADTRAIN_ENVIRONMENT" || status=$?
    set -eu
    ((status == 0)) || give_up "$ADTRAIN_ENVIRONMENT (ADTRAIN_ENVIRONMENT) ended with exit code $status"
  fi
}

overrides() { # arguments of adtrain...: those that change the configuration or what it may name, one per line
  while (($#)); do
    case $1 in
      --set=* | --plugin=*) printf '%s\n' "$1" ;;
      --set | --plugin) printf '%s\n' "$1=${2-}" && shift ;;
    esac
    shift
  done
}

# config arguments of adtrain...: the run's folder; ends with an error if the configuration is wrong. A run that is continued does
# not read its init_from again, which may be gone: the training itself says so where it needs it.
run_folder_of() {
  local resolved changes
  mapfile -t changes < <(overrides "${@:2}")
  resolved=$("$adtrain" validate "$1" "${changes[@]}" --set=init_from=null) || exit
  sed -n 's/^# .* is valid: the run would live in \(.*\), with histories from .*/\1/p' <<<"$resolved"
}

has_checkpoints() { compgen -G "$run_folder/checkpoints/step-*[0-9]" >/dev/null; }

# config arguments of adtrain...: sets `adtrain`, `run_folder` and `training`, the command of each rank.
find_training() {
  (($#)) || give_up "no configuration was given; it follows the script: … SCRIPT configs/quickstart.yaml"
  prepare_environment
  adtrain=$(first_program "${ADTRAIN-}" "$training_folder/../build/release/bin/adtrain" adtrain)
  run_folder=$(run_folder_of "$@") || exit
  # shellcheck disable=SC2034 # the scripts that source this one use it
  training=("$adtrain" "$@")
}
