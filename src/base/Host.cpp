#include "base/Host.h"

#include <unistd.h>

namespace adtrain {

std::string host_name() {
  char name[256] = "";
  const bool known = gethostname(name, sizeof name - 1) == 0 && name[0] != '\0';
  return known ? name : "unknown";
}

}  // namespace adtrain
