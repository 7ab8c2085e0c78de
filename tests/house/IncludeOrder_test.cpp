#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kRoot = ADTRAIN_SOURCE_DIR;

// From the ground up: a room includes itself and the storeys below, never its neighbours. `adtrain` is the
// folder of public headers, which cli implements.
const std::vector<std::set<std::string>> kStoreys = {{"base"},
                                                     {"config"},
                                                     {"distributed", "environments"},
                                                     {"data"},
                                                     {"model"},
                                                     {"checkpoint", "telemetry"},
                                                     {"collection", "evaluation", "training"},
                                                     {"run"},
                                                     {"adtrain"},
                                                     {"cli"}};

std::optional<size_t> storey_of(const std::string& room) {
  const auto storey =
      std::find_if(kStoreys.begin(), kStoreys.end(), [&](const auto& rooms) { return rooms.contains(room); });
  if (storey == kStoreys.end()) return std::nullopt;
  return storey - kStoreys.begin();
}

/// What is wrong with a file of `room` that includes `header`; empty where nothing is.
std::string objection(const std::string& room, const std::string& header, bool quoted) {
  if (header == "cxxopts.hpp") return room == "cli" ? "" : "only cli knows the command line";
  if (!quoted) return "";
  const std::string below = header.substr(0, header.find('/'));
  if (below == room) return "";
  if (room == "adtrain") return "public headers show nothing internal";
  if (!storey_of(below)) return "no such room; name a header from src/ on, as \"base/Error.h\"";
  if (storey_of(below) == storey_of(room)) return room + " and " + below + " are neighbours";
  return storey_of(below) > storey_of(room) ? below + " stands above " + room : "";
}

/// One line for each include under `source` that breaks the order of rooms: file, header, objection.
std::vector<std::string> objections(const fs::path& source) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^">]+)[">].*)");
  static const std::set<std::string> languages = {".h", ".cpp", ".cu", ".cuh"};
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source)) {
    if (!languages.contains(entry.path().extension().string())) continue;
    const fs::path file = fs::relative(entry.path(), source);
    const std::string room = file.begin()->string();
    std::ifstream text(entry.path());
    std::smatch match;
    for (std::string line; std::getline(text, line);) {
      if (!std::regex_match(line, match, include)) continue;
      const std::string what = objection(room, match[2], match[1] == "\"");
      if (!what.empty()) found.push_back(file.string() + " includes " + match[2].str() + ": " + what);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> rooms_of(const fs::path& source) {
  std::vector<std::string> rooms;
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    if (entry.is_directory()) rooms.push_back(entry.path().filename().string());
  }
  return rooms;
}

/// A source tree with one file, `path`, that holds one line.
void plant(const fs::path& root, const std::string& path, const std::string& line) {
  fs::create_directories((root / path).parent_path());
  std::ofstream(root / path) << "#pragma once\n" << line << "\n";
}

TEST(IncludeOrder, HoldsInEveryRoom) {
  EXPECT_THAT(objections(kRoot / "src"), IsEmpty());
}

TEST(IncludeOrder, HoldsInThePublicHeaders) {
  EXPECT_THAT(objections(kRoot / "include"), IsEmpty());
}

TEST(IncludeOrder, EveryRoomHasAStorey) {
  for (const std::string& room : rooms_of(kRoot / "src")) EXPECT_TRUE(storey_of(room)) << room;
}

TEST(IncludeOrder, EveryRoomIsInTheArchitectureGuide) {
  const fs::path guide = kRoot / "docs" / "architecture.md";
  std::ifstream file(guide);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  for (const std::string& room : rooms_of(kRoot / "src"))
    EXPECT_THAT(text, HasSubstr("`" + room + "`")) << guide;
}

TEST(IncludeOrder, AllowsItselfAndWhatStandsBelow) {
  TemporaryFolder tree;
  plant(tree.path(), "model/Decoder.h", "#include \"model/layers/Block.h\"");
  plant(tree.path(), "training/Trainer.cpp", "#include \"model/Decoder.h\"  // two storeys down");
  plant(tree.path(), "cli/Main.cpp", "#include <cxxopts.hpp>");
  EXPECT_THAT(objections(tree.path()), IsEmpty());
}

TEST(IncludeOrder, FindsAPlantedUpwardInclude) {
  TemporaryFolder tree;
  plant(tree.path(), "data/deep/Batch.h", "#include \"training/Trainer.h\"");
  plant(tree.path(), "data/kernels/Gather.cu", "  #  include \"model/Decoder.h\"");
  EXPECT_THAT(objections(tree.path()),
              ElementsAre("data/deep/Batch.h includes training/Trainer.h: training stands above data",
                          "data/kernels/Gather.cu includes model/Decoder.h: model stands above data"));
}

TEST(IncludeOrder, FindsNeighboursStrangersAndLeaks) {
  TemporaryFolder tree;
  plant(tree.path(), "evaluation/Rollout.h", "#include \"training/Trainer.h\"");
  plant(tree.path(), "model/Decoder.h", "#include \"Block.h\"");
  plant(tree.path(), "run/Train.cpp", "#include <cxxopts.hpp>");
  plant(tree.path(), "adtrain/adtrain.h", "#include \"base/Error.h\"");
  EXPECT_THAT(objections(tree.path()),
              ElementsAre(HasSubstr("public headers show nothing internal"),
                          HasSubstr("evaluation and training are neighbours"),
                          HasSubstr("model/Decoder.h includes Block.h: no such room"),
                          HasSubstr("only cli knows the command line")));
}

}  // namespace
}  // namespace adtrain
