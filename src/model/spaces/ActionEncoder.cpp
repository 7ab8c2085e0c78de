#include "model/spaces/ActionEncoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace adtrain {
namespace {

const std::string kName = "action";

}  // namespace

ActionEncoder::ActionEncoder(ParameterFactory& factory, const ModelOptions& options, const Space& space,
                             int64_t features, const Initialisation& initial) {
  const bool vintix = options.block() == TransformerBlock::kVintix;
  if (space.kind == Space::Kind::kBox) {
    of_vectors_ = vintix ? VectorEncoder::mlp(factory, kName, space.size(), features, initial)
                         : VectorEncoder::linear(factory, kName, space.size(), features, initial);
    return;
  }
  counted_.emplace(space);
  for (const int64_t values : space.values) {
    tables_.push_back(initial.outer_embedding(factory, fmt::format("{}.embed_{}", kName, tables_.size() + 1),
                                              values, features));
  }
  if (vintix) linear_ = initial.outer_linear(factory, kName + ".linear", features, features);
}

at::Tensor ActionEncoder::operator()(const at::Tensor& actions) const {
  if (of_vectors_) return (*of_vectors_)(actions);
  const at::Tensor numbers =
      (*counted_)(actions).clamp_min(0).reshape({actions.size(0), actions.size(1), -1});
  at::Tensor features = tables_.front()(numbers.select(-1, 0));
  for (size_t element = 1; element < tables_.size(); ++element) {
    features = features + tables_[element](numbers.select(-1, static_cast<int64_t>(element)));
  }
  return linear_.weight.defined() ? at::leaky_relu(linear_(features)) : features;
}

}  // namespace adtrain
