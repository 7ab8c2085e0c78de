#include "collectives/Agreement.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

/// Of texts of several lines only those that some text lacks: what the ranks disagree about.
std::vector<std::string> without_common_lines(const std::vector<std::string>& texts) {
  std::map<std::string, size_t> holders;
  for (const std::string& text : texts) {
    std::set<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.insert(line);
    for (const std::string& line : lines) ++holders[line];
  }
  std::vector<std::string> shorter;
  for (const std::string& text : texts) {
    std::vector<std::string> differing;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      if (holders[line] < texts.size()) differing.push_back(line);
    }
    shorter.push_back(differing.empty() ? text : join(differing, ", "));
  }
  return shorter;
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text) {
  const at::Tensor lengths =
      communicator.all_gather(at::full({1}, static_cast<int64_t>(text.size()), at::kLong));
  at::Tensor padded = at::zeros({lengths.max().item<int64_t>()}, at::kByte);
  std::copy(text.begin(), text.end(), padded.data_ptr<uint8_t>());
  const at::Tensor all = communicator.all_gather(padded);

  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < communicator.world_size(); ++rank) {
    const auto length = static_cast<size_t>(lengths[rank].item<int64_t>());
    texts.emplace_back(reinterpret_cast<const char*>(all[rank].data_ptr<uint8_t>()), length);
  }
  return texts;
}

std::string text_of_root(Communicator& communicator, const std::string& text) {
  at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  communicator.broadcast(length, 0);
  at::Tensor bytes = at::zeros({length.item<int64_t>()}, at::kByte);
  if (communicator.is_root()) std::copy(text.begin(), text.end(), bytes.data_ptr<uint8_t>());
  communicator.broadcast(bytes, 0);
  const auto* first = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
  return {first, static_cast<size_t>(bytes.numel())};
}

void check_same(Communicator& communicator, const std::string& name, const std::string& value) {
  std::vector<std::string> values = gather_texts(communicator, value);
  if (std::ranges::all_of(values, [&](const std::string& other) { return other == value; })) return;
  values = without_common_lines(values);
  std::map<std::string, std::vector<std::string>> ranks_by_value;
  for (size_t rank = 0; rank < values.size(); ++rank)
    ranks_by_value[values[rank]].push_back(std::to_string(rank));

  std::vector<std::string> camps;
  for (const auto& [held, ranks] : ranks_by_value) {
    camps.push_back(fmt::format("'{}' on rank{} {}", held, ranks.size() > 1 ? "s" : "", join(ranks, ", ")));
  }
  throw EnvironmentError(
      fmt::format("The ranks disagree: {} is {}; every rank must be started alike, with the same files.",
                  name, join(camps, ", but ")));
}

}  // namespace adtrain
