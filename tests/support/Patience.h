#pragma once

#include "support/ShadowMemory.h"

namespace adtrain {

/// So many times as long as in the release build may the programs that a test starts take, as `test_patience`
/// in src/Rooms.cmake: a sanitizer makes them slow.
constexpr int kPatience = kShadowMemory ? 4 : 1;

}  // namespace adtrain
