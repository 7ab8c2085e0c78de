/// The entry for libFuzzer. ADTRAIN_FUZZ names the target.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "fuzz/Targets.h"

namespace {

adtrain::fuzz::Target target = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* wanted = std::getenv("ADTRAIN_FUZZ");
  for (const adtrain::fuzz::NamedTarget& known : adtrain::fuzz::kTargets) {
    if (wanted != nullptr && std::string_view(wanted) == known.name) target = known.run;
  }
  if (target == nullptr) {
    std::fprintf(stderr, "ADTRAIN_FUZZ names no target; expected one of\n");
    for (const adtrain::fuzz::NamedTarget& known : adtrain::fuzz::kTargets)
      std::fprintf(stderr, "%s\n", known.name);
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
