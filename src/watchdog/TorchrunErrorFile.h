#pragma once

#include <exception>

namespace adtrain {

/// Where torchrun asks for it (TORCHELASTIC_ERROR_FILE), writes the error into the file from which torchrun
/// makes its table of failures. torchrun takes the oldest file for the cause, so only a rank at fault may
/// write. Never throws: an error report must not become an error of its own. Format:
/// torch.distributed.elastic.multiprocessing.errors.
void write_torchrun_error_file(const std::exception& error);

}  // namespace adtrain
