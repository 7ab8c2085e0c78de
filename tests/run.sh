#!/usr/bin/env bash
# Sets up, builds everything and runs all tests. Arguments go to CTest: `bash tests/run.sh -R data`.
set -euo pipefail
cd "$(dirname "$0")/.."
source launch/steps.sh

bash launch/setup.sh
echo "Building"
build all
echo "Testing"
exec ctest --preset release --parallel 2 "$@"
