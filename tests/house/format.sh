#!/usr/bin/env bash
# Fails where clang-format would change a file; --fix changes it. Only version 14 is asked: versions disagree.
set -euo pipefail
cd "$(dirname "$0")/../.."

action=(--dry-run -Werror)
[[ ${1:-} != --fix ]] || action=(-i)
for tool in clang-format-14 clang-format; do
  if "$tool" --version 2>/dev/null | grep -q 'version 14\.'; then
    find src include tests \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
      xargs -0 "$tool" "${action[@]}"
    exit
  fi
done
echo "SKIPPED: no clang-format 14 on this machine"
exit 77
