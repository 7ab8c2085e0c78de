#include "adtrain/version.h"

namespace adtrain {

std::string version() {
  return ADTRAIN_VERSION;
}

}  // namespace adtrain
