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

#include <setjmp.h>
#include <ucontext.h>

namespace adtrain::emulation {

Place place;

namespace {

constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kGuardBytes = 4096;  ///< on both sides of shared memory
constexpr size_t kAlignment = 128;
constexpr char kPoison = '\xff';  ///< makes NaN

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

constexpr int kReady = -1, kInWarp = -2, kEnded = -3;  ///< else the number of a barrier

/// Where a fibre, or their caller, goes on. AddressSanitizer follows swapcontext alone, which asks the kernel
/// for the signal mask at every switch; the C library's jumps do not, and take a tenth of the time.
class Position {
 public:
  /// Prepares a fibre that begins with `enter` on this stack.
  void begin(char* stack, void (*enter)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, enter, 0);
  }
#ifdef __SANITIZE_ADDRESS__
  void switch_to(Position& other) {
    swapcontext(&context_, &other.context_);
  }
#else
  void switch_to(Position& other) {
    reached_ = true;
    if (_setjmp(jump_) != 0) return;
    if (other.reached_) _longjmp(other.jump_, 1);
    setcontext(&other.context_);
  }

 private:
  jmp_buf jump_;
  bool reached_ = false;  ///< jump_ is set
#endif
 private:
  ucontext_t context_;
};

/// A stack that the next launch takes again: fresh memory would have to be mapped, page by page.
std::unique_ptr<char[]> taken_stack() {
  if (free_stacks.empty()) return std::unique_ptr<char[]>(new char[kStackBytes]);
  std::unique_ptr<char[]> stack = std::move(free_stacks.back());
  free_stacks.pop_back();
  return stack;
}

struct Fibre {
  Position position;
  std::unique_ptr<char[]> stack = taken_stack();
  int state = kReady;
  std::deque<std::vector<Copy>> copies{1};  ///< closed groups, and the open one
};

struct Warp {
  int ready = kLanes;
  int arrived = 0;
  Operation operation = nullptr;
  std::array<void*, kLanes> lanes;
};

/// A thread block while it runs.
class Block {
 public:
  Block(int threads, int shared_bytes, std::mt19937& random, const std::function<void()>& kernel)
      : fibres_(threads), random_(random), kernel_(kernel), shared_bytes_(shared_bytes) {
    if (threads % kLanes != 0) throw KernelError("a part of a warp");
    memory_.resize(shared_bytes + 2 * kGuardBytes + kAlignment);
    const size_t beyond = (reinterpret_cast<uintptr_t>(memory_.data()) + kGuardBytes) % kAlignment;
    shared_ = memory_.data() + kGuardBytes + (kAlignment - beyond) % kAlignment;
    for (Fibre& fibre : fibres_) fibre.position.begin(fibre.stack.get(), &Block::enter);
  }
  ~Block() {
    for (Fibre& fibre : fibres_) free_stacks.push_back(std::move(fibre.stack));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void run();
  char* shared() { return shared_; }
  uint32_t shared_bytes() const { return shared_bytes_; }

  void together(Operation operation, void* own);
  void barrier(int id, int threads);
  void start_copy(const Copy& copy);
  void close_copies() { fibre().copies.emplace_back(); }
  void wait_for_copies(int left);

 private:
  Fibre& fibre() { return fibres_[current_]; }
  Warp& warp() { return warps_[current_ / kLanes]; }
  void make_ready(size_t thread) {
    fibres_[thread].state = kReady;
    ++warps_[thread / kLanes].ready;
  }
  static void enter();
  void run_thread();
  void wait(int state);
  void switch_from(Position& from);
  int next_thread();

  std::vector<Fibre> fibres_;
  std::vector<Warp> warps_;
  std::mt19937& random_;
  const std::function<void()>& kernel_;
  std::vector<char> memory_;
  char* shared_;
  int shared_bytes_;
  std::array<int, 16> at_barrier_;
  int current_ = 0;
  int turn_ = 0;  ///< after so many more switches another warp has its turn
  size_t ended_ = 0;
  Position caller_;
  std::exception_ptr error_;
};

Block* running = nullptr;
std::mt19937 order_of_launches;
unsigned launch_count = 0;

void Block::run() {
  std::fill(memory_.begin(), memory_.end(), kPoison);
  warps_.assign(fibres_.size() / kLanes, {});
  at_barrier_.fill(0);
  ended_ = 0;
  turn_ = 0;
  for (Fibre& fibre : fibres_) fibre.state = kReady;
  switch_from(caller_);
  if (error_) std::rethrow_exception(error_);
  const auto untouched = [](const char* begin, const char* end) {
    return std::all_of(begin, end, [](char byte) { return byte == kPoison; });
  };
  if (!untouched(memory_.data(), shared_) ||
      !untouched(shared_ + shared_bytes_, memory_.data() + memory_.size())) {
    throw KernelError("a store outside shared memory");
  }
}

/// A fibre's whole life: the same thread of each block. After an error the fibres stay where they are.
void Block::enter() {
  for (;;) running->run_thread();
}

void Block::run_thread() {
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

void Block::wait(int state) {
  fibre().state = state;
  --warp().ready;
  switch_from(fibre().position);
}

/// Goes on with another thread, or with run() where all have ended.
void Block::switch_from(Position& from) {
  if (ended_ == fibres_.size()) return from.switch_to(caller_);
  current_ = next_thread();
  const unsigned thread = current_, wide = place.block_size.x;
  place.thread = {thread % wide, thread / wide, 0};
  Position& next = fibre().position;
  if (&from != &next) from.switch_to(next);
}

int Block::next_thread() {
  size_t in_turn = current_ / kLanes;
  int lane = current_ % kLanes;
  if (turn_-- == 0 || warps_[in_turn].ready == 0) {
    const auto is_ready = [](const Warp& warp) { return warp.ready > 0; };
    const auto ready = std::count_if(warps_.begin(), warps_.end(), is_ready);
    if (ready == 0) fail("threads wait for others for ever");
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

void Block::together(Operation operation, void* own) {
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

void Block::barrier(int id, int threads) {
  if (threads == 0) threads = static_cast<int>(fibres_.size());
  if (++at_barrier_.at(id) < threads) return wait(id);
  at_barrier_[id] = 0;
  for (size_t thread = 0; thread < fibres_.size(); ++thread) {
    if (fibres_[thread].state == id) make_ready(thread);
  }
}

void Block::start_copy(const Copy& copy) {
  if (random_() % 2 == 0) {
    copy.run();
  } else {
    fibre().copies.back().push_back(copy);
  }
}

void Block::wait_for_copies(int left) {
  auto& groups = fibre().copies;
  if (left < 0) groups.emplace_back();
  while (static_cast<int>(groups.size()) > std::max(left, 0) + 1) {
    for (const Copy& copy : groups.front()) copy.run();
    groups.pop_front();
  }
}

}  // namespace

void launch(const char* name, uint3 blocks, dim3 block_size, int shared_bytes,
            const std::function<void()>& kernel) {
  constexpr int kMostThreads = 1024, kMostSharedBytes = 227 * 1024;
  if (block_size.z != 1) throw KernelError(std::string(name) + ": only two dimensions are emulated");
  const auto threads = static_cast<int>(block_size.x * block_size.y);
  if (blocks.x * blocks.y * blocks.z == 0 || threads < 1 || threads > kMostThreads ||
      shared_bytes > kMostSharedBytes) {
    throw KernelError(std::string(name) + ": a GPU refuses so many blocks, threads or bytes");
  }
  ++launch_count;
  std::mt19937 random(order_of_launches());
  place.block_size = {block_size.x, block_size.y, 1};
  place.blocks = blocks;
  std::vector<unsigned> order(blocks.x * blocks.y * blocks.z);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  try {
    Block block(threads, shared_bytes, random, kernel);
    running = &block;
    for (const unsigned number : order) {
      place.block = {number % blocks.x, number / blocks.x % blocks.y, number / blocks.x / blocks.y};
      block.run();
    }
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

void fail(const char* what) {
  throw KernelError(std::string(what) + " (block " + std::to_string(place.block.x) + ", thread " +
                    std::to_string(place.thread.x) + ")");
}

}  // namespace adtrain::emulation
