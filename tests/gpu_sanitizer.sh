#!/usr/bin/env bash
# Runs small cases of every family of kernels under NVIDIA's compute-sanitizer, on the first GPU, and prints a table:
#   bash tests/gpu_sanitizer.sh [--programs FOLDER] [--seconds N] [FAMILY…]
# memcheck: addresses; racecheck: shared memory that threads race for; synccheck: barriers. Kernels of this project alone
# are checked: libtorch's and cuBLAS's run as they are. All checks begin at once as far as there are cores, and what has
# not ended after N seconds (240) is stopped and said to be unfinished. FOLDER has the test programs (build/release/bin).
# Exits with 1 unless every check ended, ran a test and found nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=build/release/bin seconds=240 wanted=()
while (($# > 0)); do
  case $1 in
    --programs) programs=${2:?} && shift 2 ;;
    --seconds) seconds=${2:?} && shift 2 ;;
    -*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    *) wanted+=("$1") && shift ;;
  esac
done
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1 || true)
if [[ -z $sanitizer ]]; then
  echo "compute-sanitizer is neither on the PATH nor in /usr/local/cuda*/bin; it is part of the CUDA toolkit" >&2
  exit 2
fi

# family | program | tests (a filter of GoogleTest) | tools, where not all of them | cached, where tests capture CUDA graphs.
# racecheck orders accesses by how many barriers each thread has passed. Where a group of warps has no sequence, it passes
# fewer barriers of its own, and racecheck takes what a __syncthreads() separates for a race.
# Of kernels with warpgroup products (wgmma) it takes what barriers with phases order for races, too, or fails itself.
families() {
  cat <<'TABLE'
post-norm blocks|test_kernels|Shapes/FusedKernels.*/S7_T33_*:Shapes/FusedKernels.*/S4_T101_R137_*_dropout:Padded/FusedKernels.*/S7_T33_*
post-norm MLP, several tiles|test_kernels|Shapes/FusedKernels.MlpBackward*/S300_T164_*:Shapes/FusedKernels.MlpBackward*/S300_T80_R80_*
last token|test_kernels|Shapes/FusedKernels.*/S4_T101_R1_*:Shapes/FusedKernels.*/S600_T50_R1_*_causal*
last token, idle groups|test_kernels|Shapes/FusedKernels.*/S1_T1_R1_*:Shapes/FusedKernels.*/S5_T240_R1_*_causal*|memcheck synccheck
pre-norm blocks|test_kernels|Shapes/PreNormKernels.*/S7_T33_*:Shapes/PreNormKernels.*/S4_T101_R1_*:Widths/PreNormRows.*
resident attention|test_kernels|Shapes/MultiheadAttention.Operation*/S7_T33_*:Shapes/MultiheadAttention.Operation*/S4_T101_R137_*
streaming attention|test_kernels|StreamingShapes*/MultiheadAttention.IsTheReference/S3_T129_*:StreamingShapes*/MultiheadAttention.IsTheReference/S2_T700_*:StreamingShapes*/MultiheadAttention.IsTheReference/S2_T777_*_dropout*:StreamingShapes*/MultiheadAttention.IsTheReference/S5_T321_*:ShortShapesInFp16/MultiheadAttention.IsTheReference/S4_T50_*:StreamedAttention.*
decoding attention|test_kernels|Shapes/DecodingAttention.*:DecodingAttention.*
ends of a step|test_kernels|NormedHead.*
newest token|test_model|NewestPreviousToken.*
all blocks in one kernel|test_kernels|Networks/StackDecoders.*/one_row:Networks/StackDecoders.*/int8_of_eight|memcheck
encoder of grids|test_kernels|Shapes/SymbolicEncoder.*/of_digits:Shapes/SymbolicEncoder.*/of_xland_in_fp16:Shapes/SymbolicEncoder.*/of_one_digit
embedding|test_kernels|Shapes/StepEmbedding.*/narrow:Shapes/StepEmbedding.*/of_odd_sizes*:Shapes/StepEmbedding.*/of_a_large_grid:Shapes/TokenEmbedding.*/narrow:Shapes/TokenEmbedding.*/of_odd_sizes*:Shapes/TokenEmbedding.*/of_all_positions_narrow
loss|test_kernels|Shapes/LinearCrossEntropy.*
norms and activations|test_kernels|Shapes/MatrixRows.*_96_*:Shapes/MatrixRows.*_1032_dropout:Types/PreNormRowsOfSublayers.*
post-norm sublayers|test_kernels|Shapes/PostNormSublayers.*/S3_T21_*||cached
pre-norm sublayers|test_kernels|Shapes/PreNormSublayers.*/S3_T21_*:Shapes/Gpt2Sublayers.*/S3_T2*
chosen pieces|test_kernels|Pieces/ChosenPiecesBySublayers.*_21_*
dropout|test_kernels|DropoutMasks.*:RowDropout.*
optimizer|test_training|Cases/AdamWKernel.*_64*:Cases/AdamWKernel.*_20544*:LossSums.TheKernel*
batches|test_data|*GpuBatches.CutOnTheGpu*:GpuColumnBatches.*:PinnedCopy.*
quantised products|test_kernels|*QuantisedProduct.*:QuantisedMatrix.OfEveryCode*|memcheck synccheck
quantised products, norms, sums|test_kernels|QuantisedLinear.*|memcheck synccheck
hidden layers|test_kernels|Shapes/GeluLayers.*_96_*|memcheck synccheck
rollouts|test_evaluation|GpuRollout/GpuRollout_.*/OneLayerOneHead:GpuRollout/GpuRollout_.*/CompressedShort
collection|test_collection|GpuCollection.UpdatesAs*:Families/GpuHistoriesOf.*/darkroom_terminal
TABLE
}

records=$(mktemp -d)
trap 'rm -rf "$records"' EXIT
began=$(date +%s)
deadline=$((began + seconds))

# One check: leaves `status seconds` and the output in the records.
check() {
  local name=$1 program=$2 filter=$3 tool=$4 record=$records/$5 memory=$6 start left status=0
  : >"$record.output"
  start=$(date +%s)
  left=$((deadline - start))
  if ((left < 1)); then
    echo "124 0" >"$record.status"
    return
  fi
  # In libtorch's cache of memory a whole segment is one allocation for memcheck. Captured graphs need that cache.
  if [[ $tool == memcheck && $memory != cached ]]; then export PYTORCH_NO_CUDA_MEMORY_CACHING=1; fi
  timeout --kill-after=5 "$left" "$sanitizer" --tool "$tool" --kernel-name kns=adtrain --error-exitcode 86 \
    --print-limit 5 --kill "$programs/$program" --gtest_filter="$filter" --gtest_brief=1 >"$record.output" 2>&1 || status=$?
  echo "$status $(($(date +%s) - start))" >"$record.status"
}

is_wanted() {
  local family
  ((${#wanted[@]} == 0)) && return
  for family in "${wanted[@]}"; do [[ $1 == "$family" ]] && return; done
  return 1
}

cores=$(nproc)
places=$((cores / 2 > 1 ? cores / 2 : 1))
names=() tools=()
for tool in memcheck racecheck synccheck; do
  while IFS='|' read -r name program filter allowed memory; do
    is_wanted "$name" || continue
    [[ " ${allowed:-$tool} " == *" $tool "* ]] || continue
    while (($(jobs -rp | wc -l) >= places)); do wait -n || true; done
    check "$name" "$program" "$filter" "$tool" "${#names[@]}" "$memory" &
    names+=("$name") tools+=("$tool")
  done < <(families)
done
wait
if ((${#names[@]} == 0)); then
  echo "no family of kernels is called ${wanted[*]}; there are:" >&2
  families | cut -d'|' -f1 >&2
  exit 2
fi

printf '%-24s %-10s %6s %8s  %s\n' family tool tests seconds result
all_clean=0
for ((i = 0; i < ${#names[@]}; ++i)); do
  read -r status took <"$records/$i.status"
  output=$records/$i.output
  passed=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) tests?.*/\1/p' "$output" | tail -1)
  skipped=$(grep -c '^\[  SKIPPED \] [^0-9]' "$output" || true)
  summary=$(sed -nE 's/^=+ (ERROR|RACECHECK) SUMMARY: //p' "$output" | tail -1)
  if grep -q 'Internal Sanitizer Error' "$output"; then
    status=internal
  fi
  case $status in
    internal) result="not checked: compute-sanitizer itself failed" ;;
    0) ((${passed:-0} > 0 && ${skipped:-0} == 0)) && result=clean || result="no test ran" ;;
    86) result=${summary:-"findings"} ;;
    124 | 137) result=unfinished ;;
    *) result="exit status $status: a test failed, or could not run" ;;
  esac
  [[ $result == clean ]] || all_clean=1
  printf '%-24s %-10s %6s %8s  %s\n' "${names[i]}" "${tools[i]}" "${passed:-0}" "$took" "$result"
done
for ((i = 0; i < ${#names[@]}; ++i)); do
  read -r status _ <"$records/$i.status"
  if ((status == 0 || status == 124 || status == 137)); then continue; fi
  printf '\n%s, %s:\n' "${names[i]}" "${tools[i]}"
  grep -E '^=+|FAILED|Failure|error' "$records/$i.output" | sed -n 1,40p
done
echo "$("$sanitizer" --version | grep -i version | tail -1), $(($(date +%s) - began)) s"
exit "$all_clean"
