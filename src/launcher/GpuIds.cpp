#include "launcher/GpuIds.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "base/Words.h"

namespace adtrain {
namespace {

bool is_number(const std::string& id) {
  constexpr size_t kMostDigits = 4;
  return !id.empty() && id.size() <= kMostDigits &&
         std::ranges::all_of(id, [](unsigned char each) { return std::isdigit(each) != 0; });
}

bool is_uuid(const std::string& id) {
  constexpr size_t kPrefix = 4;
  return id.size() > kPrefix && (id.starts_with("GPU-") || id.starts_with("MIG-"));
}

/// Whether both stand for one GPU. A UUID may be cut short, and then means the only GPU that begins so.
bool same_gpu(const std::string& one, const std::string& other) {
  if (is_number(one) && is_number(other)) return std::stoi(one) == std::stoi(other);
  if (!is_uuid(one) || !is_uuid(other)) return false;
  const std::string first = to_lower(one), second = to_lower(other);
  return first.starts_with(second) || second.starts_with(first);
}

bool is_among(const std::vector<std::string>& ids, const std::string& id) {
  return std::ranges::any_of(ids, [&](const std::string& each) { return same_gpu(each, id); });
}

}  // namespace

GpuIds GpuIds::parse(const std::string& text, const std::optional<std::string>& visible) {
  GpuIds gpus;
  for (const std::string& id : between_commas(text)) {
    if (!is_number(id) && !is_uuid(id)) {
      throw ConfigError(fmt::format(
          "--gpu-ids: found '{}' in '{}'; expected numbers as in 0,2, or UUIDs as `nvidia-smi -L` "
          "shows them, with commas between them",
          abridged(id), abridged(text)));
    }
    if (is_among(gpus.ids_, id)) {
      throw ConfigError(fmt::format(
          "--gpu-ids: found GPU {} twice in '{}'; each rank needs a GPU of its own, so name each once", id,
          abridged(text)));
    }
    gpus.ids_.push_back(id);
  }
  if (!visible) return gpus;
  const std::vector<std::string> shown = between_commas(*visible);
  for (const std::string& id : gpus.ids_) {
    if (is_among(shown, id)) continue;
    throw ConfigError(
        fmt::format("--gpu-ids: GPU {} is not in CUDA_VISIBLE_DEVICES='{}', which hides all others from this "
                    "launch; name GPUs as that list does, or unset the variable",
                    id, abridged(*visible)));
  }
  return gpus;
}

std::string GpuIds::text() const {
  return join(ids_, ",");
}

void GpuIds::check_shown(int64_t shown) const {
  if (shown >= count()) return;
  if (shown == 0) {
    throw EnvironmentError(fmt::format(
        "--gpu-ids {}: CUDA shows none of these GPUs; `nvidia-smi -L` lists those of this host, and "
        "`adtrain env` says whether there is a driver",
        text()));
  }
  throw EnvironmentError(fmt::format(
      "--gpu-ids {}: CUDA shows {} of these {} GPUs, and stops at {}; expected GPUs of this host, which "
      "`nvidia-smi -L` lists (of MIG instances CUDA shows a process one alone)",
      text(), shown, count(), ids_[static_cast<size_t>(shown)]));
}

}  // namespace adtrain
