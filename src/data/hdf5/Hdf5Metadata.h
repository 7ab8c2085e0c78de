#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/hdf5/ArrayLayout.h"

namespace adtrain {

class ReaderProcess;

/// Where one chunk lies in its file.
struct ChunkPlace {
  uint64_t address = kNotWritten;
  uint64_t bytes = 0;
  uint32_t skipped_filters = 0;  ///< bit i for filter i

  static constexpr uint64_t kNotWritten = ~uint64_t{0};
};

/// What HDF5 files hold, asked of a process that may die of a damaged one (ReaderProcess). Every fault of a
/// file is a DataError that names it, and the next question is answered by a new process. Any number of
/// threads may ask; questions are answered one after the other.
class Hdf5Metadata {
 public:
  Hdf5Metadata();
  ~Hdf5Metadata();

  /// The names of a group's members; "/" is the root.
  std::vector<std::string> names(const std::string& path, const std::string& group);
  /// A group's or data set's attributes that are a text or a number.
  nlohmann::json attributes(const std::string& path, const std::string& object);

  /// What `survey` says of one group.
  struct Surveyed {
    nlohmann::json attributes;
    std::optional<std::vector<int64_t>> shape;  ///< of the data set; nothing where the group has none
  };
  std::vector<Surveyed> survey(const std::string& path, const std::vector<std::string>& groups,
                               const std::string& dataset);

  /// Those of `names`, in the root, that are groups and hold all of these data sets. Names of more than 1 KiB
  /// are passed over.
  std::vector<std::string> groups_with(const std::string& path, const std::vector<std::string>& names,
                                       const std::vector<std::string>& datasets);

  /// How the data sets of a group lie in the file, as ArrayLayout::from_json takes it, by name.
  std::map<std::string, nlohmann::json> layouts(const std::string& path, const std::string& group);

  static constexpr size_t kMostChunksOfAQuestion = 512;
  /// Chunks of one data set, kMostChunksOfAQuestion at most, by their numbers in C order over the grid of
  /// chunks.
  struct ChunkQuestion {
    const ArrayLayout* array;
    std::vector<int64_t> chunks;
  };
  /// Answers all questions, which are about files of one path, some in each exchange: a place for each chunk.
  std::vector<std::vector<ChunkPlace>> chunks(const std::vector<ChunkQuestion>& questions);

 private:
  /// Asks and passes each answer to `take`, which says whether another follows.
  template <class Take>
  void exchange(const nlohmann::json& request, const std::string& task, Take take);
  /// Answers questions that fit one exchange, behind the places that are there.
  void look_up(std::span<const ChunkQuestion> questions, std::vector<std::vector<ChunkPlace>>& places);

  std::mutex mutex_;
  std::unique_ptr<ReaderProcess> reader_;  ///< null before the first question, and after one that failed
};

}  // namespace adtrain
