#!/usr/bin/env bash
# Fails where the packages that docs/installing.md names for Debian are not those that launch/setup.sh installs.
set -euo pipefail
cd "$(dirname "$0")/../.."

installed() { bash launch/setup.sh --list "$@" | sed 's/^[A-Za-z ]*: //' | tr ' ' '\n' | sort; }

# shellcheck disable=SC2016 # backticks are Markdown's
# heading...: what stands in backticks in the first column of the tables so headed
documented() {
  local heading
  for heading; do
    awk -F'|' -v heading="$heading" '
      index($2, heading) { found = inside = 1; next }
      !/^\|/ { inside = 0 }
      inside { print $2 }
      END { if (!found) print "`no table is headed \"" heading "\"`" }' docs/installing.md
  done | grep -o '`[^`]*`' | tr -d '`' | sort
}

agree() { # what: compares two lists
  diff --unified=0 --label "launch/setup.sh, $1" --label "docs/installing.md, $1" "$2" "$3" >&2
}

readonly of_tests='numpy|h5py|safetensors|tensorboard|accelerate|pandas|stable-baselines3|flit_core|mujoco|imageio|minari|bitsandbytes'
agree "of the program" <(installed) \
  <(documented 'Debian 12, Ubuntu 24.04' "from Python's registry" | grep -vE "^($of_tests)==")
agree "with the tests'" <(installed --with-tests) \
  <(documented 'Debian 12, Ubuntu 24.04' 'for the tests alone' "from Python's registry")
