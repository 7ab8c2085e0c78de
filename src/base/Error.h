#pragma once

#include <stdexcept>
#include <string>

namespace adtrain {

/// The process's exit codes. The operating system adds 128 + n for signal n.
enum class ExitCode : int {
  kDone = 0,
  kUnexpected = 1,
  kUsage = 2,        ///< bad configuration or command line
  kEnvironment = 3,  ///< no GPU, ranks disagree, rendezvous failed
  kData = 4,         ///< histories missing or malformed
  kCheckpoint = 5,   ///< checkpoint unusable
  kNonFinite = 6,    ///< the loss became NaN or infinite
  kPeerLost = 7,     ///< another rank failed or a collective timed out; this rank is not the cause
  kOutOfMemory = 8,  ///< a device, or this host, has no memory left for what was asked
  kRequeue = 75,     ///< checkpointed on request; please start again
};

/// The one exception family. Thrown where a fault is found, reported once, in cli/.
/// `what()` says what was found, what was expected and what to do next.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

struct ConfigError : Error {
  explicit ConfigError(const std::string& message) : Error(ExitCode::kUsage, message) {}
};
struct EnvironmentError : Error {
  explicit EnvironmentError(const std::string& message) : Error(ExitCode::kEnvironment, message) {}
};
struct DataError : Error {
  explicit DataError(const std::string& message) : Error(ExitCode::kData, message) {}
};
struct CheckpointError : Error {
  explicit CheckpointError(const std::string& message) : Error(ExitCode::kCheckpoint, message) {}
};
struct NonFiniteError : Error {
  explicit NonFiniteError(const std::string& message) : Error(ExitCode::kNonFinite, message) {}
};
struct PeerLostError : Error {
  explicit PeerLostError(const std::string& message) : Error(ExitCode::kPeerLost, message) {}
};

/// Prints the error to standard error, with `who` ("rank 1 of 4", or "") as the process at fault. Returns the
/// exit code: the error's own, or kUnexpected for one that is not of the family.
ExitCode report_failure(const std::exception& error, const std::string& who = "");

}  // namespace adtrain
