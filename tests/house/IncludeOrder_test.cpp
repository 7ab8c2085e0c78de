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

/// Rooms of one folder from the ground up: a room includes itself and the storeys below, never its
/// neighbours.
struct House {
  std::string folder;  ///< from src/ on, "" or with a slash at its end
  std::vector<std::set<std::string>> storeys;
};

// `adtrain` is the folder of public headers, which stand on nothing and which any room may implement.
// `python` has no C++: it knows the program by its files alone.
const House kRooms = {"",
                      {{"adtrain"},
                       {"base"},
                       {"config"},
                       {"launch", "environments", "kernels"},
                       {"watchdog", "data"},
                       {"collectives", "launcher", "model"},
                       {"parallel", "memory", "placement", "checkpoint", "telemetry"},
                       {"framework"},
                       {"collection", "evaluation", "training"},
                       {"run"},
                       {"selftest"},
                       {"cli"},
                       {"python"}}};
const std::string kOwnFiles = ".";  ///< the room of files that lie in the folder itself
const House kKernels = {"kernels/",
                        {{"primitives"},
                         {kOwnFiles},
                         {"activation", "embedding", "encoder", "gemm", "loss", "norm", "optimizer", "rope"},
                         {"cpu", "mlp"},
                         {"quantised"},
                         {"dropout"},
                         {"attention"},
                         {"block"},
                         {"plan"}}};

std::optional<size_t> storey_of(const House& house, const std::string& room) {
  const auto storey = std::find_if(house.storeys.begin(), house.storeys.end(),
                                   [&](const auto& rooms) { return rooms.contains(room); });
  if (storey == house.storeys.end()) return std::nullopt;
  return storey - house.storeys.begin();
}

/// Of a file or header, named from src/ on. Empty where it is not of this house.
std::optional<std::string> room_of(const House& house, const std::string& path) {
  if (!path.starts_with(house.folder)) return std::nullopt;
  const std::string inside = path.substr(house.folder.size());
  const size_t slash = inside.find('/');
  return slash == std::string::npos ? kOwnFiles : inside.substr(0, slash);
}

/// What is wrong with a file of `room` that includes "header"; empty where nothing is.
std::string objection(const House& house, const std::string& room, const std::string& header) {
  const auto below = room_of(house, header);
  if (!below || below == room) return "";
  if (room == "adtrain") return "public headers show nothing internal";
  if (!storey_of(house, *below)) return "no such room; name a header from src/ on, as \"base/Error.h\"";
  if (storey_of(house, *below) == storey_of(house, room)) return room + " and " + *below + " are neighbours";
  return storey_of(house, *below) > storey_of(house, room) ? *below + " stands above " + room : "";
}

/// One line for each include under `source` that breaks the order of rooms: file, header, objection.
std::vector<std::string> objections(const fs::path& source, const House& house = kRooms) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^">]+)[">].*)");
  static const std::set<std::string> languages = {".h", ".cpp", ".cu", ".cuh"};
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source)) {
    if (!languages.contains(entry.path().extension().string())) continue;
    const std::string file = fs::relative(entry.path(), source).string();
    const auto room = room_of(house, file);
    std::ifstream text(entry.path());
    std::smatch match;
    for (std::string line; room && std::getline(text, line);) {
      if (!std::regex_match(line, match, include)) continue;
      const std::string header = match[2];
      std::string what = match[1] == "\"" ? objection(house, *room, header) : "";
      if (header == "cxxopts.hpp" && !file.starts_with("cli/")) what = "only cli knows the command line";
      if (!what.empty()) found.push_back(file + " includes " + header + ": " + what);
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

TEST(IncludeOrder, HoldsAmongKernels) {
  EXPECT_THAT(objections(kRoot / "src", kKernels), IsEmpty());
}

TEST(IncludeOrder, HoldsInThePublicHeaders) {
  EXPECT_THAT(objections(kRoot / "include"), IsEmpty());
}

TEST(IncludeOrder, EveryRoomHasAStorey) {
  for (const std::string& room : rooms_of(kRoot / "src")) EXPECT_TRUE(storey_of(kRooms, room)) << room;
  for (const std::string& room : rooms_of(kRoot / "src" / kKernels.folder))
    EXPECT_TRUE(storey_of(kKernels, room)) << room;
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

TEST(IncludeOrder, FindsAPlantedIncludeAmongKernels) {
  TemporaryFolder tree;
  plant(tree.path(), "kernels/norm/Norm.cu", "#include \"kernels/block/swiglu/Swiglu.h\"");
  plant(tree.path(), "kernels/primitives/Tile.cuh", "#include \"kernels/BlockShape.h\"");
  plant(tree.path(), "kernels/block/Block.cpp", "#include \"kernels/norm/Norm.h\"");
  plant(tree.path(), "model/Layers.cpp", "#include \"kernels/block/swiglu/Swiglu.h\"");
  EXPECT_THAT(objections(tree.path(), kKernels),
              ElementsAre(HasSubstr("kernels/block/swiglu/Swiglu.h: block stands above norm"),
                          HasSubstr("kernels/BlockShape.h: . stands above primitives")));
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
