#pragma once

#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"

namespace adtrain {

/// Tests on a GPU, on a stream of their own, as steps that are captured need one.
class OnGpuStream : public ::testing::Test {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool());
  }
};

}  // namespace adtrain
