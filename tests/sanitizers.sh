#!/usr/bin/env bash
# Builds with sanitizers and runs tests under them:
#   bash tests/sanitizers.sh asan-ubsan|tsan [--rooms base,data,… | --changed] [arguments of CTest]
# Without --rooms all of the suite is built and run, which takes long; with it the tests of these rooms alone are (also
# framework, interop and launchers), with --changed the unit tests of those that the commits of the last day have changed.
# asan-ubsan: memory, leaks, arithmetic; tsan: threads. Findings in third-party libraries, which are not built with
# sanitizers, are suppressed in tests/sanitizers/; nothing of this project is. GPU kernels are not instrumented, and
# ccache takes their objects from the release build.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  sed -n '2,8s/^# //p' "$0" >&2
  exit 2
}

rooms_changed() {
  local before room
  before=$(git rev-list -1 --before='24 hours ago' HEAD)
  git diff --name-only "${before:-$(git rev-list --max-parents=0 HEAD | tail -1)}" HEAD |
    sed -nE 's#^(src|tests)/([a-z]+)/.*#\2#p' | sort -u | while read -r room; do
      ! grep -qsE "^adtrain_tests\($room( |$)" "tests/$room/CMakeLists.txt" || echo "$room"
    done
}

# What the tests of a room run.
programs_of() {
  case $1 in
    framework) echo framework_ranks adtrain ;;
    interop) echo model_dump safetensors_copy tensorboard_sample ;;
    launchers) echo adtrain ;;
    *) echo "test_$1" ;;
  esac
}

preset=${1-}
[[ $preset == asan-ubsan || $preset == tsan ]] || usage
shift
rooms=() targets=() selection=()
case ${1-} in
  --rooms)
    (($# >= 2)) || usage
    IFS=, read -ra rooms <<<"$2"
    shift 2
    ;;
  --changed)
    mapfile -t rooms < <(rooms_changed)
    shift
    if ((${#rooms[@]} == 0)); then
      echo "No room has changed within a day."
      exit
    fi
    echo "Rooms that have changed within a day: ${rooms[*]}"
    ;;
esac
if ((${#rooms[@]} > 0)); then
  targets=(--target)
  for room in "${rooms[@]}"; do
    read -ra programs < <(programs_of "$room")
    targets+=("${programs[@]}")
  done
  selection=(-R "^($(IFS='|' && echo "${rooms[*]}"))\\.")
fi

suppressions=$PWD/tests/sanitizers
# Tests that crash a process on purpose, or ask for absurd memory, want the signal and the exception that users would get;
# any other crash fails them, too.
readonly crash=handle_segv=0:handle_sigfpe=0:handle_abort=0
# Some tests preload a library, which then comes before AddressSanitizer's and has none of its functions.
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1:verify_asan_link_order=0:$crash
# Open MPI unloads the modules whose memory it has lost, so that nothing tells it from ours: leaks are looked for in ranks
# of all other launchers.
export OMPI_MCA_mca_base_env_list=ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
export LSAN_OPTIONS=suppressions=$suppressions/leaks.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
# Libraries that are not instrumented make mutexes where others have been, which looks like misuse.
export TSAN_OPTIONS=suppressions=$suppressions/threads.supp:halt_on_error=1:report_mutex_bugs=0:second_deadlock_stack=1:allocator_may_return_null=1:$crash

cmake --preset "$preset" >/dev/null
nice cmake --build --preset "$preset" --parallel "${ADTRAIN_JOBS:-$(nproc)}" "${targets[@]}"
exec nice ctest --preset "$preset" "${selection[@]}" "$@"
