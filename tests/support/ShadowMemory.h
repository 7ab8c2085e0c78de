#pragma once

namespace adtrain {

/// Whether these tests are built with a sanitizer that takes most of the address space for its shadow memory:
/// limits of address space mean nothing there.
constexpr bool kShadowMemory =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

}  // namespace adtrain
