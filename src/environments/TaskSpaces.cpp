#include "environments/TaskSpaces.h"

#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using nlohmann::json;

// Spaces are texts within the JSON, as their infinite bounds are no JSON.
constexpr const char* kName = "group";
constexpr const char* kObservation = "observation_space";
constexpr const char* kAction = "action_space";
constexpr const char* kPacking = "observation_packing";

}  // namespace

std::optional<Space> TaskSpaces::unpacked_observation() const {
  if (packed_digits.empty()) return std::nullopt;
  std::vector<int64_t> shape = observation.shape, values;
  shape.push_back(std::ssize(packed_digits));
  for (int64_t element = 0; element < observation.size(); ++element) {
    values.insert(values.end(), packed_digits.begin(), packed_digits.end());
  }
  return Space::multi_discrete(std::move(shape), std::move(values));
}

bool TaskSpaces::accepts_observations(const Space& environment) const {
  const auto unpacked = unpacked_observation();
  return environment.fits(observation) || (unpacked && environment.fits(*unpacked));
}

std::string TaskSpaces::text() const {
  return fmt::format("observations {}{}, actions {}", observation.text(),
                     packed_digits.empty() ? "" : fmt::format(" of {} each", fmt::join(packed_digits, " × ")),
                     action.text());
}

std::string json_of_groups(const std::vector<TaskSpaces>& groups) {
  json list = json::array();
  for (const TaskSpaces& spaces : groups) {
    list.push_back({{kName, spaces.group},
                    {kObservation, spaces.observation.to_json()},
                    {kAction, spaces.action.to_json()},
                    {kPacking, spaces.packed_digits}});
  }
  return list.dump();
}

std::vector<TaskSpaces> groups_from_json(const std::string& text, const std::string& origin) {
  std::vector<TaskSpaces> groups;
  std::set<std::string> names;
  try {
    for (const json& group : json::parse(text)) {
      groups.push_back({Space::from_json(group.at(kObservation).get<std::string>(), origin),
                        Space::from_json(group.at(kAction).get<std::string>(), origin),
                        group.at(kPacking).get<std::vector<int64_t>>(), group.at(kName).get<std::string>()});
      names.insert(groups.back().group);
    }
  } catch (const json::exception& error) {
    throw DataError(fmt::format("{}: found {} ({}); expected the groups of spaces of a run, as it saves them",
                                origin, abridged(text), error.what()));
  }
  if (groups.size() > 1 && names.size() == groups.size()) return groups;
  throw DataError(
      fmt::format("{}: found {} groups with {} names; expected two groups at least, each with a name of its "
                  "own",
                  origin, groups.size(), names.size()));
}

}  // namespace adtrain
