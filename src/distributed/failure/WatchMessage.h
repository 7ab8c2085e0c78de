#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "distributed/Activity.h"
#include "distributed/failure/Failure.h"

/// What ranks' watches tell each other: one JSON object a line, of a `kind`.
namespace adtrain {

/// How rank 0 tells the others where it listens; it travels by the launcher's store or MPI.
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
  Doing doing;
};

/// The answer to it.
struct Welcome {};

/// What the sender does, twice a second.
struct Beat {
  Doing doing;
};

/// The sender ends because of this.
struct Failed {
  Failure failure;
};

/// The sender has lost a peer and asks which.
struct Lost {};

/// The first failure, as rank 0 decides; or, to rank 0, that it is the one which was given up.
struct Verdict {
  Failure failure;
};

/// The sender has done its part and leaves.
struct Bye {};

using WatchMessage = std::variant<Invitation, Hello, Welcome, Beat, Failed, Lost, Verdict, Bye>;

/// No line of a watch is longer. A hello, which is all that is read of a stranger, is far shorter.
inline constexpr size_t kLongestLine = 256 << 10;
inline constexpr size_t kLongestHello = 4 << 10;

/// As it travels, without the line's end. Errors' texts may hold any bytes, file names for one: what is no
/// UTF-8 is replaced, and a very long text is cut.
std::string line_of(const WatchMessage& message);

/// Nothing where the line is none that line_of() writes. Any bytes may be given: it throws nothing, and takes
/// memory in proportion to their number.
std::optional<WatchMessage> read_watch_message(std::string_view line);

/// 128 random bits as text, which a stranger cannot guess.
std::string random_secret();
/// Whether they are equal, in a time that does not tell how much of them is.
bool same_secret(std::string_view mine, std::string_view theirs);

}  // namespace adtrain
