#include "kernels/plan/KernelPlan.h"

#include <utility>

#include <fmt/format.h>

#include "kernels/cpu/Vec.h"
#include "kernels/mlp/GeluProducts.h"

namespace adtrain::kernels {
namespace {

using Part = KernelPlan::Part;

constexpr const char* kStreaming = "our kernels, which stream keys and values";

}  // namespace

KernelPlan::KernelPlan(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type, Use own)
    : network_(network),
      device_(device),
      type_(type),
      missing_(own == Use::kNever ? MissingKernels::all("fused_kernels is off")
                                  : MissingKernels::of(network, device, type)) {
  const Blocks not_whole = missing_.sublayers ? Blocks::kLibrary : Blocks::kSublayers;
  blocks_ = missing_.whole_blocks ? not_whole : Blocks::kWhole;
}

bool KernelPlan::reads_masks() const {
  return blocks_ == Blocks::kLibrary || (by_sublayers() && !own_attention());
}

bool KernelPlan::streams_keys() const {
  return own_attention() && kernels::streams_keys(network_, type_);
}

bool KernelPlan::library_attention() const {
  if (!device_.is_gpu || whole_blocks() || cudnn_attention()) return false;
  // Our own attention runs in blocks by sublayers, and in all those of chosen pieces.
  const bool composed = network_.block == NetworkShape::Block::kComposed;
  return !own_attention() || !(by_sublayers() || composed);
}

std::string KernelPlan::summary() const {
  switch (blocks_) {
    case Blocks::kWhole:
      return "fused kernels, one operation a block";
    case Blocks::kSublayers: {
      std::string attention = "attention among them";
      if (cudnn_attention()) {
        attention = "cuDNN's attention";
      } else if (!own_attention()) {
        attention = fmt::format("libtorch's attention (own one: {})", *missing_.own_attention);
      }
      return fmt::format("{} products, kernels of our own between them, {} (fused ones: {})",
                         network_.quantised ? "weight-only" : "library", attention, *missing_.whole_blocks);
    }
    default:
      return fmt::format("library kernels (fused ones: {})", *missing_.whole_blocks);
  }
}

std::vector<Part> KernelPlan::parts_on_cpu() const {
  const auto part = [](const std::string& name, const std::string& own, const std::string& why) {
    return why.empty() ? Part{name, own, ""} : Part{name, "libtorch's operators", why};
  };
  const auto why = [&](int64_t size) {
    return type_ == at::kFloat && size % kLanes == 0
               ? std::string()
               : fmt::format("ours are for fp32 and multiples of {}", kLanes);
  };
  const std::string of_rows = !network_.is_ad() ? "ours are for model AD" : why(network_.width);
  const std::string of_heads =
      network_.padded ? "ours are for sequences without padding" : why(network_.head_size());
  return {part("norms", "vectorised, with what stands before them", of_rows),
          {"products", "libtorch's operators", ""},
          part("attention", "vectorised, without a matrix of scores", of_heads),
          part("MLP", "libtorch's products, the activation vectorised", of_rows)};
}

bool KernelPlan::gelu_in_epilogues() const {
  const bool gelu = network_.block == NetworkShape::Block::kPostNorm || network_.is_gpt2() || network_.gelu;
  const bool fits = !network_.drops_hidden || network_.inner_width % kGeluTileColumns == 0;
  return by_sublayers() && gelu && fits && !network_.quantised && device_.multiplies_by_warpgroups();
}

Part KernelPlan::attention_of_composed() const {
  if (own_attention() && network_.packed)
    return {"attention", std::string(kStreaming) + " of each history of a row", ""};
  if (own_attention()) return {"attention", kStreaming, ""};
  if (cudnn_attention()) return {"attention", "cuDNN's kernels, without a matrix of scores", ""};
  const std::string why = "cuDNN's: " + *missing_.cudnn_attention;
  if (network_.packed)
    return {"attention", "libtorch's kernels, by a mask of each row",
            why + "; ours: " + *missing_.own_attention};
  return {"attention", "libtorch's kernels", why};
}

std::vector<Part> KernelPlan::parts_of_quantised_blocks() const {
  const bool composed = network_.block == NetworkShape::Block::kComposed;
  const std::string why = by_sublayers() ? "" : "ours: " + *missing_.sublayers;
  const Part attention = composed && device_.is_gpu
                             ? attention_of_composed()
                             : Part{"attention", "libtorch's operators", "ours: " + std::string(kQuantised)};
  return {{"norms", by_sublayers() ? "one kernel with bias and residual" : "libtorch's operators", why},
          {"products", "weight-only products of quantised weights", ""},
          attention,
          {"MLP",
           by_sublayers() && network_.gelu ? "the same products, one kernel for the activation"
                                           : "the same products, the activation by libtorch's operators",
           why}};
}

std::vector<Part> KernelPlan::parts_of_blocks() const {
  if (network_.block == NetworkShape::Block::kOther)
    return {{"network", "libtorch's operators, as its author wrote it", ""}};
  if (network_.quantised) return parts_of_quantised_blocks();
  const bool composed = network_.block == NetworkShape::Block::kComposed;
  if (composed && !device_.is_gpu) return {{"blocks", "plain operators, vectorised where they fit", ""}};
  if (composed && !by_sublayers()) {
    return {{"blocks", "plain operators", fmt::format("ours: {}", *missing_.sublayers)},
            attention_of_composed()};
  }
  if (!device_.is_gpu) return parts_on_cpu();
  if (whole_blocks()) {
    const std::string within = "within the kernels of a whole block";
    return {{"norms", within, ""}, {"products", within, ""}, {"attention", within, ""}, {"MLP", within, ""}};
  }
  if (!by_sublayers()) {
    const std::string library = "libtorch's kernels", why = "ours: " + *missing_.sublayers;
    return {{"norms", library, why},
            {"products", library, why},
            {"attention", library, why},
            {"MLP", library, why}};
  }
  const std::string why = "whole blocks: " + *missing_.whole_blocks;
  Part attention = attention_of_composed();
  if (!composed) {
    const std::string own = kernels::streams_keys(network_, type_)
                                ? kStreaming
                                : "our kernels, keys and values resident in shared memory";
    attention = own_attention() ? Part{"attention", own, why}
                                : Part{"attention", "libtorch's kernels", "ours: " + *missing_.own_attention};
  }
  return {{"norms", "one kernel with bias, dropout and residual", why},
          {"products", "cuBLASLt, the fastest of its algorithms", why},
          attention,
          {"MLP",
           gelu_in_epilogues() ? "CUTLASS's products with GELU in their epilogue, and cuBLASLt's"
                               : "cuBLASLt's products, one kernel for the activation",
           why}};
}

std::vector<Part> KernelPlan::parts() const {
  const auto one_kernel = [](const std::string& name, const Why& why) {
    return why ? Part{name, "libtorch's operators", "ours: " + *why} : Part{name, "one kernel of ours", ""};
  };
  std::vector<Part> parts = {one_kernel("embedding", missing_.fused_embedding)};
  if (!network_.grids.empty()) {
    parts.push_back(
        missing_.fused_encoder
            ? one_kernel("observation encoder", missing_.fused_encoder)
            : Part{"observation encoder", "one kernel of ours, its first convolution by look-ups", ""});
  }
  for (Part& part : parts_of_blocks()) parts.push_back(std::move(part));
  parts.push_back(one_kernel("loss", missing_.fused_loss));
  if (network_.dynamics) {
    parts.push_back({"dynamics", "libtorch's operators", "ours: they are for the loss of actions alone"});
  }
  const std::string adamw = "AdamW over the flat buffer, ";
  parts.push_back(device_.is_gpu ? Part{"optimizer", adamw + "two kernels of ours", ""}
                                 : Part{"optimizer", adamw + "libtorch's operators", "ours is for GPUs"});
  return parts;
}

}  // namespace adtrain::kernels
