#pragma once

#include <string>

#include "support/Process.h"

namespace adtrain {

/// Whether the Python of the tests has this package.
inline bool has_python_package(const std::string& name) {
  return run_shell(quoted(ADTRAIN_PYTHON) + " -c 'import " + name + "'").exit_code == 0;
}

}  // namespace adtrain
