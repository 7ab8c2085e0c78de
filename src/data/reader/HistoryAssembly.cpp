#include "data/reader/HistoryAssembly.h"

#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/Checksum.h"
#include "base/Error.h"
#include "data/Hdf5.h"
#include "data/reader/HistoryDataset.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_writing(const fs::path& path) {
  throw DataError(fmt::format(
      "{}: cannot be written (HDF5 says: {}); make room, or set traj_dir to a folder that can be written",
      path.string(), hdf5_reason()));
}

void write_attribute(const Hdf5Handle& file, const std::string& name, const std::string& value,
                     const fs::path& path) {
  const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose), space(H5Screate(H5S_SCALAR), H5Sclose);
  H5Tset_size(type.get(), value.size() + 1);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const Hdf5Handle attribute(
      H5Acreate2(file.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (!attribute.valid() || H5Awrite(attribute.get(), type.get(), value.c_str()) < 0) fail_writing(path);
}

/// All data sets that adtrain writes, in the order of a file's checksum: first those of version 1.
constexpr const char* kDatasets[] = {"states",      "actions",          "rewards",         "next_states",
                                     "dones",       "compress_markers", "optimal_actions", "terminations",
                                     "truncations", "step_num",         "expert_actions"};

/// One checksum over those of all data sets, in order: nothing once a data set has none.
class ContentChecksum {
 public:
  void add(const Hdf5Handle& file, int64_t task) {
    for (const char* name : kDatasets) {
      const std::string dataset = fmt::format("{}/{}", task, name);
      if (H5Lexists(file.get(), dataset.c_str(), H5P_DEFAULT) <= 0) continue;
      const Hdf5Handle attribute(
          H5Aopen_by_name(file.get(), dataset.c_str(), kChecksumAttribute, H5P_DEFAULT, H5P_DEFAULT),
          H5Aclose);
      uint32_t value = 0;
      if (!attribute.valid() || H5Aread(attribute.get(), H5T_NATIVE_UINT32, &value) < 0) complete_ = false;
      lines_ += fmt::format("{} {:08x}\n", dataset, value);
    }
  }
  std::optional<std::string> text() const {
    if (!complete_) return std::nullopt;
    return checksum_text(lines_.data(), lines_.size());
  }

 private:
  std::string lines_;
  bool complete_ = true;
};

}  // namespace

void assemble_history_file(const fs::path& parts, const NumberRanges& tasks, const fs::path& assembled,
                           HistorySettings settings, const std::function<void(int64_t task)>& before) {
  Hdf5Handle whole(H5Fcreate(assembled.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  if (!whole.valid()) fail_writing(assembled);
  ContentChecksum content;
  for (const int64_t task : tasks.numbers()) {
    before(task);
    const Hdf5Handle part = open_hdf5(parts / fmt::format("{}.hdf5", task));
    const std::string group = std::to_string(task);
    if (H5Ocopy(part.get(), group.c_str(), whole.get(), group.c_str(), H5P_DEFAULT, H5P_DEFAULT) < 0) {
      fail_writing(assembled);
    }
    content.add(whole, task);
  }
  if (const auto checksum = content.text()) settings[kContentChecksum] = *checksum;
  for (const auto& [name, value] : settings) write_attribute(whole, name, value, assembled);
  if (!whole.close()) fail_writing(assembled);
}

void verify_task_columns(const fs::path& part, int64_t task) {
  const Hdf5Handle file = open_hdf5(part);
  const auto dataset = [&](const char* name) {
    return HistoryDataset(part, file, fmt::format("{}/{}", task, name));
  };
  for (const char* name : kDatasets) {
    if (H5Lexists(file.get(), fmt::format("{}/{}", task, name).c_str(), H5P_DEFAULT) > 0)
      dataset(name).expect_as_written();
  }
  for (const char* name : {"states", "actions", "rewards"}) dataset(name);  // are they there
}

void rehearse_assembly(const fs::path& part, int64_t task) {
  constexpr size_t kIncrement = 1 << 20;
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_core(access.get(), kIncrement, /*backing_store=*/false);
  const Hdf5Handle whole(H5Fcreate("rehearsal", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  const Hdf5Handle file = open_hdf5(part);
  const std::string group = std::to_string(task);
  if (whole.valid() &&
      H5Ocopy(file.get(), group.c_str(), whole.get(), group.c_str(), H5P_DEFAULT, H5P_DEFAULT) >= 0) {
    return;
  }
  throw DataError(
      fmt::format("{}: cannot be copied (HDF5 says: {}); it is damaged", part.string(), hdf5_reason()));
}

}  // namespace adtrain
