#!/usr/bin/env bash
# Fuzzes what reads untrusted bytes: bash tests/fuzz/run.sh [seconds a target, default 60] [target...]
# New inputs stay in build/fuzz/corpus, inputs that break something in build/fuzz/finds: put these into
# tests/fuzz/corpus, where the tests run them from then on.
set -euo pipefail
cd "$(dirname "$0")/../.."
source launch/steps.sh

readonly packages=(clang-14 libclang-rt-14-dev)
readonly seconds=${1:-60}
shift $(($# > 0 ? 1 : 0))

install_clang() {
  local as_root=() missing=() package
  for package in "${packages[@]}"; do
    dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  ((${#missing[@]} > 0)) || return 0
  ((EUID == 0)) || as_root=(sudo)
  step fuzz-apt "Installing ${missing[*]}" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get --yes -o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}"
}

install_clang
step fuzz-configure "Configuring build/fuzz" cmake --preset fuzz
step fuzz-build "Building the fuzzers" cmake --build --preset fuzz

targets=("$@")
((${#targets[@]} > 0)) || mapfile -t targets < <(ls tests/fuzz/corpus)
mkdir -p build/fuzz/finds
failed=()
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  echo "  $target, $seconds s"
  ADTRAIN_FUZZ=$target TMPDIR=/dev/shm build/fuzz/bin/fuzz_inputs "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target" \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/finds/$target-" >"$logs/fuzz-$target.log" 2>&1 || failed+=("$target")
  grep -E '^(stat::number_of_executed_units|SUMMARY|Done|artifact_prefix)' "$logs/fuzz-$target.log" | sed 's/^/    /' || true
done
if ((${#failed[@]} > 0)); then
  give_up "Fuzzing broke ${failed[*]}: the inputs are in build/fuzz/finds, the reports in build/logs/fuzz-*.log.
Mend what they show and keep the inputs in tests/fuzz/corpus."
fi
