#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

/// Dropout's random numbers. A mask is a function of the step's seed, of the place in the network where it
/// acts, and of the number of its sequence in the global batch: so it is the same however ranks and
/// micro-steps divide that batch. A part of the network that runs twice (see Recomputation.h) gets the same
/// masks both times, without waiting for the device and without touching its generator.
namespace adtrain::kernels {

/// The random numbers of one pass over a micro-batch, in the order in which the network asks for them. On the
/// device of the pass, where each replay of a captured step finds the seed of its own step.
struct DropoutStream {
  at::Tensor seed;       ///< int64 (1), the same on all ranks and in all micro-steps of a step
  at::Tensor sequences;  ///< int64 (B): the number of each of the batch's sequences in the global batch
  uint64_t next = 0;     ///< the number of the next draw, which is the place in the network
};

/// While it lives, this thread draws from `stream`, which it borrows.
class DropoutScope {
 public:
  explicit DropoutScope(DropoutStream& stream);
  ~DropoutScope();
  DropoutScope(const DropoutScope&) = delete;
  DropoutScope& operator=(const DropoutScope&) = delete;

  /// The stream of this thread; null without a scope.
  static DropoutStream* stream();

 private:
  DropoutStream* before_;
};

/// What the masks of one call of dropout, or of one block's calls, follow from.
struct DropoutDraw {
  at::Tensor seed;       ///< as in DropoutStream
  at::Tensor sequences;  ///< as in DropoutStream
  uint64_t place = 0;    ///< of the call in the network

  /// The next one of this thread's stream, for so many sequences. A stream without a seed, and a thread
  /// without a stream, take one from the default generator of `device`, in the order of the current stream,
  /// and count the sequences from 0. Throws std::logic_error where the stream is of another number of
  /// sequences.
  static DropoutDraw next(int64_t sequences, const at::Device& device);

  /// int64 (1), not negative: a seed for libraries that draw a mask for all sequences of the call at once. It
  /// follows from the step's seed, the place, and the number of the first sequence.
  at::Tensor of_whole_batch() const;
};

}  // namespace adtrain::kernels
