#include <cstdio>
#include <cstdlib>

#include "fuzz/Targets.h"

namespace adtrain::fuzz {

void require(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace adtrain::fuzz
