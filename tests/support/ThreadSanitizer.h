#pragma once

namespace adtrain {

/// Whether these tests are built with ThreadSanitizer.
constexpr bool kThreadSanitizer =
#if defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

}  // namespace adtrain
