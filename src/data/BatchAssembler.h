#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/Batch.h"

namespace adtrain {

class ColumnWindows;
class TransitionWindows;

/// Turns sample numbers, 0 … samples() − 1, into a Batch on the CPU. Thread-safe.
class BatchAssembler {
 public:
  virtual ~BatchAssembler() = default;

  virtual int64_t samples() const = 0;
  /// Throws DataError where the histories that it reads are damaged or hold what cannot be trained on.
  virtual Batch assemble(std::span<const int64_t> samples) const = 0;
  /// Of histories, in this process's memory now.
  virtual int64_t bytes() const = 0;
  /// Whether its batches are packed rows.
  virtual bool packed() const { return false; }
  /// How many transitions of a sample's row are no padding; of packed rows alone.
  virtual int64_t filled(int64_t /*sample*/) const { return 0; }
  /// For people: how many windows of what there are.
  virtual std::string description() const = 0;
  /// Null unless they are windows of histories in memory, of which a GPU can cut batches itself.
  virtual const TransitionWindows* transitions() const { return nullptr; }
  /// The same of any space; null too where GPUs are not to hold them.
  virtual const ColumnWindows* held_columns() const { return nullptr; }
};

}  // namespace adtrain
