#!/usr/bin/env bash
# libraries.sh PROGRAM TORCH: fails where the program would load libraries of CUDA from elsewhere than beside libtorch
# (TORCH is its folder), two files of one library, or looks in folders that are not there.
set -euo pipefail
program=$1 torch=$(realpath "$2")
failed=0
complain() {
  printf '%s\n' "$1" >&2
  failed=1
}

loaded=$(ldd "$program" | sed -n 's/^\t\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p')
if ! compgen -G "$torch/lib/libcudart*" >/dev/null && ! compgen -G "$torch/../nvidia/*/lib/libcudart*" >/dev/null; then
  echo "SKIPPED: this libtorch brings no libraries of CUDA along"
  exit 77
fi
while read -r name file; do
  file=$(realpath "$file")
  case $name in
    libcuda.so.* | libcurl.so.*) ;; # the driver's; HDF5's
    libcu* | libnv* | libnccl*)
      [[ $file == "$torch"/lib/* || $file == "$(dirname "$torch")"/nvidia/* ]] ||
        complain "$name is $file; expected the one beside libtorch in $torch"
      ;;
  esac
done <<<"$loaded"
twice=$(awk '{print $1}' <<<"$loaded" | sed 's/\.so.*//' | sort | uniq --repeated)
[[ -z $twice ]] || complain "two files of one library: ${twice//$'\n'/ }"

runpath=$(readelf --dynamic "$program" | sed -n 's/.*R\(UN\)\?PATH).*\[\(.*\)\]/\2/p')
IFS=: read -ra folders <<<"$runpath"
for folder in "${folders[@]}"; do
  [[ -d $folder ]] || complain "RUNPATH names '$folder', which is not there"
done
exit "$failed"
