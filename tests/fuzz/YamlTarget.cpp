#include <filesystem>
#include <fstream>
#include <string>

#include "base/Error.h"
#include "config/Binder.h"
#include "config/Document.h"
#include "config/SampleOptions.h"
#include "fuzz/Targets.h"
#include "support/TemporaryFolder.h"

namespace adtrain::fuzz {
namespace {

/// What a document says, written as a file again; "" where it is refused.
std::string resolved(const Document& document) {
  SampleOptions options;
  std::vector<Section> sections;
  sections.emplace_back("Sample");
  options.declare(sections.back());
  try {
    Binder(pointers_to(sections)).bind(document, [&](Findings& findings) { options.check(findings); });
  } catch (const ConfigError&) {
    return "";
  }
  return resolved_yaml(pointers_to(sections));
}

std::string resolved_file(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
  Document document;
  document.read_file(file);
  return resolved(document);
}

}  // namespace

void yaml(std::string_view bytes) {
  // Beside it stands a file to include, and it may include itself.
  static const TemporaryFolder folder;
  static const bool written = static_cast<bool>(std::ofstream(folder.path() / "base.yaml") << "steps: 20\n"
                                                                                           << std::flush);
  require(written, "the folder can be written");
  const std::string first = resolved_file(folder.path() / "run.yaml", bytes);
  if (!first.empty()) {
    require(resolved_file(folder.path() / "again.yaml", first) == first,
            "a resolved configuration resolves to itself");
  }
  Document line;
  line.set(std::string(bytes.substr(0, bytes.find('\n'))));
  resolved(line);
}

}  // namespace adtrain::fuzz
