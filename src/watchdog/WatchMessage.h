#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "watchdog/Activity.h"
#include "watchdog/Failure.h"

/// The messages between ranks' watches: one JSON object a line, with a `kind`.
namespace adtrain {

/// Where rank 0 listens, sent to the others through the launcher's store or MPI.
struct Invitation {
  RankIdentity who;
  int64_t port = 0;
  std::string secret;
  std::vector<std::string> addresses;
};

/// The first message of a rank. The secret shows that it was invited.
struct Hello {
  std::string secret;
  RankIdentity who;
  ActivityStatus doing;
};

/// The answer to a Hello.
struct Welcome {};

/// What the sender does, twice a second.
struct Beat {
  ActivityStatus doing;
};

/// The sender ends because of this failure.
struct Failed {
  Failure failure;
};

/// The sender has lost a peer and asks which.
struct Lost {};

/// The first failure, as rank 0 decides; sent to rank 0, it says that rank 0 is the one that was given up.
struct Verdict {
  Failure failure;
};

/// The sender has finished and leaves.
struct Bye {};

using WatchMessage = std::variant<Invitation, Hello, Welcome, Beat, Failed, Lost, Verdict, Bye>;

/// No line of a watch is longer. A Hello, which is all that is read from a stranger, is far shorter.
inline constexpr size_t kLongestLine = 256 << 10;
inline constexpr size_t kLongestHello = 4 << 10;

/// The message as one line, without the line break. Errors' texts may hold any bytes, for example from file
/// names: bytes that are not UTF-8 are replaced, and a very long text is truncated.
std::string line_of(const WatchMessage& message);

/// Returns nothing where line_of() could not have written the line. Accepts any bytes: it throws nothing, and
/// takes memory in proportion to their number.
std::optional<WatchMessage> read_watch_message(std::string_view line);

/// 128 random bits as text, which a stranger cannot guess.
std::string random_secret();
/// Whether they are equal, compared in constant time.
bool same_secret(std::string_view mine, std::string_view theirs);

}  // namespace adtrain
