#include "emulation/Emulator.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "emulation/FibrePosition.h"
#include "emulation/SharedMemory.h"

namespace adtrain::emulation {

Place place;

namespace {

std::vector<std::unique_ptr<char[]>> free_stacks;

struct Copy {
  char* to;
  const void* from;
  int bytes, given;
  void run() const {
    std::memcpy(to, from, given);
    std::memset(to + given, 0, bytes - given);
  }
};

constexpr int kWarpgroupThreads = 128, kMostWarpgroups = 8;
constexpr int kWarpgroupBarriers = 16;  ///< the first of those barriers, behind the ones that a GPU has

/// Else the number of a barrier.
constexpr int kReady = -1, kInWarp = -2, kEnded = -3, kInCluster = -4, kAwaiting = -5;

/// A stack that the next launch takes again: fresh memory would have to be mapped, page by page.
std::unique_ptr<char[]> taken_stack() {
  if (free_stacks.empty()) return std::unique_ptr<char[]>(new char[FibrePosition::kStackBytes]);
  std::unique_ptr<char[]> stack = std::move(free_stacks.back());
  free_stacks.pop_back();
  return stack;
}

struct Fibre {
  FibrePosition position;
  std::unique_ptr<char[]> stack = taken_stack();
  int state = kReady;
  const void* awaited = nullptr;
  std::deque<std::vector<Copy>> copies{1};  ///< closed groups, and the open one
};

struct Warp {
  int ready = kLanes;
  int arrived = 0;
  Operation operation = nullptr;
  std::array<void*, kLanes> lanes;
};

/// The thread blocks of a cluster while they run; mostly one.
class Cluster {
 public:
  Cluster(int blocks, int threads, int shared_bytes, std::mt19937& random,
          const std::function<void()>& kernel)
      : fibres_(blocks * threads),
        random_(random),
        kernel_(kernel),
        threads_(threads),
        shared_bytes_(shared_bytes),
        places_(blocks),
        at_barrier_(blocks) {
    if (threads % kLanes != 0) throw KernelError("a part of a warp");
    for (int block = 0; block < blocks; ++block) memories_.emplace_back(shared_bytes);
    for (Fibre& fibre : fibres_) fibre.position.begin(fibre.stack.get(), &Cluster::enter);
  }
  ~Cluster() {
    for (Fibre& fibre : fibres_) free_stacks.push_back(std::move(fibre.stack));
  }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// `first`: the number of its first block.
  void run(unsigned first);
  int block() const { return current_ / threads_; }
  char* shared() { return memories_[block()].first(); }
  char* shared_of(int block) { return memories_.at(block).first(); }
  uint32_t shared_bytes() const { return shared_bytes_; }

  void together(Operation operation, void* own);
  void barrier(int id, int threads);
  void cluster_barrier();
  void start_copy(const Copy& copy);
  void close_copies() { fibre().copies.emplace_back(); }
  void wait_for_copies(int left);
  void wait_for(const void* event) {
    fibre().awaited = event;
    wait(kAwaiting);
  }
  void happen(const void* event);
  void do_later(std::function<void()> task) { later_.push_back(std::move(task)); }

 private:
  Fibre& fibre() { return fibres_[current_]; }
  Warp& warp() { return warps_[current_ / kLanes]; }
  void make_ready(size_t thread) {
    fibres_[thread].state = kReady;
    ++warps_[thread / kLanes].ready;
  }
  void run_later();
  static void enter();
  void run_thread();
  void wait(int state);
  void switch_from(FibrePosition& from);
  int next_thread();

  std::vector<Fibre> fibres_;
  std::vector<Warp> warps_;
  std::mt19937& random_;
  const std::function<void()>& kernel_;
  const int threads_;  ///< of a block
  const int shared_bytes_;
  std::vector<SharedMemory> memories_;
  std::vector<uint3> places_;
  std::vector<std::array<int, kWarpgroupBarriers + kMostWarpgroups>> at_barrier_;
  size_t in_cluster_ = 0;  ///< threads at its barrier
  std::vector<std::function<void()>> later_;
  int current_ = 0;
  int turn_ = 0;  ///< after so many more switches another warp has its turn
  size_t ended_ = 0;
  FibrePosition caller_;
  std::exception_ptr error_;
};

Cluster* running = nullptr;
std::mt19937 order_of_launches;
unsigned launch_count = 0;

void Cluster::run(unsigned first) {
  for (SharedMemory& memory : memories_) memory.poison();
  for (size_t block = 0; block < places_.size(); ++block) {
    const unsigned number = first + block, wide = place.blocks.x, high = place.blocks.y;
    places_[block] = {number % wide, number / wide % high, number / wide / high};
    at_barrier_[block].fill(0);
  }
  warps_.assign(fibres_.size() / kLanes, {});
  ended_ = 0;
  turn_ = 0;
  for (Fibre& fibre : fibres_) fibre.state = kReady;
  switch_from(caller_);
  if (error_) std::rethrow_exception(error_);
  if (!later_.empty()) throw KernelError("a block ends before its copies have arrived");
  for (SharedMemory& memory : memories_) memory.check_guards();
}

/// A fibre's whole life: the same thread of each block. After an error the fibres stay where they are.
void Cluster::enter() {
  for (;;) running->run_thread();
}

void Cluster::run_thread() {
  try {
    kernel_();
    const auto& copies = fibre().copies;
    if (!std::all_of(copies.begin(), copies.end(), [](const auto& group) { return group.empty(); })) {
      fail("a thread ends before its copies have arrived");
    }
    fibre().copies.assign(1, {});
    ++ended_;
    wait(kEnded);
    return;
  } catch (...) {
    error_ = std::current_exception();
  }
  fibre().position.switch_to(caller_);
}

void Cluster::wait(int state) {
  fibre().state = state;
  --warp().ready;
  switch_from(fibre().position);
}

/// Goes on with another thread, or with run() where all have ended.
void Cluster::switch_from(FibrePosition& from) {
  if (ended_ == fibres_.size()) return from.switch_to(caller_);
  current_ = next_thread();
  const unsigned thread = current_ % threads_, wide = place.block_size.x;
  place.thread = {thread % wide, thread / wide, 0};
  place.block = places_[block()];
  FibrePosition& next = fibre().position;
  if (&from != &next) from.switch_to(next);
}

int Cluster::next_thread() {
  size_t in_turn = current_ / kLanes;
  int lane = current_ % kLanes;
  if (turn_-- == 0 || warps_[in_turn].ready == 0) {
    const auto is_ready = [](const Warp& warp) { return warp.ready > 0; };
    if (!later_.empty() && random_() % 2 == 0) run_later();
    auto ready = std::count_if(warps_.begin(), warps_.end(), is_ready);
    for (; ready == 0; ready = std::count_if(warps_.begin(), warps_.end(), is_ready)) {
      if (later_.empty()) fail("threads wait for others for ever");
      run_later();
    }
    auto place_in_ready = random_() % ready;
    for (in_turn = 0; !is_ready(warps_[in_turn]) || place_in_ready-- > 0;) ++in_turn;
    lane = static_cast<int>(random_() % kLanes);
    turn_ = static_cast<int>(random_() % 1024);
  }
  const int first = static_cast<int>(in_turn) * kLanes;
  do {
    lane = (lane + 1) % kLanes;
  } while (fibres_[first + lane].state != kReady);
  return first + lane;
}

void Cluster::together(Operation operation, void* own) {
  Warp& mine = warp();
  if (mine.arrived > 0 && mine.operation != operation) fail("lanes of a warp do different things together");
  mine.operation = operation;
  mine.lanes[current_ % kLanes] = own;
  if (++mine.arrived < kLanes) return wait(kInWarp);
  mine.arrived = 0;
  operation(mine.lanes);
  const int first = current_ / kLanes * kLanes;
  for (int thread = first; thread < first + kLanes; ++thread) {
    if (thread != current_) make_ready(thread);
  }
}

void Cluster::barrier(int id, int threads) {
  if (threads == 0) threads = threads_;
  int& arrived = at_barrier_[block()].at(id);
  if (++arrived < threads) return wait(id);
  arrived = 0;
  const int first = block() * threads_;
  for (int thread = first; thread < first + threads_; ++thread) {
    if (fibres_[thread].state == id) make_ready(thread);
  }
}

void Cluster::cluster_barrier() {
  if (++in_cluster_ < fibres_.size()) return wait(kInCluster);
  in_cluster_ = 0;
  for (size_t thread = 0; thread < fibres_.size(); ++thread) {
    if (fibres_[thread].state == kInCluster) make_ready(thread);
  }
}

void Cluster::happen(const void* event) {
  for (size_t thread = 0; thread < fibres_.size(); ++thread) {
    if (fibres_[thread].state == kAwaiting && fibres_[thread].awaited == event) make_ready(thread);
  }
}

void Cluster::run_later() {
  std::swap(later_[random_() % later_.size()], later_.back());
  const std::function<void()> task = std::move(later_.back());
  later_.pop_back();
  task();
}

void Cluster::start_copy(const Copy& copy) {
  if (random_() % 2 == 0) {
    copy.run();
  } else {
    fibre().copies.back().push_back(copy);
  }
}

void Cluster::wait_for_copies(int left) {
  auto& groups = fibre().copies;
  if (left < 0) groups.emplace_back();
  while (static_cast<int>(groups.size()) > std::max(left, 0) + 1) {
    for (const Copy& copy : groups.front()) copy.run();
    groups.pop_front();
  }
}

}  // namespace

void launch(const char* name, uint3 blocks, dim3 block_size, int shared_bytes,
            const std::function<void()>& kernel, int cluster) {
  constexpr int kMostThreads = 1024, kMostSharedBytes = 227 * 1024, kMostOfCluster = 8;
  if (block_size.z != 1) throw KernelError(std::string(name) + ": only two dimensions are emulated");
  const auto threads = static_cast<int>(block_size.x * block_size.y);
  const unsigned count = blocks.x * blocks.y * blocks.z;
  if (count == 0 || threads < 1 || threads > kMostThreads || shared_bytes > kMostSharedBytes || cluster < 1 ||
      cluster > kMostOfCluster || count % cluster != 0) {
    throw KernelError(std::string(name) + ": a GPU refuses so many blocks, threads or bytes");
  }
  ++launch_count;
  std::mt19937 random(order_of_launches());
  place.block_size = {block_size.x, block_size.y, 1};
  place.blocks = blocks;
  std::vector<unsigned> order(count / cluster);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  try {
    Cluster all(cluster, threads, shared_bytes, random, kernel);
    running = &all;
    for (const unsigned number : order) all.run(number * cluster);
  } catch (const KernelError& error) {
    throw KernelError(std::string(name) + ": " + error.what());
  }
}

unsigned launches() {
  return launch_count;
}

char* shared_memory() {
  return running->shared();
}

int block_of_cluster() {
  return running->block();
}

char* shared_memory_of(int block) {
  return running->shared_of(block);
}

uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - running->shared());
}

char* at_shared(uint32_t address, uint32_t bytes) {
  if (address >= running->shared_bytes() || running->shared_bytes() - address < bytes) {
    fail("an address outside shared memory");
  }
  if (address % bytes != 0) fail("a misaligned address in shared memory");
  return running->shared() + address;
}

void together(Operation operation, void* own) {
  running->together(operation, own);
}

void barrier(int id, int threads) {
  running->barrier(id, threads);
}

void meet_in_warpgroup() {
  running->barrier(kWarpgroupBarriers + static_cast<int>(place.thread.x) / kWarpgroupThreads,
                   kWarpgroupThreads);
}

void start_copy(uint32_t to, const void* from, int bytes, int given) {
  if (reinterpret_cast<uintptr_t>(from) % bytes != 0) fail("a copy from a misaligned address");
  running->start_copy({at_shared(to, bytes), from, bytes, given});
}

void close_copies() {
  running->close_copies();
}

void wait_for_copies(int left) {
  running->wait_for_copies(left);
}

void cluster_barrier() {
  running->cluster_barrier();
}

void wait_for(const void* event) {
  running->wait_for(event);
}

void happen(const void* event) {
  running->happen(event);
}

void do_later(std::function<void()> task) {
  running->do_later(std::move(task));
}

void fail(const char* what) {
  throw KernelError(std::string(what) + " (block " + std::to_string(place.block.x) + ", thread " +
                    std::to_string(place.thread.x) + ")");
}

}  // namespace adtrain::emulation
