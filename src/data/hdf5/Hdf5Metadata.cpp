#include "data/hdf5/Hdf5Metadata.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "data/hdf5/ChunkGrid.h"
#include "data/reader/ReaderProcess.h"

namespace adtrain {

using nlohmann::json;

Hdf5Metadata::Hdf5Metadata() = default;
Hdf5Metadata::~Hdf5Metadata() = default;

template <class Take>
void Hdf5Metadata::exchange(const json& request, const std::string& task, Take take) {
  const std::lock_guard conversation(mutex_);
  if (!reader_) reader_ = std::make_unique<ReaderProcess>();
  try {
    reader_->ask(request, task);
    while (take(reader_->answer())) {
    }
  } catch (const json::exception& error) {
    reader_.reset();
    throw DataError(
        fmt::format("{}: found an answer that cannot be read ({}); the file is damaged; fetch it "
                    "again",
                    task, error.what()));
  } catch (...) {
    reader_.reset();  // it may have ended, or have more to say
    throw;
  }
}

std::vector<std::string> Hdf5Metadata::names(const std::string& path, const std::string& group) {
  std::vector<std::string> all;
  exchange({{"do", "names"}, {"path", path}, {"group", group}},
           fmt::format("{}: listing group {}", path, group), [&all](const json& answer) {
             if (answer.contains("done")) return false;
             for (const json& name : answer.at("names")) all.push_back(name);
             return true;
           });
  return all;
}

json Hdf5Metadata::attributes(const std::string& path, const std::string& object) {
  json found;
  exchange({{"do", "attributes"}, {"path", path}, {"object", object}},
           fmt::format("{}: reading the attributes of {}", path, object), [&found](const json& answer) {
             found = answer.at("attributes");
             return false;
           });
  return found;
}

std::vector<Hdf5Metadata::Surveyed> Hdf5Metadata::survey(const std::string& path,
                                                         const std::vector<std::string>& groups,
                                                         const std::string& dataset) {
  constexpr size_t kGroupsAtATime = 128;
  std::vector<Surveyed> all;
  while (all.size() < groups.size()) {
    const size_t first = all.size(), count = std::min(kGroupsAtATime, groups.size() - first);
    const auto begin = groups.begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<std::string> part(begin, begin + static_cast<std::ptrdiff_t>(count));
    // Groups whose attributes are long are answered for by several exchanges.
    exchange({{"do", "survey"}, {"path", path}, {"groups", part}, {"dataset", dataset}},
             fmt::format("{}: reading the shapes of group {} and the next", path, part.front()),
             [&all](const json& answer) {
               for (const json& group : answer.at("groups")) {
                 Surveyed surveyed{group.at("attributes"), std::nullopt};
                 if (!group.at("shape").is_null()) surveyed.shape = group.at("shape");
                 all.push_back(std::move(surveyed));
               }
               return false;
             });
    const size_t answered = all.size() - first;
    if (answered < 1 || answered > count)
      throw DataError(
          fmt::format("{}: {} of {} groups were answered for; fetch the file again", path, answered, count));
  }
  return all;
}

std::vector<std::string> Hdf5Metadata::groups_with(const std::string& path,
                                                   const std::vector<std::string>& names,
                                                   const std::vector<std::string>& datasets) {
  constexpr size_t kNamesAtATime = 128, kLongestName = 1024;  // even as JSON they fit one message
  std::vector<std::string> found, part;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].size() <= kLongestName) part.push_back(names[i]);
    const bool is_last = i + 1 == names.size();
    if (part.empty() || (part.size() < kNamesAtATime && !is_last)) continue;
    exchange({{"do", "groups_with"}, {"path", path}, {"names", part}, {"datasets", datasets}},
             fmt::format("{}: looking into group {} and the next", path, part.front()),
             [&found](const json& answer) {
               for (const json& name : answer.at("names")) found.push_back(name);
               return false;
             });
    part.clear();
  }
  return found;
}

std::map<std::string, json> Hdf5Metadata::layouts(const std::string& path, const std::string& group) {
  std::map<std::string, json> found;
  exchange({{"do", "layouts"}, {"path", path}, {"group", group}},
           fmt::format("{}: reading the layout of group {}", path, group), [&found](const json& answer) {
             for (const auto& [name, description] : answer.at("datasets").items()) found[name] = description;
             return false;
           });
  return found;
}

std::vector<std::vector<ChunkPlace>> Hdf5Metadata::chunks(const std::vector<ChunkQuestion>& questions) {
  // HDF5 walks through a data set's index for each chunk, and the process that is asked has its memory and
  // processor time for each request anew. So neither grows with what a window touches.
  const std::span<const ChunkQuestion> all(questions);
  std::vector<std::vector<ChunkPlace>> places;
  while (places.size() < all.size()) {
    const size_t first = places.size();
    size_t count = 0, asked = 0;
    do {
      asked += all[first + count].chunks.size();
      ++count;
    } while (first + count < all.size() &&
             asked + all[first + count].chunks.size() <= kMostChunksOfAQuestion);
    look_up(all.subspan(first, count), places);
  }
  return places;
}

void Hdf5Metadata::look_up(std::span<const ChunkQuestion> questions,
                           std::vector<std::vector<ChunkPlace>>& places) {
  json parts = json::array();
  for (const ChunkQuestion& question : questions) {
    json elements = json::array();
    for (const int64_t chunk : question.chunks) elements.push_back(first_element_of(*question.array, chunk));
    parts.push_back({{"dataset", question.array->dataset}, {"first", std::move(elements)}});
  }
  const ArrayLayout& one = *questions.front().array;
  exchange({{"do", "chunks"}, {"path", one.path}, {"parts", std::move(parts)}},
           one.place() + ": looking up its chunks", [&](const json& answer) {
             size_t part = 0;
             for (const ChunkQuestion& question : questions) {
               const json& numbers = answer.at("parts").at(part++);
               std::vector<ChunkPlace>& found = places.emplace_back();
               for (size_t i = 0; i < question.chunks.size(); ++i) {
                 const json& address = numbers.at(3 * i);
                 found.push_back({address.is_null() ? ChunkPlace::kNotWritten : address.get<uint64_t>(),
                                  numbers.at(3 * i + 1), numbers.at(3 * i + 2)});
               }
             }
             return false;
           });
}

}  // namespace adtrain
