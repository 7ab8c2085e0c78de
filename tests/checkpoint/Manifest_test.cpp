#include "checkpoint/Manifest.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Checksum.h"
#include "base/Error.h"
#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ManifestFolder : public TemporaryFolder {
 public:
  ManifestFolder() {
    manifest.step = 1234;
    manifest.created = 1.7e9;
    manifest.state = {{"world_size", 4}, {"seed", 18446744073709551615ULL}, {"rate", 0.1}, {"note", "ü"}};
    manifest.files["data"] = {9, checksum_text("123456789")};
    write_file(path() / "data", "123456789");
    write_file(path() / Manifest::kFileName, manifest.text());
  }
  std::string fault() const {
    try {
      Manifest::read(path()).verify(path(), "data");
      EXPECT_NO_THROW(Manifest::read(path()).read_verified(path(), "data"));
      return "none";
    } catch (const CheckpointError& error) {
      EXPECT_EQ(fault_of_reading(), error.what());
      return error.what();
    }
  }
  Manifest manifest;

 private:
  std::string fault_of_reading() const {
    try {
      Manifest::read(path()).read_verified(path(), "data");
      return "none";
    } catch (const CheckpointError& error) {
      return error.what();
    }
  }
};

TEST(Manifest, ComesBackAsWritten) {
  const ManifestFolder folder;
  const Manifest read = Manifest::read(folder.path());
  EXPECT_EQ(read.step, 1234);
  EXPECT_EQ(read.created, 1.7e9);
  EXPECT_EQ(read.state, folder.manifest.state);
  EXPECT_EQ(read.files.at("data").bytes, 9U);
  EXPECT_EQ(read.files.at("data").crc32, "cbf43926");  // the check value of CRC-32
  EXPECT_EQ(read.read_verified(folder.path(), "data").bytes(), "123456789");
}

TEST(Manifest, KnowsTheStepInAFoldersNameAsItIsWritten) {
  EXPECT_EQ(Manifest::step_in_name("runs/a/checkpoints/step-120"), 120);
  EXPECT_EQ(Manifest::step_in_name("step-0"), 0);
  for (const char* name : {"step-", "step-7x", "step-007", "step--7", "step--0", "step-7.tmp", "astep-7",
                           "latest", "step-99999999999999999999", "step-7/", ""})
    EXPECT_EQ(Manifest::step_in_name(name), std::nullopt) << name;
}

TEST(Manifest, AFolderThatIsNamedAfterAnotherStepIsNotRead) {
  const TemporaryFolder folder;
  Manifest manifest;
  manifest.step = 7;
  manifest.files["data"] = {0, checksum_text(kChecksumOfNothing)};
  const auto fault = [&](const std::string& name) -> std::string {
    write_file_atomically(folder.path() / name / Manifest::kFileName, manifest.text());
    EXPECT_EQ(Manifest::read_under_any_name(folder.path() / name).step, 7) << name;
    try {
      Manifest::read(folder.path() / name);
      return "none";
    } catch (const CheckpointError& error) {
      return error.what();
    }
  };
  for (const char* name : {"step-7", "step-8.tmp", "copy"}) EXPECT_EQ(fault(name), "none") << name;
  const auto names_both = AllOf(HasSubstr("step-8 is named after step 8"), HasSubstr("says step 7"));
  EXPECT_THAT(fault("step-8"), names_both);
  std::filesystem::create_directory_symlink("step-8", folder.path() / "latest");
  EXPECT_THAT(fault("latest"), names_both) << "the folder that a link points to counts";
}

TEST(Manifest, AStateThatJsonCannotHoldStillVerifies) {
  ManifestFolder folder;
  folder.manifest.state = {{"loss", std::nan("")}};
  write_file(folder.path() / Manifest::kFileName, folder.manifest.text());
  EXPECT_TRUE(Manifest::read(folder.path()).state.at("loss").is_null());
}

TEST(Manifest, EveryFlippedBitOfItThatMattersIsFound) {
  const ManifestFolder folder;
  const std::string good = folder.manifest.text();
  const nlohmann::json meaning = nlohmann::json::parse(good);
  int found = 0, harmless = 0;
  for (size_t position = 0; position < good.size(); ++position) {
    std::string damaged = good;
    damaged[position] ^= 1;
    std::ofstream(folder.path() / Manifest::kFileName) << damaged;
    if (folder.fault() != "none") {
      ++found;
    } else {
      ++harmless;  // white space, or another way to write the same
      EXPECT_EQ(nlohmann::json::parse(damaged), meaning) << position;
    }
  }
  EXPECT_GT(found, harmless);
}

TEST(Manifest, NamesTheFileAtFault) {
  const ManifestFolder folder;
  write_file(folder.path() / "data", "123456780");
  EXPECT_THAT(folder.fault(), AllOf(HasSubstr("data"), HasSubstr("cbf43926"), HasSubstr("damaged")));
  write_file(folder.path() / "data", "12345678");
  EXPECT_THAT(folder.fault(),
              AllOf(HasSubstr("data"), HasSubstr("8 bytes"), HasSubstr("says 9"), HasSubstr("truncated")));
  std::filesystem::remove(folder.path() / "data");
  EXPECT_THAT(folder.fault(), AllOf(HasSubstr("incomplete"), HasSubstr("data"), HasSubstr("No such file")));
}

TEST(Manifest, AFileThatItDoesNotListIsNotTaken) {
  const ManifestFolder folder;
  write_file(folder.path() / "other", "x");
  EXPECT_THROW(folder.manifest.read_verified(folder.path(), "other"), CheckpointError);
}

TEST(Manifest, ALaterFormatAsksForItsProgram) {
  const ManifestFolder folder;
  std::string text = folder.manifest.text();
  const std::string version = "\"format_version\": 1";
  text.replace(text.find(version), version.size(), "\"format_version\": 2");
  write_file(folder.path() / Manifest::kFileName, text);
  EXPECT_THAT(folder.fault(), AllOf(HasSubstr("version 2"), HasSubstr("reads version 1")));
}

TEST(Manifest, OfAnotherProgramIsDamagedNotACrash) {
  const ManifestFolder folder;
  for (const char* text : {"", "[]", "null", "{", "{\"format_version\": \"x\"}", "{\"format_version\": 1}"}) {
    write_file(folder.path() / Manifest::kFileName, text);
    EXPECT_THAT(folder.fault(), HasSubstr("damaged")) << text;
  }
}

TEST(Manifest, ACountIsAWholeNumberThatARunCanReach) {
  const nlohmann::json state = {{"good", 480},
                                {"zero", 0},
                                {"most", Manifest::kLargestCount},
                                {"negative", -1},
                                {"text", "480"},
                                {"real", 480.0},
                                {"beyond", (int64_t{1} << 53) + 1},
                                {"signed", 9223372036854775807LL},
                                {"unsigned", 18446744073709551615ULL}};
  EXPECT_EQ(Manifest::count_in(state, "good"), 480);
  EXPECT_EQ(Manifest::count_in(state, "zero"), 0);
  EXPECT_EQ(Manifest::count_in(state, "most"), int64_t{1} << 53);
  for (const char* name : {"negative", "text", "real", "beyond", "signed", "unsigned", "absent"}) {
    EXPECT_EQ(Manifest::count_in(state, name), std::nullopt) << name;
  }
  EXPECT_EQ(Manifest::count_in(nlohmann::json::array(), "good"), std::nullopt);
}

TEST(Manifest, StepsThatNoRunReachesAreRefusedThoughTheChecksumIsRight) {
  ManifestFolder folder;
  for (const int64_t step : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    folder.manifest.step = step;
    write_file(folder.path() / Manifest::kFileName, folder.manifest.text());
    EXPECT_THAT(folder.fault(), AllOf(HasSubstr("'step'"), HasSubstr("9007199254740992")));
  }
}

TEST(Manifest, NestedDeeplyOrHugeItIsDamagedNotACrash) {
  const ManifestFolder folder;
  write_file(folder.path() / Manifest::kFileName,
             "{\"state\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}");
  EXPECT_THAT(folder.fault(), HasSubstr("nested too deeply"));
  write_file(folder.path() / Manifest::kFileName, "{");
  std::filesystem::resize_file(folder.path() / Manifest::kFileName, uint64_t{1} << 40);  // of holes
  EXPECT_THAT(folder.fault(), AllOf(HasSubstr("1.0 TiB"), HasSubstr("at most 16.0 MiB")));
}

TEST(Manifest, AFileOfAnotherSizeIsNotReadAtAll) {
  const ManifestFolder folder;
  std::filesystem::resize_file(folder.path() / "data", uint64_t{1} << 40);
  EXPECT_THAT(folder.fault(), AllOf(HasSubstr("1099511627776 bytes"), HasSubstr("says 9")));
}

}  // namespace
}  // namespace adtrain
