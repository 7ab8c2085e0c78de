#include <cstdint>
#include <limits>

#include "telemetry/TensorBoardWriter.h"

/// Writes the events that tests/interop/read_tensorboard.py expects: a run of steps 1 … 10 that was resumed
/// after step 6 and went on to step 12, with other values.
int main(int count, char** arguments) {
  if (count != 2) return 2;
  {
    adtrain::TensorBoardWriter first(arguments[1], 0);
    first.hyperparameters({{"lr", 0.003}, {"seed", 7.0}, {"fused", true}, {"env", "darkroom ü"}}, "sample");
    for (int step = 1; step <= 10; ++step) {
      first.scalar("train/loss", step, 1.0 / step);
      first.scalar("train/accuracy ü", step, 0.1 * step);
    }
    first.scalar("large/step", std::numeric_limits<int32_t>::max(), -1e30);
  }
  adtrain::TensorBoardWriter resumed(arguments[1], 7);
  resumed.hyperparameters({{"lr", 0.001}}, "sample");
  for (int step = 7; step <= 12; ++step) resumed.scalar("train/loss", step, 100.0 + step);
  resumed.succeeded();
  return 0;
}
