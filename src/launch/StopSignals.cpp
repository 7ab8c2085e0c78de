#include "launch/StopSignals.h"

#include <ctime>

namespace adtrain {

bool StopSignals::insists() {
  constexpr int64_t kSecond = 1'000'000'000;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);  // one of the few functions that a handler may call
  const int64_t now = kSecond * time.tv_sec + time.tv_nsec;
  int64_t first = kNone;
  if (first_.compare_exchange_strong(first, now)) return false;
  return static_cast<double>(now - first) > kOneRequestSeconds * static_cast<double>(kSecond);
}

}  // namespace adtrain
