#include "evaluation/Context.h"

#include <stdexcept>

#include "evaluation/RegionContext.h"
#include "evaluation/SlidingContext.h"

namespace adtrain {

Context::Latest Context::latest(int64_t /*columns*/) const {
  throw std::logic_error("regions of compressed context are not planned with");
}

std::unique_ptr<Context> Context::create(const ModelOptions& model, int64_t rows,
                                         const RollingPredictors& kept,
                                         std::optional<int64_t> forget_unrewarded) {
  if (model.compressed()) return std::make_unique<RegionContext>(rows, model.compress_interval);
  return std::make_unique<SlidingContext>(rows, model.n_transit, kept, forget_unrewarded);
}

}  // namespace adtrain
