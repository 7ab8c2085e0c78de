#include "memory/RankMemory.h"

#include <ATen/ops/tensor.h>

namespace adtrain {
namespace {

/// Calls `visit` with each figure, in one order.
template <class Memory, class Visit>
void for_each_figure(Memory& memory, const Visit& visit) {
  visit(memory.start);
  visit(memory.peak);
  visit(memory.current);
  for (const MemoryPart& part : kMemoryParts) visit(memory.split.*part.bytes);
}

}  // namespace

std::vector<RankMemory> gather_memory(Communicator& communicator, const RankMemory& mine) {
  std::vector<int64_t> figures;
  for_each_figure(mine, [&](int64_t figure) { figures.push_back(figure); });
  const at::Tensor all = communicator.all_gather(at::tensor(figures, at::kLong)).contiguous();
  const int64_t* next = all.const_data_ptr<int64_t>();
  std::vector<RankMemory> ranks(static_cast<size_t>(communicator.world_size()));
  for (RankMemory& rank : ranks) {
    for_each_figure(rank, [&](int64_t& figure) { figure = *next++; });
  }
  return ranks;
}

}  // namespace adtrain
