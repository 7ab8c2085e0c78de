#include "evaluation/scoring/ScoreShard.h"

#include <optional>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "config/Scalar.h"

namespace adtrain {

ScoreShard ScoreShard::parse(const std::string& text) {
  constexpr int64_t kMost = 1'000'000;
  const size_t slash = text.find('/');
  const auto number = [](const std::string& digits) { return Scalar<int64_t>::parse(digits); };
  const auto index = slash == std::string::npos ? std::nullopt : number(text.substr(0, slash));
  const auto count = slash == std::string::npos ? std::nullopt : number(text.substr(slash + 1));
  if (!index || !count || *count < 1 || *count > kMost) {
    throw ConfigError(
        fmt::format("--shard: found '{}'; expected i/n: part i of n, counted from 0, such as 0/4 to 3/4",
                    abridged(text)));
  }
  if (*index < 0 || *index >= *count) {
    throw ConfigError(fmt::format("--shard: found {}; of {} parts the first is 0/{}, and the last is {}/{}",
                                  text, *count, *count, *count - 1, *count));
  }
  return {*index, *count};
}

std::string ScoreShard::text() const {
  return fmt::format("{}/{}", index, count);
}

}  // namespace adtrain
