#include <cstdio>
#include <exception>

#include "checkpoint/Safetensors.h"

/// Reads one safetensors file and writes another, for tests/interop/read_safetensors.py.
int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    const adtrain::SafetensorsFile file = adtrain::read_safetensors(arguments[1]);
    adtrain::write_safetensors(arguments[2], file.tensors, file.metadata);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
