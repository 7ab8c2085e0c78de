#include "checkpoint/TorchCheckpoint.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Random.h"
#include "checkpoint/TorchExport.h"
#include "checkpoint/ZipArchive.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

/// A checkpoint that torch.save has written: torch.nn.Linear(2, 1) after one step of AdamW.
std::string torch_file() {
  return read_file(ADTRAIN_SOURCE_DIR "/tests/fuzz/corpus/zip/torch");
}

TEST(TorchCheckpoint, ReadsWhatTorchHasSaved) {
  const TorchCheckpoint found = TorchCheckpoint::parse(torch_file(), "a.pt");
  EXPECT_EQ(found.step, 1);
  EXPECT_FALSE(found.of_adtrain);
  EXPECT_EQ(found.config.at("device"), "cuda:0");
  EXPECT_EQ(found.config.at("lr"), 1e-3);
  EXPECT_EQ(found.optimizer_settings.at("eps"), 1e-8);
  ASSERT_EQ(found.model.size(), 2U);
  EXPECT_EQ(found.model[0].name, "weight");
  EXPECT_EQ(found.model[0].tensor.sizes(), at::IntArrayRef({1, 2}));
  ASSERT_EQ(found.optimizer.size(), 5U);
  EXPECT_EQ(found.optimizer.back().tensor.item<float>(), 1);
  // The gradient of a sum over one row of ones is 1: the first moment is 1 − β₁, the second 1 − β₂.
  EXPECT_NEAR(found.optimizer[0].tensor.sum().item<double>(), 2 * 0.1, 1e-6);
  EXPECT_NEAR(found.optimizer[1].tensor.sum().item<double>(), 2 * 0.001, 1e-6);
}

TEST(TorchCheckpoint, ReadsWhatIsExported) {
  Snapshot snapshot;
  snapshot.step = 7;
  snapshot.model = {{"a.weight", at::randn({3, 4})}, {"b", at::randn({2})}};
  snapshot.optimizer = {{"step", at::full({}, 7.0F)}};
  for (const std::string moment : {"exp_avg.", "exp_avg_sq."}) {
    for (const auto& [name, tensor] : snapshot.model)
      snapshot.optimizer.push_back({moment + name, at::rand_like(tensor)});
  }
  const TorchCheckpoint found = TorchCheckpoint::parse(
      torch_export_bytes(snapshot, {{"lr", 0.5}, {"env", "darkroom"}, {"run_name", nullptr}}, "0.1.0"),
      "a.pt");
  EXPECT_TRUE(found.of_adtrain);
  EXPECT_EQ(found.step, 7);
  EXPECT_EQ(found.config, nlohmann::json({{"lr", 0.5}, {"env", "darkroom"}, {"run_name", nullptr}}));
  for (const auto& [read, written] :
       {std::pair(&found.model, &snapshot.model), std::pair(&found.optimizer, &snapshot.optimizer)}) {
    ASSERT_EQ(read->size(), written->size());
    for (const NamedTensor& named : *written) {
      const auto same = std::ranges::find(*read, named.name, &NamedTensor::name);
      ASSERT_NE(same, read->end()) << named.name;
      EXPECT_TRUE(at::equal(same->tensor, named.tensor)) << named.name;
    }
  }
}

TEST(TorchCheckpoint, DamagedBytesAreRefused) {
  std::string bytes = torch_file();
  bytes[bytes.find("weight")] = 'W';
  try {
    TorchCheckpoint::parse(bytes, "a.pt");
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("CRC-32"));
  }
  for (const char* other : {"", "PK", "no archive at all, but longer than an end record"})
    EXPECT_THROW(TorchCheckpoint::parse(other, "a.pt"), CheckpointError);
}

/// A pickle of which some bytes are others is read or refused. The archive's checksum is right, as its
/// author's would be.
TEST(TorchCheckpoint, ForgedPicklesDoNoHarm) {
  const std::string whole = torch_file();
  const std::string_view pickle = ZipArchive::parse(whole, "a.pt").content("archive/data.pkl");
  const size_t begin = static_cast<size_t>(pickle.data() - whole.data());
  // The list of entries names it after 46 bytes, of which 16 to 19 are the CRC-32.
  const size_t listed = whole.rfind("archive/data.pkl") - 46;
  RandomStream random(20);
  int read = 0, refused = 0;
  for (int attempt = 0; attempt < 5000; ++attempt) {
    std::string forged = whole;
    for (int change = 0; change <= attempt % 3; ++change) {
      const auto place = static_cast<size_t>(random.uniform() * static_cast<double>(pickle.size()));
      forged[begin + place] = static_cast<char>(static_cast<int>(random.uniform() * 256));
    }
    const auto crc = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(forged.data() + begin), pickle.size()));
    std::memcpy(forged.data() + listed + 16, &crc, sizeof(crc));
    try {
      TorchCheckpoint::parse(forged, "a.pt");
      ++read;
    } catch (const CheckpointError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace adtrain
