#include "kernels/cpu/CpuDropout.h"

#include <ATen/ATen.h>

#include "kernels/DropoutDraw.h"

namespace adtrain::kernels {

CpuDropout::CpuDropout(uint64_t call, double rate, const at::Tensor& sequences, int64_t rows_of_sequence)
    : call_(call), rate_(rate), sequences_(sequences), rows_of_sequence_(rows_of_sequence) {
  if (!sequences_.defined()) return;
  sequences_ = sequences_.contiguous();
  numbers_ = sequences_.const_data_ptr<int64_t>();
}

CpuDropout CpuDropout::drawn(double rate, int64_t sequences, int64_t rows) {
  if (rate == 0) return {0, rate, {}, 1};
  const DropoutDraw draw = DropoutDraw::next(sequences, at::kCPU);
  const auto seed = static_cast<uint64_t>(*draw.seed.const_data_ptr<int64_t>());
  return {seed_of(seed, draw.place), rate, draw.sequences, rows / sequences};
}

void CpuDropout::save(SavedData& data) const {
  data["dropout_call"] = static_cast<int64_t>(call_);
  data["dropout_rate"] = rate_.rate;
  data["dropout_sequences"] = sequences_;
  data["dropout_rows_of_sequence"] = rows_of_sequence_;
}

CpuDropout CpuDropout::saved(SavedData& data) {
  return {static_cast<uint64_t>(data.at("dropout_call").toInt()), data.at("dropout_rate").toDouble(),
          data.at("dropout_sequences").toTensor(), data.at("dropout_rows_of_sequence").toInt()};
}

}  // namespace adtrain::kernels
