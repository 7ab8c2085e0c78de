#include "adtrain/adtrain.h"

int main(int argc, char** argv) {
  return adtrain::run_command_line(argc, argv);
}
