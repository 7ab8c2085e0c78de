#!/usr/bin/env bash
# Builds with sanitizers and runs tests under them:
#   bash tests/sanitizers.sh asan-ubsan|tsan [--rooms base,data,…] [arguments of CTest]
# Without --rooms all of the suite is built and run, which takes long; with it the unit tests of these rooms alone
# are. asan-ubsan: memory, leaks, arithmetic; tsan: threads. Findings in third-party libraries, which are not built
# with sanitizers, are suppressed in tests/sanitizers/; nothing of this project is. GPU kernels are not instrumented, and
# ccache takes their objects from the release build.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  sed -n '2,7s/^# //p' "$0" >&2
  exit 2
}

preset=${1-}
[[ $preset == asan-ubsan || $preset == tsan ]] || usage
shift
targets=() selection=()
if [[ ${1-} == --rooms ]]; then
  (($# >= 2)) || usage
  IFS=, read -ra rooms <<<"$2"
  shift 2
  targets=(--target "${rooms[@]/#/test_}")
  selection=(-R "^($(IFS='|' && echo "${rooms[*]}"))\\.")
fi

suppressions=$PWD/tests/sanitizers
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export LSAN_OPTIONS=suppressions=$suppressions/leaks.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=suppressions=$suppressions/threads.supp:halt_on_error=1:second_deadlock_stack=1

cmake --preset "$preset" >/dev/null
nice cmake --build --preset "$preset" --parallel "${ADTRAIN_JOBS:-$(nproc)}" "${targets[@]}"
exec nice ctest --preset "$preset" "${selection[@]}" "$@"
