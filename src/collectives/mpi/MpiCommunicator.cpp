#include "collectives/mpi/MpiCommunicator.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "base/RunningTime.h"
#include "base/Text.h"
#include "collectives/mpi/MpiSession.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

MPI_Datatype type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kLong:
      return MPI_INT64_T;
    case at::kByte:
      return MPI_UINT8_T;
    default:
      return MPI_FLOAT;  // the communicator accepts no other type
  }
}

MPI_Op kind_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kSum:
      break;
  }
  return MPI_SUM;
}

/// Yields the core between polls: first to ranks that share it, after a while by sleeping.
class Backoff {
 public:
  void pause() const {
    if (watch_.seconds() < 2e-3) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  Stopwatch watch_;
};

/// One collective operation: the MPI requests of its pieces.
class MpiWork final : public CollectiveWork {
 public:
  MpiWork(CollectiveCall call, std::vector<at::Tensor> tensors, double timeout_seconds)
      : call_(std::move(call)), tensors_(std::move(tensors)), timeout_seconds_(timeout_seconds) {}
  ~MpiWork() override {
    if (!requests_.empty()) MpiSession::instance().abandon(tensors_);
  }

  /// Storage for the next MPI call's request.
  MPI_Request* next_request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  void check(int result) const {
    if (result == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(result, text, &length);
    throw_lost_peer(call_, text);
  }

  void wait() override {
    RunningDeadline deadline(timeout_seconds_);
    const Backoff backoff;
    while (!done()) {
      if (deadline.passed()) throw_timed_out(call_, timeout_seconds_);
      backoff.pause();
    }
    requests_.clear();
  }

 private:
  bool done() {
    int all_done = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all_done, MPI_STATUSES_IGNORE));
    return all_done != 0;
  }

  CollectiveCall call_;
  std::vector<at::Tensor> tensors_;  ///< what the operation reads and writes
  double timeout_seconds_;
  std::vector<MPI_Request> requests_;
};

/// Tensors are sent in pieces: one piece is sent on while the next is being summed (measured on shared
/// memory: two to four times as fast as in one piece). So MPI's counts, which are `int`, always suffice, too.
constexpr int64_t kPieceBytes = 1 << 20;

/// Elements offset … offset + count − 1 of a tensor.
struct Piece {
  int64_t offset;
  int count;
};

std::vector<Piece> pieces_of(const at::Tensor& tensor, const Part& part) {
  const int64_t largest = kPieceBytes / static_cast<int64_t>(tensor.element_size());
  const int64_t end = part.begin + part.size;
  std::vector<Piece> pieces;
  for (int64_t offset = part.begin; offset < end; offset += largest) {
    pieces.push_back({offset, static_cast<int>(std::min(largest, end - offset))});
  }
  return pieces;
}

std::vector<Piece> pieces_of(const at::Tensor& tensor) {
  return pieces_of(tensor, {0, tensor.numel()});
}

void* at_element(const at::Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.data_ptr()) + element * static_cast<int64_t>(tensor.element_size());
}

/// `count` elements, resized so that consecutive items are one row of `row_bytes` apart.
class RowPieceType {
 public:
  RowPieceType(MPI_Datatype element, int count, size_t row_bytes) {
    MPI_Datatype group = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(count, element, &group);
    MPI_Type_create_resized(group, 0, static_cast<MPI_Aint>(row_bytes), &type_);
    MPI_Type_free(&group);
    MPI_Type_commit(&type_);
  }
  ~RowPieceType() { MPI_Type_free(&type_); }  // MPI keeps it until operations under way complete
  RowPieceType(const RowPieceType&) = delete;
  RowPieceType& operator=(const RowPieceType&) = delete;
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace

struct MpiCommunicator::Group {
  MPI_Comm comm = MPI_COMM_NULL;
  /// More of them in the destructor mean that the stack unwinds after an error.
  int exceptions = std::uncaught_exceptions();
};

MpiCommunicator::MpiCommunicator(const LaunchContext& context, const DistributedOptions& options)
    : Communicator(context.rank, context.world_size, options.collective_timeout_seconds),
      group_(std::make_unique<Group>()) {
  const Deadline deadline(options.rendezvous_timeout_seconds);
  const Activity::Waiting waiting("the start of MPI");
  MpiSession::instance();
  int rank = 0, world_size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (rank != context.rank || world_size != context.world_size) {
    MpiSession::instance().abandon();
    throw EnvironmentError(fmt::format(
        "{}, but MPI itself says rank {} of {}; use the mpirun of the Open MPI that adtrain was built with.",
        context.evidence, rank, world_size));
  }
  MpiWork joined(call("a duplication of the communicator", 0), {}, deadline.seconds_left());
  joined.check(MPI_Comm_idup(MPI_COMM_WORLD, &group_->comm, joined.next_request()));
  try {
    joined.wait();
  } catch (const PeerLostError&) {
    if (!deadline.passed()) throw;
    throw EnvironmentError(fmt::format(
        "Rank {} of {} has waited {} for a first word from all ranks over MPI; look for a rank that has not "
        "started, and on several hosts name the network between them: mpirun --mca btl_tcp_if_include SUBNET "
        "--mca oob_tcp_if_include SUBNET.",
        rank, world_size, human_duration(options.rendezvous_timeout_seconds)));
  }
  MPI_Comm_set_errhandler(group_->comm, MPI_ERRORS_RETURN);
}

MpiCommunicator::~MpiCommunicator() {
  MpiSession& session = MpiSession::instance();
  if (std::uncaught_exceptions() > group_->exceptions) session.abandon();
  if (!session.abandoned()) MPI_Comm_free(&group_->comm);
}

void MpiCommunicator::progress() {
  int found = 0;  // no message is ever found: the probe only drives MPI's progress
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, group_->comm, &found, MPI_STATUS_IGNORE);
}

void MpiCommunicator::abort(ExitCode code) {
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  Communicator::abort(code);
}

std::unique_ptr<CollectiveWork> MpiCommunicator::begin_broadcast(at::Tensor& tensor, int64_t root) {
  auto pending =
      std::make_unique<MpiWork>(call("a broadcast", tensor.nbytes()), std::vector{tensor}, timeout_seconds());
  for (const Piece piece : pieces_of(tensor)) {
    pending->check(MPI_Ibcast(at_element(tensor, piece.offset), piece.count, type_of(tensor),
                              static_cast<int>(root), group_->comm, pending->next_request()));
  }
  return pending;
}

std::unique_ptr<CollectiveWork> MpiCommunicator::begin_all_reduce(at::Tensor& tensor, ReduceOp op) {
  auto pending = std::make_unique<MpiWork>(call("an all-reduce", tensor.nbytes()), std::vector{tensor},
                                           timeout_seconds());
  for (const Piece piece : pieces_of(tensor)) {
    pending->check(MPI_Iallreduce(MPI_IN_PLACE, at_element(tensor, piece.offset), piece.count,
                                  type_of(tensor), kind_of(op), group_->comm, pending->next_request()));
  }
  return pending;
}

std::unique_ptr<CollectiveWork> MpiCommunicator::begin_all_gather(const at::Tensor& tensor,
                                                                  at::Tensor& gathered) {
  auto pending = std::make_unique<MpiWork>(call("an all-gather", tensor.nbytes()),
                                           std::vector{tensor, gathered}, timeout_seconds());
  for (const Piece piece : pieces_of(tensor)) {
    const RowPieceType row_piece(type_of(tensor), piece.count, tensor.nbytes());
    pending->check(MPI_Iallgather(at_element(tensor, piece.offset), piece.count, type_of(tensor),
                                  at_element(gathered, piece.offset), 1, row_piece.get(), group_->comm,
                                  pending->next_request()));
  }
  return pending;
}

/// MPI_Ireduce_scatter sums all of it on one rank and deals that out. A sum for each owner spreads the work
/// over the ranks, and lets parts be of any size.
std::unique_ptr<CollectiveWork> MpiCommunicator::begin_reduce_scatter(at::Tensor& tensor) {
  auto pending = std::make_unique<MpiWork>(call("a reduce-scatter", tensor.nbytes()), std::vector{tensor},
                                           timeout_seconds());
  for (int64_t owner = 0; owner < world_size(); ++owner) {
    for (const Piece piece : pieces_of(tensor, part_of(tensor.numel(), owner, world_size()))) {
      void* const place = at_element(tensor, piece.offset);
      const bool is_mine = owner == rank();
      pending->check(MPI_Ireduce(is_mine ? MPI_IN_PLACE : place, is_mine ? place : nullptr, piece.count,
                                 type_of(tensor), MPI_SUM, static_cast<int>(owner), group_->comm,
                                 pending->next_request()));
    }
  }
  return pending;
}

std::unique_ptr<CollectiveWork> MpiCommunicator::begin_barrier() {
  auto pending =
      std::make_unique<MpiWork>(call("a barrier", 0), std::vector<at::Tensor>{}, timeout_seconds());
  pending->check(MPI_Ibarrier(group_->comm, pending->next_request()));
  return pending;
}

}  // namespace adtrain
