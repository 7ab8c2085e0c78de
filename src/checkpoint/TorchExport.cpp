#include "checkpoint/TorchExport.h"

#include <map>
#include <string_view>
#include <vector>

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include "base/Text.h"

namespace adtrain {
namespace {

using TensorDict = c10::Dict<std::string, at::Tensor>;

c10::impl::GenericDict empty_dict() {
  return c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get());
}

TensorDict as_dict(const std::vector<NamedTensor>& tensors) {
  TensorDict dict;
  for (const auto& [name, tensor] : tensors)
    dict.insert(name, tensor.detach().cpu().clone(at::MemoryFormat::Contiguous));
  return dict;
}

/// `exp_avg.NAME` becomes NAME in the dict `exp_avg`; what has no such prefix stays.
c10::impl::GenericDict optimizer_dict(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, std::vector<NamedTensor>> moments;
  c10::impl::GenericDict dict = empty_dict();
  for (const auto& [name, tensor] : tensors) {
    const size_t dot = name.find('.');
    if (dot == std::string::npos) {
      dict.insert(name, tensor.detach().cpu().clone(at::MemoryFormat::Contiguous));
    } else {
      moments[name.substr(0, dot)].push_back({name.substr(dot + 1), tensor});
    }
  }
  for (const auto& [name, of_parameters] : moments) dict.insert(name, as_dict(of_parameters));
  return dict;
}

c10::IValue as_value(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  return {};  // None
}

/// torch::pickle_save would tag each dict with its type by a function that weights_only does not allow.
std::string archive_of(const c10::IValue& value) {
  std::string pickle;
  torch::jit::Pickler pickler([&pickle](const char* data, size_t size) { pickle.append(data, size); },
                              /*tensor_table=*/nullptr, /*type_renamer=*/nullptr,
                              /*memoized_class_types=*/nullptr, /*get_tensor_id=*/nullptr,
                              /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  std::string bytes;
  caffe2::serialize::PyTorchStreamWriter writer([&bytes](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("byteorder", "little", 6);
  const std::vector<at::Tensor>& tensors = pickler.tensorData();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor tensor = tensors[i].contiguous();
    writer.writeRecord("data/" + std::to_string(i), tensor.const_data_ptr(), tensor.storage().nbytes());
  }
  writer.writeEndOfFile();
  return bytes;
}

}  // namespace

std::string torch_export_bytes(const Snapshot& snapshot, const nlohmann::json& config,
                               const std::string& version) {
  c10::impl::GenericDict settings = empty_dict();
  for (const auto& [name, value] : config.items()) settings.insert(name, as_value(value));
  c10::impl::GenericDict file = empty_dict();
  file.insert("step", snapshot.step);
  file.insert("model", as_dict(snapshot.model));
  file.insert("optimizer", optimizer_dict(snapshot.optimizer));
  file.insert("config", settings);
  file.insert("adtrain", version);
  return archive_of(file);
}

bool is_named_as_torch_file(const std::filesystem::path& file) {
  const std::string ending = to_lower(file.extension().string());
  return ending == ".pt" || ending == ".pth";
}

}  // namespace adtrain
