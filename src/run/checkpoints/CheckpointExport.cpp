#include <charconv>
#include <map>
#include <system_error>

#include <fmt/format.h>

#include "adtrain/version.h"
#include "base/File.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "base/WriteRemedy.h"
#include "checkpoint/QuantisedTensors.h"
#include "checkpoint/TensorStatistics.h"
#include "checkpoint/TorchExport.h"
#include "config/YamlFile.h"
#include "run/RunConfig.h"
#include "run/checkpoints/CheckpointCommands.h"
#include "run/checkpoints/CheckpointTarget.h"
#include "run/checkpoints/QuantisedExport.h"

namespace adtrain {
namespace {

using nlohmann::json;

template <class Number>
json number_or_text(const std::string& text) {
  Number number{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  return error == std::errc() && end == last ? json(number) : json(text);
}

json typed(const Entry& entry, Key::Type type) {
  if (entry.kind == Entry::Kind::kNull) return nullptr;
  if (type == Key::Type::kInteger) return number_or_text<int64_t>(entry.text);  // it may be auto_batch_size
  if (type == Key::Type::kReal) return number_or_text<double>(entry.text);
  if (type == Key::Type::kBoolean) return entry.text == "true";
  return entry.text;
}

/// The resolved YAML text as an object of typed values.
json typed_configuration(const std::string& yaml) {
  RunConfig known;
  std::map<std::string, Key::Type> types;
  for (const Section& section : known.sections()) {
    for (const Key& key : section.keys()) types.emplace(key.name(), key.type());
  }
  json config = json::object();
  for (const Entry& entry : YamlFile::parse(yaml, "the run's configuration").entries) {
    const auto type = types.find(entry.key);
    config[entry.key] = typed(entry, type == types.end() ? Key::Type::kText : type->second);
  }
  return config;
}

}  // namespace

ExitCode export_checkpoint(const std::filesystem::path& target, const std::filesystem::path& out,
                           const std::vector<std::string>& overrides) {
  if (!overrides.empty() || !is_named_as_torch_file(out)) return export_quantised(target, out, overrides);
  const CheckpointStore::Found found = newest_of(target);
  if (hold_quantised(found.snapshot.model)) {
    throw ConfigError(
        fmt::format("{}: its weights are quantised, and .pt files have them as they are; export the run that "
                    "they were quantised from",
                    found.path.string()));
  }
  for (const auto* tensors : {&found.snapshot.model, &found.snapshot.optimizer})
    expect_finite(*tensors, found.path.string() + ": ");
  const std::string bytes = torch_export_bytes(
      found.snapshot, typed_configuration(configuration_in(found.snapshot.state)), version());
  try {
    write_file_atomically(out, bytes);
  } catch (const std::filesystem::filesystem_error& error) {
    throw EnvironmentError(fmt::format("{}; the file for --out was not written: {}, or choose another place",
                                       error.what(),
                                       write_remedy(error, std::filesystem::absolute(out).parent_path())));
  }
  print_answer(
      fmt::format("{}: step {} of {}, {} tensors, {}; in Python: torch.load(\"{}\", "
                  "weights_only=True)[\"model\"]\n",
                  out.string(), found.snapshot.step, found.path.string(), found.snapshot.model.size(),
                  human_bytes(static_cast<double>(bytes.size())), out.string()));
  return ExitCode::kDone;
}

}  // namespace adtrain
