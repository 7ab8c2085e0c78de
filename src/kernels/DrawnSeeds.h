#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

/// Seeds that kernels read from memory, so that each replay of a captured step has new ones. A part of the
/// network that runs twice (see Recomputation.h) gets the same seeds both times, without waiting for the
/// device and without touching its generator.
namespace adtrain::kernels {

/// int64 (count) on the device of `like`, from the default generator there, in the order of the current
/// stream. Kernels draw all seeds here that a part of a block needs while it runs.
at::Tensor drawn_seeds(int64_t count, const at::Tensor& like);

using SeedTape = std::vector<at::Tensor>;

/// While it lives, drawn_seeds of this thread records onto `to`.
class SeedsRecorded {
 public:
  explicit SeedsRecorded(SeedTape& to);
  ~SeedsRecorded();
  SeedsRecorded(const SeedsRecorded&) = delete;
  SeedsRecorded& operator=(const SeedsRecorded&) = delete;

 private:
  SeedTape* before_;
};

/// While it lives, drawn_seeds of this thread returns what `of` holds, in that order, and draws nothing.
/// Throws std::logic_error where more is asked for.
class SeedsRepeated {
 public:
  explicit SeedsRepeated(const SeedTape& of);
  ~SeedsRepeated();
  SeedsRepeated(const SeedsRepeated&) = delete;
  SeedsRepeated& operator=(const SeedsRepeated&) = delete;

  const at::Tensor& next();

 private:
  const SeedTape& of_;
  size_t next_ = 0;
  SeedsRepeated* before_;
};

}  // namespace adtrain::kernels
