#include "telemetry/TensorBoardWriter.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::vector<std::string> event_files(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(TensorBoardWriter, ChecksumIsCastagnolis) {
  EXPECT_EQ(tensorboard::crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(tensorboard::crc32c(""), 0U);
  EXPECT_EQ(tensorboard::crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
}

TEST(TensorBoardWriter, RecordsEqualTheReferenceToTheByte) {
  EXPECT_EQ(hexadecimal(tensorboard::record(tensorboard::version_event(0))),
            "0f000000000000006d532b091a0d627261696e2e4576656e743a32fc985129");
  EXPECT_EQ(hexadecimal(tensorboard::record(tensorboard::scalar_event(1.0, 5, "loss", 0.5F))),
            "1a00000000000000129bd82d09000000000000f03f10052a0d0a0b0a046c6f7373150000003f1e6d8ff9");
}

TEST(TensorBoardWriter, ResumingWritesASessionStart) {
  // wall_time 1.0, step 300 (a varint of two bytes), SessionLog {status: START}
  EXPECT_EQ(hexadecimal(tensorboard::session_start_event(1.0, 300)), "09000000000000f03f10ac023a020801");
}

TEST(TensorBoardWriter, HyperparametersEqualTensorBoardsOwnToTheByte) {
  // tensorboard.plugins.hparams.summary_v2.hparams_pb({"flag": True, "n": 5, "name": "ü", "lr": 0.001},
  // trial_id="small", start_time_secs=2.0).SerializeToString(deterministic=True)
  const Hyperparameters given = {{"flag", true}, {"n", 5.0}, {"name", "ü"}, {"lr", 0.001}};
  EXPECT_EQ(
      hexadecimal(tensorboard::hyperparameters_summary(given, "small", 2.0)),
      "0a82010a1c5f68706172616d735f2f73657373696f6e5f73746172745f696e666f42060801120212004a5a0a580a07687061"
      "72616d73124d1a4b0a0a0a04666c6167120220010a0e0a016e12091100000000000014400a0c0a046e616d6512041a02c3bc"
      "0a0f0a026c72120911fca9f1d24d62503f2205736d616c6c290000000000000040");
}

TEST(TensorBoardWriter, FilesAreNamedForTensorBoardAndSortInTheOrderOfRuns) {
  const TemporaryFolder folder;
  std::vector<std::string> in_order;
  for (int run = 0; run < 5; ++run) {
    const TensorBoardWriter writer(folder.path() / "tensorboard", run);
    for (const std::string& name : event_files(folder.path() / "tensorboard")) {
      if (std::find(in_order.begin(), in_order.end(), name) == in_order.end()) in_order.push_back(name);
    }
  }
  EXPECT_EQ(event_files(folder.path() / "tensorboard"), in_order);
  ASSERT_EQ(in_order.size(), 5U);
  EXPECT_THAT(in_order[0], StartsWith("events.out.tfevents."));
}

TEST(TensorBoardWriter, OpensWithTheVersionAndShowsScalarsAfterAFlush) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path(), 0);
  const auto file = folder.path() / event_files(folder.path()).at(0);
  const std::string opening = read_file(file);
  EXPECT_THAT(opening, HasSubstr("brain.Event:2"));
  writer.scalar("train/loss", 3, 0.5);
  EXPECT_EQ(read_file(file), opening);
  writer.flush();
  const std::string grown = read_file(file);
  EXPECT_THAT(grown, StartsWith(opening));
  EXPECT_THAT(grown.substr(opening.size()), HasSubstr("train/loss"));
  EXPECT_EQ(writer.failure(), "");
}

}  // namespace
}  // namespace adtrain
