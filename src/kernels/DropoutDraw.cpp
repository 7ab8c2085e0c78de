#include "kernels/DropoutDraw.h"

#include <limits>
#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Random.h"

namespace adtrain::kernels {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

thread_local DropoutStream* current = nullptr;

}  // namespace

DropoutScope::DropoutScope(DropoutStream& stream) : before_(std::exchange(current, &stream)) {}

DropoutScope::~DropoutScope() {
  current = before_;
}

DropoutStream* DropoutScope::stream() {
  return current;
}

DropoutDraw DropoutDraw::next(int64_t sequences, const at::Device& device) {
  DropoutStream alone;
  DropoutStream& stream = current != nullptr ? *current : alone;
  if (!stream.seed.defined()) {
    const auto numbers = at::TensorOptions(device).dtype(at::kLong);
    stream.seed = at::randint(kLargest, {1}, numbers);
    stream.sequences = at::arange(sequences, numbers);
  }
  if (stream.sequences.size(0) != sequences) {
    throw std::logic_error(fmt::format("Dropout of {} sequences in a pass over {}: masks follow sequences.",
                                       sequences, stream.sequences.size(0)));
  }
  return {stream.seed, stream.sequences, stream.next++};
}

at::Tensor DropoutDraw::of_whole_batch() const {
  constexpr auto kStep = static_cast<int64_t>(0x9e3779b97f4a7c15ULL);  // odd: other sequences, other seeds
  return at::add(seed, sequences.narrow(0, 0, 1), kStep)
      .bitwise_xor(static_cast<int64_t>(seed_of(0, place)))
      .bitwise_and(kLargest);
}

}  // namespace adtrain::kernels
