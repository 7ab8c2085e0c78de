#include "base/ProcessEnd.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <unistd.h>

namespace adtrain {
namespace {

bool exit_handlers_matter() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return std::getenv("LD_PRELOAD") != nullptr || access("/dev/nvidiactl", F_OK) == 0;
#endif
}

}  // namespace

void end_process(int code) {
  if (exit_handlers_matter()) std::exit(code);
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace adtrain
