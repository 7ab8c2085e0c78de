#include "selftest/CollectiveCheck.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Clock.h"
#include "collectives/Agreement.h"

namespace adtrain {
namespace {

/// A prime, so that a misplaced piece differs whatever the size of pieces.
constexpr int64_t kPatternPeriod = 997;
constexpr int64_t kTimedBytes = 64 << 20;
constexpr int64_t kFewestRepeats = 3;
constexpr int64_t kMostRepeats = 50;

/// 0, 1, … 996, 0, 1, … in fp32: sums over thousands of ranks are exact.
at::Tensor pattern(int64_t elements, at::Device device) {
  const at::Tensor period = at::arange(kPatternPeriod, at::dtype(at::kFloat).device(device));
  return period.repeat({(elements + kPatternPeriod - 1) / kPatternPeriod}).narrow(0, 0, elements);
}

/// A sentence about the first element that differs; empty where none does.
std::string difference(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor wrong = at::ne(found, expected).nonzero().view(-1);
  if (wrong.numel() == 0) return "";
  const int64_t first = wrong[0].item<int64_t>();
  return fmt::format("{} of {} elements wrong, the first at {}: found {}, expected {}", wrong.numel(),
                     found.numel(), first, found[first].item<float>(), expected[first].item<float>());
}

/// Collective.
std::vector<std::string> faults_of_all(Communicator& communicator, const std::string& fault) {
  const std::vector<std::string> faults = gather_texts(communicator, fault);
  std::vector<std::string> found;
  for (size_t rank = 0; rank < faults.size(); ++rank) {
    if (!faults[rank].empty()) found.push_back(fmt::format("rank {}: {}", rank, faults[rank]));
  }
  return found;
}

/// Seconds of one all-reduce, back to back with others, on the slowest rank. Collective.
double seconds_of_sum(Communicator& communicator, at::Tensor& tensor) {
  const int64_t repeats =
      std::clamp(kTimedBytes / static_cast<int64_t>(tensor.nbytes()), kFewestRepeats, kMostRepeats);
  tensor.zero_();  // zeros stay zeros in repeated sums
  communicator.synchronize();
  communicator.barrier();
  const Stopwatch watch;
  for (int64_t i = 0; i < repeats; ++i) communicator.all_reduce(tensor, ReduceOp::kSum);
  communicator.synchronize();
  at::Tensor slowest = at::full({1}, watch.seconds() / static_cast<double>(repeats), at::kDouble);
  communicator.all_reduce(slowest, ReduceOp::kMax);
  return slowest.item<double>();
}

}  // namespace

CollectiveFigures check_broadcast(Communicator& communicator, int64_t bytes) {
  const at::Tensor plain = pattern(bytes / static_cast<int64_t>(sizeof(float)), communicator.device());
  std::string fault;
  for (int64_t root = 0; root < communicator.world_size(); ++root) {
    const at::Tensor expected = plain + root;
    at::Tensor tensor = communicator.rank() == root ? expected.clone() : at::zeros_like(expected);
    communicator.broadcast(tensor, root);
    const std::string wrong = difference(tensor, expected);
    if (fault.empty() && !wrong.empty()) fault = fmt::format("from rank {}, {}", root, wrong);
  }
  CollectiveFigures figures;
  figures.bytes = bytes;
  figures.faults = faults_of_all(communicator, fault);
  return figures;
}

CollectiveFigures check_all_reduce(Communicator& communicator, int64_t bytes) {
  const int64_t ranks = communicator.world_size();
  at::Tensor tensor =
      pattern(bytes / static_cast<int64_t>(sizeof(float)), communicator.device()).contiguous();
  const at::Tensor expected = tensor * ranks + ranks * (ranks - 1) / 2;
  tensor.add_(communicator.rank());
  communicator.all_reduce(tensor, ReduceOp::kSum);
  CollectiveFigures figures;
  figures.bytes = bytes;
  figures.faults = faults_of_all(communicator, difference(tensor, expected));
  figures.seconds = seconds_of_sum(communicator, tensor);
  return figures;
}

}  // namespace adtrain
