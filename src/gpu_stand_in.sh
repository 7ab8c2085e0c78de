#!/usr/bin/env bash
# gpu_stand_in.sh COMPILER NM RESULT LIBRARY...: makes the shared library RESULT, which has each function of the LIBRARYs, and does nothing
# (src/GpuLibraries.cmake).
set -euo pipefail
compiler=$1 nm=$2 result=$3
"$nm" --dynamic --defined-only "${@:4}" |
  awk '$2 ~ /^[TWi]$/ {
         sub(/@.*/, "", $3)  # the version: to name it would name the library
         if (!written[$3]++) printf ".globl \"%s\"\n.type \"%s\", @function\n\"%s\":\n", $3, $3, $3
       }' |
  "$compiler" -shared -nostdlib -Wl,-soname,libdl.so.2 -o "$result" -x assembler -
