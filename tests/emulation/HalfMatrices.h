#pragma once

#include "emulation/Matrices.h"

namespace adtrain::emulation {

/// multiply_add() of fp16 elements.
void multiply_add_half(Product own);

}  // namespace adtrain::emulation
