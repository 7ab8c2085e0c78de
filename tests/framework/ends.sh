#!/usr/bin/env bash
# ends.sh CODE COMMAND…: succeeds where the command ends with that exit code; shows the file `failure` that it leaves.
set -uo pipefail
expected=$1
shift
rm -f failure
"$@" >log 2>&1
found=$?
cat log
if [[ -f failure ]]; then
  echo "the file says:"
  cat failure
fi
((found == expected)) || { echo "the exit code is $found; expected $expected" && exit 1; }
