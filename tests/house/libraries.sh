#!/usr/bin/env bash
# libraries.sh PROGRAM TORCH: fails where the program would load libraries of CUDA from elsewhere than beside libtorch
# (TORCH is its folder), two files of one library, or looks in folders that are not there; where it loads the libraries of GPUs at
# every start (src/GpuLibraries.cmake), or calls a function that they do not have.
set -euo pipefail
program=$1 torch=$(realpath "$2")
failed=0
complain() {
  printf '%s\n' "$1" >&2
  failed=1
}

readonly of_gpus=$torch/lib/libtorch_cuda.so # and what it brings along
! ldd "$program" | grep -E 'libtorch_cuda|libcublasLt|libcudnn|libnccl' >&2 ||
  complain "these libraries are loaded where there is no GPU too, which takes a tenth of a second of each start"
bound=$(LD_PRELOAD=$of_gpus LD_BIND_NOW=1 "$program" --version 2>&1) || complain "with all functions bound at the start: $bound"

loaded=$(LD_PRELOAD=$of_gpus ldd "$program" | sed -n 's/^\t\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p')
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
