#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>
#include <sys/types.h>

namespace adtrain {

/// A process of its own that reads HDF5 files for this one. The HDF5 library may crash, loop or ask for any
/// amount of memory where a file is damaged; there it does no harm: the program `adtrain-history-reader` has
/// bounded memory and processor time, and its end is a DataError here.
///
/// It is another program, started by posix_spawn: nothing that this process has open (MPI, CUDA, threads) is
/// touched or inherited. For one thread at a time. Ends with the object, and with this process.
class ReaderProcess {
 public:
  /// Starts it: the program beside this one, else on PATH, else where it was built. Throws EnvironmentError.
  ReaderProcess();
  ~ReaderProcess();
  ReaderProcess(const ReaderProcess&) = delete;
  ReaderProcess& operator=(const ReaderProcess&) = delete;

  /// Sends a request (reader/main.cpp lists them). `task` names the file and the operation in errors of the
  /// following answers: "histories/x.hdf5: reading task 3". Throws DataError where a request is too long.
  void ask(const nlohmann::json& request, const std::string& task);
  /// Updates the current operation, where that is known.
  void doing(const std::string& task) { task_ = task; }
  /// The next answer. Throws DataError: the answer's own error, or what ended the process.
  nlohmann::json answer();
  /// The bytes that follow an answer.
  void bytes(void* to, size_t size);

 private:
  [[noreturn]] void fail_as_it_ended();

  int socket_ = -1;
  pid_t process_ = -1;  ///< −1 after it was waited for
  std::string task_;
};

}  // namespace adtrain
