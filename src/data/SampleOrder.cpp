#include "data/SampleOrder.h"

#include <bit>

#include "base/Error.h"

namespace adtrain {

SampleOrder::SampleOrder(int64_t samples, uint64_t seed) : samples_(samples), seed_(seed) {
  if (samples < 1) throw DataError("the data set holds no samples; expected at least one");
  const int bits = std::bit_width(static_cast<uint64_t>(samples - 1));
  half_bits_ = (bits + 1) / 2;
}

}  // namespace adtrain
