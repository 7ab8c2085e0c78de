#pragma once

#include <cstddef>

#include <setjmp.h>
#include <ucontext.h>

namespace adtrain::emulation {

/// Where a fibre, or their caller, goes on. AddressSanitizer follows swapcontext alone, which asks the kernel
/// for the signal mask at every switch; the C library's jumps do not, and take a tenth of the time.
class FibrePosition {
 public:
  static constexpr size_t kStackBytes = 256 * 1024;

  /// Prepares a fibre that begins with `enter` on this stack.
  void begin(char* stack, void (*enter)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, enter, 0);
  }
#ifdef __SANITIZE_ADDRESS__
  void switch_to(FibrePosition& other) {
    swapcontext(&context_, &other.context_);
  }
#else
  void switch_to(FibrePosition& other) {
    reached_ = true;
    if (_setjmp(jump_) != 0) return;
    if (other.reached_) _longjmp(other.jump_, 1);
    setcontext(&other.context_);
  }

 private:
  jmp_buf jump_;
  bool reached_ = false;  ///< jump_ is set
#endif
 private:
  ucontext_t context_;
};

}  // namespace adtrain::emulation
