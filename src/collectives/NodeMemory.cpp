#include "collectives/NodeMemory.h"

#include <algorithm>
#include <array>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/Host.h"
#include "collectives/Agreement.h"

namespace adtrain {
namespace {

constexpr SharedMemory::Purpose kPurpose = {.name = "adtrain-node",
                                            .sharers = "the ranks of this machine",
                                            .advice = "hold less in memory, or ask for more of it"};

/// Processes that can find each other's memory: of one start of one machine, one user, and one numbering of
/// processes.
std::string machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::array<char, 64> processes{};
  const ssize_t length = readlink("/proc/self/ns/pid", processes.data(), processes.size());
  return fmt::format("{} {} {} {}", host_name(), boot,
                     std::string(processes.data(), static_cast<size_t>(std::max<ssize_t>(0, length))),
                     geteuid());
}

SharedBytes shared(std::shared_ptr<SharedMemory> memory, size_t sharer, size_t sharers) {
  auto* const first = reinterpret_cast<uint8_t*>(memory->data());
  return {.bytes = {memory, first}, .sharer = sharer, .sharers = sharers, .close = [memory] {
            memory->make_read_only();
          }};
}

}  // namespace

NodeMemory::NodeMemory(Communicator& communicator, const std::string& content) : communicator_(communicator) {
  const std::string mine = machine() + "\n" + content;
  const std::vector<std::string> all = gather_texts(communicator, mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == mine) neighbours_.push_back(rank);
  }
}

/// Whether none of this rank's neighbours has failed.
bool NodeMemory::agree(const std::string& failure) {
  const std::vector<std::string> failures = gather_texts(communicator_, failure);
  for (const std::string& other : failures) {
    if (why_not_.empty()) why_not_ = other;
  }
  return std::ranges::all_of(neighbours_, [&](size_t rank) { return failures[rank].empty(); });
}

SharedBytes NodeMemory::allocate(size_t bytes) {
  why_not_.clear();
  const auto rank = static_cast<size_t>(communicator_.rank());
  const auto place = static_cast<size_t>(std::ranges::find(neighbours_, rank) - neighbours_.begin());
  const bool alone = neighbours_.size() == 1 || bytes == 0;
  std::shared_ptr<SharedMemory> memory;
  std::string failure;
  if (place == 0 && !alone) {
    try {
      memory = std::make_shared<SharedMemory>(bytes, kPurpose);
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  const std::vector<std::string> addresses =
      gather_texts(communicator_, memory ? memory->address().text() : "");
  const auto address = SharedMemory::Address::parse(addresses[neighbours_.front()]);
  if (place != 0 && address) {
    try {
      if (address->bytes != bytes) {
        throw EnvironmentError(fmt::format("ranks of one machine ask for {} and {} bytes; expected the same",
                                           address->bytes, bytes));
      }
      memory = std::make_shared<SharedMemory>(*address, kPurpose);
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  const bool all_have_it = agree(failure);
  if (!memory || !all_have_it) return own_bytes(bytes);
  return shared(std::move(memory), place, neighbours_.size());
}

}  // namespace adtrain
