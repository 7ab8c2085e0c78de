#include "data/reader/Hdf5Catalog.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "data/reader/Attribute.h"
#include "data/reader/DatasetDescription.h"
#include "data/reader/Message.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr size_t kFilesKeptOpen = 16;
constexpr size_t kMostDatasets = 64, kMostAttributes = 64;
constexpr size_t kLongestName = 64 * 1024;
constexpr size_t kNamesAtATime = 4096, kMostNames = 4'000'000;
/// Names are listed from within the HDF5 library, which no exception may leave. So they always fit a message,
/// even if JSON writes each byte as six.
constexpr size_t kNameBytesAtATime = 64 * 1024;
static_assert(6 * (kNameBytesAtATime + kLongestName) + 4 * kNamesAtATime < kLongestMessage);

[[noreturn]] void fail(const std::string& path, const std::string& object, const std::string& what) {
  throw DataError(fmt::format("{}: {} {} (HDF5 says: {}); the file is damaged; fetch it again", path, object,
                              what, hdf5_reason()));
}

Hdf5Handle open_group(const std::string& path, const Hdf5Handle& file, const std::string& name) {
  Hdf5Handle group(H5Gopen2(file.get(), name.c_str(), H5P_DEFAULT), H5Gclose);
  if (!group.valid()) fail(path, fmt::format("group {}", name), "cannot be opened");
  return group;
}

struct NamesSoFar {
  const std::function<void(std::vector<std::string>)>* take;
  std::vector<std::string> batch;
  size_t bytes = 0;  ///< of the batch
  size_t count = 0;
};

herr_t take_name(hid_t, const char* name, const H5L_info_t*, void* state) {
  auto& so_far = *static_cast<NamesSoFar*>(state);
  so_far.batch.emplace_back(name, strnlen(name, kLongestName));  // no group of ours has such a name
  so_far.bytes += so_far.batch.back().size();
  if (so_far.batch.size() >= kNamesAtATime || so_far.bytes >= kNameBytesAtATime) {
    (*so_far.take)(std::exchange(so_far.batch, {}));
    so_far.bytes = 0;
  }
  return ++so_far.count > kMostNames ? -1 : 0;
}

herr_t add_attribute(hid_t location, const char* name, const H5A_info_t*, void* values) {
  const Hdf5Handle attribute(H5Aopen(location, name, H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) return 0;
  json value = attribute_value(attribute);
  auto& found = *static_cast<json*>(values);
  if (!value.is_null()) found[name] = std::move(value);
  return found.size() < kMostAttributes ? 0 : 1;
}

json attributes_of(const Hdf5Handle& object) {
  json values = json::object();
  hsize_t begin = 0;
  H5Aiterate2(object.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &begin, add_attribute, &values);
  return values;
}

json shape_in(const Hdf5Handle& group, const std::string& name) {
  if (H5Lexists(group.get(), name.c_str(), H5P_DEFAULT) <= 0) return {};
  const Hdf5Handle dataset(H5Dopen2(group.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset.valid()) return {};
  const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
  std::vector<hsize_t> shape(static_cast<size_t>(std::max(0, H5Sget_simple_extent_ndims(space.get()))));
  H5Sget_simple_extent_dims(space.get(), shape.data(), nullptr);
  return shape;
}

}  // namespace

const Hdf5Handle& Hdf5Catalog::opened(const std::string& path) {
  const auto found = std::ranges::find(files_, path, &std::pair<std::string, Hdf5Handle>::first);
  if (found != files_.end()) return found->second;
  Hdf5Handle file = open_hdf5(path);
  const Hdf5Handle creation(H5Fget_create_plist(file.get()), H5Pclose);
  hsize_t user_block = 0;
  H5Pget_userblock(creation.get(), &user_block);
  if (user_block != 0) {
    throw DataError(
        fmt::format("{}: begins with a user block of {} bytes; expected HDF5 from its first byte; rewrite it "
                    "with `h5repack {} OUT`",
                    path, user_block, path));
  }
  if (files_.size() == kFilesKeptOpen) files_.pop_back();
  files_.emplace_front(path, std::move(file));
  return files_.front().second;
}

void Hdf5Catalog::names(const std::string& path, const std::string& group,
                        const std::function<void(std::vector<std::string>)>& take) {
  const Hdf5Handle opened_group = open_group(path, opened(path), group);
  NamesSoFar so_far{&take, {}};
  hsize_t begin = 0;
  if (H5Literate(opened_group.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &begin, take_name, &so_far) < 0) {
    fail(path, fmt::format("group {}", group), "cannot be listed");
  }
  take(std::move(so_far.batch));
}

json Hdf5Catalog::attributes(const std::string& path, const std::string& object) {
  const Hdf5Handle opened_object(H5Oopen(opened(path).get(), object.c_str(), H5P_DEFAULT), H5Oclose);
  if (!opened_object.valid()) fail(path, object, "cannot be opened");
  return attributes_of(opened_object);
}

json Hdf5Catalog::survey(const std::string& path, const std::vector<std::string>& groups,
                         const std::string& dataset) {
  constexpr size_t kRoom = kLongestMessage - 64;  // what stands around the list takes the rest
  json found = json::array();
  size_t bytes = 0;
  for (const std::string& name : groups) {
    const Hdf5Handle group = open_group(path, opened(path), name);
    json surveyed = {{"attributes", attributes_of(group)}, {"shape", shape_in(group, dataset)}};
    bytes += message_text(surveyed).size() + 1;  // with its comma
    if (!found.empty() && bytes > kRoom) break;
    found.push_back(std::move(surveyed));
  }
  return found;
}

json Hdf5Catalog::groups_with(const std::string& path, const std::vector<std::string>& names,
                              const std::vector<std::string>& datasets) {
  json found = json::array();
  for (const std::string& name : names) {
    const Hdf5Handle group(H5Gopen2(opened(path).get(), name.c_str(), H5P_DEFAULT), H5Gclose);
    const bool holds_all = group.valid() && std::ranges::all_of(datasets, [&](const std::string& dataset) {
                             return H5Lexists(group.get(), dataset.c_str(), H5P_DEFAULT) > 0;
                           });
    if (holds_all) found.push_back(name);
  }
  return found;
}

json Hdf5Catalog::layouts(const std::string& path, const std::string& group) {
  json found = json::object();
  names(path, group, [&](const std::vector<std::string>& members) {
    for (const std::string& name : members) {
      const std::string member = fmt::format("{}/{}", group, name);
      const Hdf5Handle object(H5Oopen(opened(path).get(), member.c_str(), H5P_DEFAULT), H5Oclose);
      const bool other = object.valid() && H5Iget_type(object.get()) != H5I_DATASET;
      if (!other && found.size() < kMostDatasets) found[name] = description_of(opened(path), member);
    }
  });
  return found;
}

json Hdf5Catalog::chunks(const std::string& path, const std::string& dataset,
                         const std::vector<std::vector<hsize_t>>& first_elements) {
  const Hdf5Handle opened_dataset(H5Dopen2(opened(path).get(), dataset.c_str(), H5P_DEFAULT), H5Dclose);
  if (!opened_dataset.valid()) fail(path, fmt::format("data set {}", dataset), "cannot be opened");
  json found = json::array();
  for (const std::vector<hsize_t>& first : first_elements) {
    unsigned mask = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t bytes = 0;
    if (H5Dget_chunk_info_by_coord(opened_dataset.get(), first.data(), &mask, &address, &bytes) < 0) {
      fail(path, fmt::format("data set {}", dataset), "has an index of chunks that cannot be read");
    }
    found.push_back(address == HADDR_UNDEF ? json() : json(address));
    found.push_back(bytes);
    found.push_back(mask);
  }
  return found;
}

}  // namespace adtrain
