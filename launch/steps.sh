# shellcheck shell=bash
# Sourced by the scripts of this project: a step prints what it does and how long it took. Its output is written to a
# log. The log's last line shows that the step is running, and its tail is printed if the step fails.

readonly logs=$PWD/build/logs
mkdir -p "$logs"
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

duration() { # seconds: prints them as minutes and seconds
  if (($1 < 60)); then echo "$1 s"; else printf '%d min %02d s\n' $(($1 / 60)) $(($1 % 60)); fi
}

last_line() { # log: its last line, cut to the width of the terminal
  tail -n 3 "$1" 2>/dev/null | tr '\r' '\n' | grep -v '^ *$' | tail -n 1 | cut -c "1-$((${COLUMNS:-100} - 30))"
}

show_progress() { # what log: every second on a terminal, every 30 seconds elsewhere; sleep must not hold a pipe open
  local begin=$SECONDS
  if [[ -t 1 ]]; then
    while sleep 1 >/dev/null 2>&1; do printf '\r\e[K  %s, %s: %s' "$1" "$(duration $((SECONDS - begin)))" "$(last_line "$2")"; done
  else
    while sleep 30 >/dev/null 2>&1; do printf '    %s: %s\n' "$(duration $((SECONDS - begin)))" "$(last_line "$2")"; done
  fi
}

step() { # name what command...: runs the command quietly; ends the script if it fails
  local log=$logs/$1.log what=$2 begin=$SECONDS status=0
  shift 2
  [[ -t 1 ]] || echo "  $what ..."
  show_progress "$what" "$log" &
  local progress=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$progress"
  wait "$progress" 2>/dev/null || true
  [[ ! -t 1 ]] || printf '\r\e[K'
  if ((status)); then
    printf '\n%s failed after %s (exit code %d). The end of %s:\n\n' \
      "$what" "$(duration $((SECONDS - begin)))" "$status" "$log" >&2
    tail -n 30 "$log" >&2
    exit "$status"
  fi
  echo "  $what: $(duration $((SECONDS - begin)))"
}

give_up() { # message: what was found; what was expected; what to do
  printf '\n%s\n' "$1" >&2
  exit 3
}

# target options of cmake...: configures if necessary and builds into build/release with as many jobs as cores and memory allow
build() {
  local memory jobs
  memory=$(awk '/MemAvailable/ {print int($2 / 2097152)}' /proc/meminfo) # 2 GiB per compiler
  jobs=$(nproc)
  ((memory >= jobs)) || jobs=$((memory > 0 ? memory : 1))
  step configure "Configuring build/release" cmake --preset release "${@:2}"
  sed -n '/stands on$/,/^-- $/s/^--//p' "$logs/configure.log"
  step build "Building $1 with $jobs jobs" cmake --build --preset release --target "$1" --parallel "$jobs"
}
