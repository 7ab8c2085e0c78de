#!/usr/bin/env bash
# Measures how training scales over the GPUs of this machine, in at most 9 minutes: both models of tests/benchmark on 1, 2, 4,
# … and all GPUs, weak and strong, adtrain and PyTorch. Runs that do not fit in the time are left out, and the table says so.
#   bash launch/scaling.sh [FOLDER [OPTION...]]   results.json, efficiency.svg and .png go to FOLDER, build/scaling if
#                                                 none is named; options are those of tests/benchmark/benchmark.py
set -euo pipefail
folder=$(realpath -m "${1:-$(dirname "$0")/../build/scaling}")
cd "$(dirname "$0")/.."
source launch/steps.sh

readonly program=build/release/bin/benchmark_step
python=.deps/venv/bin/python # made by launch/setup.sh, unless the system's Python has PyTorch
[[ -x $python ]] || python=python3
if [[ ! -x $program && $* != *--program* ]]; then
  bash launch/setup.sh --with-tests # the benchmark is one of the tests' targets
  build benchmark_step -DADTRAIN_BUILD_TESTS=ON
fi
exec "$python" tests/benchmark/benchmark.py --gpus all --minutes 9 --timeout 150 --steps 100 \
  --variants graphs-bf16,eager-bf16 --jax-python none --output "$folder" "${@:2}"
