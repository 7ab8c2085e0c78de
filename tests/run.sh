#!/usr/bin/env bash
# Sets up, builds everything and runs all tests. Arguments go to CTest: `bash tests/run.sh -R data`.
set -euo pipefail
cd "$(dirname "$0")/.."
source launch/steps.sh

# CTest's own summary comes last; before it stands what it does not tell: which tests could not run here, and why.
tell_what_could_not_run() {
  local line summary=
  while IFS= read -r line; do
    if [[ $summary || $line =~ ^[0-9]+%\ tests\ passed ]]; then
      summary+=$line$'\n'
    else
      printf '%s\n' "$line"
    fi
  done
  awk -f tests/could_not_run.awk build/release/Testing/Temporary/LastTest.log
  printf '%s' "$summary"
}

bash launch/setup.sh --with-tests
echo "Building"
build all -DADTRAIN_BUILD_TESTS=ON
echo "Testing"
ctest --preset release --parallel "$(($(nproc) + 3))" "$@" | tell_what_could_not_run
