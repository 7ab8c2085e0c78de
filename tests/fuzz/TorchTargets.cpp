#include <vector>

#include "base/Error.h"
#include "checkpoint/Pickle.h"
#include "checkpoint/ZipArchive.h"
#include "fuzz/Targets.h"

namespace adtrain::fuzz {
namespace {

void read_pickle(std::string_view bytes) {
  try {
    const Pickle pickle = Pickle::parse(bytes, "fuzzed.pt");
    // A walk to the leaves ends, since depths are bounded. Of shared values each place is one step: stop
    // early.
    int steps = 10'000;
    const auto walk = [&](const auto& self, const Pickle::Value& value, int depth) -> void {
      require(depth <= Pickle::kDeepest, "values are not nested more deeply than promised");
      require(value.kind != Pickle::Kind::kDict || value.parts.size() % 2 == 0, "a dict holds pairs");
      require(value.kind != Pickle::Kind::kTensor || value.parts.size() == 3, "a tensor has its three parts");
      for (const Pickle::Index part : value.parts) {
        if (--steps > 0) self(self, pickle.at(part), depth + 1);
      }
    };
    walk(walk, pickle.root(), 1);
    pickle.find(pickle.root(), "model");
  } catch (const CheckpointError&) {
  }
}

}  // namespace

void pickle(std::string_view bytes) {
  read_pickle(bytes);
}

void zip(std::string_view bytes) {
  try {
    const ZipArchive archive = ZipArchive::parse(bytes, "fuzzed.pt");
    for (const auto& [name, content] : archive.entries()) {
      require(content.empty() || (content.data() >= bytes.data() &&
                                  content.data() + content.size() <= bytes.data() + bytes.size()),
              "an entry is inside the file");
      if (name.ends_with("data.pkl")) read_pickle(content);
    }
    if (!archive.entries().empty()) archive.content(archive.entries().begin()->first);
  } catch (const CheckpointError&) {
  }
}

}  // namespace adtrain::fuzz
