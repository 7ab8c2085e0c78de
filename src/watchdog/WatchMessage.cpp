#include "watchdog/WatchMessage.h"

#include <array>
#include <cmath>
#include <limits>
#include <system_error>
#include <type_traits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/random.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr size_t kLongestName = 256;        ///< of a host, a phase, an address
constexpr size_t kLongestError = 16 << 10;  ///< of an error as it is sent
/// Of an error as it is read: each byte that is not UTF-8 becomes three.
constexpr size_t kLongestRead = 64 << 10;
constexpr int64_t kMostAddresses = 256;  ///< of one host
constexpr int64_t kMostRanks = int64_t{1} << 31;
constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();

json written(const RankIdentity& who) {
  return {{"rank", who.rank},
          {"world_size", who.world_size},
          {"host", who.host},
          {"process", who.process},
          {"started", who.started}};
}

json written(const ActivityStatus& doing) {
  return {{"phase", doing.phase},
          {"step", doing.step.value_or(-1)},
          {"waits_in", doing.waits_in},
          {"seconds", doing.seconds}};
}

json written(const Failure& failure) {
  return {{"who", written(failure.who)},
          {"doing", written(failure.doing)},
          {"code", static_cast<int>(failure.code)},
          {"error", failure.error.substr(0, kLongestError)},
          {"advice", failure.advice.substr(0, kLongestError)}};
}

/// How each message is written. read_kind() repeats the kinds' names.
struct Writer {
  json operator()(const Invitation& message) const {
    return {{"kind", "invitation"},
            {"who", written(message.who)},
            {"port", message.port},
            {"secret", message.secret},
            {"addresses", message.addresses}};
  }
  json operator()(const Hello& message) const {
    return {{"kind", "hello"},
            {"secret", message.secret},
            {"who", written(message.who)},
            {"doing", written(message.doing)}};
  }
  // Some compilers take a braced list of one pair for an array.
  json operator()(const Welcome&) const { return json::object({{"kind", "welcome"}}); }
  json operator()(const Beat& message) const { return {{"kind", "beat"}, {"doing", written(message.doing)}}; }
  json operator()(const Failed& message) const {
    return {{"kind", "failed"}, {"failure", written(message.failure)}};
  }
  json operator()(const Lost&) const { return json::object({{"kind", "lost"}}); }
  json operator()(const Verdict& message) const {
    return {{"kind", "verdict"}, {"failure", written(message.failure)}};
  }
  json operator()(const Bye&) const { return json::object({{"kind", "bye"}}); }
};

/// Reads members of an untrusted object. A member that is missing, of another type or out of bounds makes the
/// object invalid, and every object that contains it.
class Reader {
 public:
  Reader(const json& value, bool& good) : value_(value), good_(good) { require(value.is_object()); }

  std::string text(const char* name, size_t longest) {
    const json* found = member(name);
    if (!require(found != nullptr && found->is_string())) return "";
    const auto& text = found->get_ref<const std::string&>();
    return require(text.size() <= longest) ? text : "";
  }
  int64_t whole(const char* name, int64_t least, int64_t most) {
    const json* found = member(name);
    if (!require(found != nullptr && found->is_number_integer())) return least;
    // The parser keeps a number beyond int64_t's range as an unsigned one.
    if (!require(!found->is_number_unsigned() ||
                 found->get<uint64_t>() <= static_cast<uint64_t>(kAnyNumber))) {
      return least;
    }
    const auto number = found->get<int64_t>();
    return require(number >= least && number <= most) ? number : least;
  }
  double seconds(const char* name) {
    const json* found = member(name);
    if (!require(found != nullptr && found->is_number())) return 0;
    const auto number = found->get<double>();
    return require(std::isfinite(number) && number >= 0) ? number : 0;
  }
  std::vector<std::string> texts(const char* name, size_t longest) {
    const json* found = member(name);
    std::vector<std::string> all;
    if (!require(found != nullptr && found->is_array() &&
                 found->size() <= static_cast<size_t>(kMostAddresses))) {
      return all;
    }
    for (const json& each : *found) {
      if (!require(each.is_string() && each.get_ref<const std::string&>().size() <= longest)) return {};
      all.push_back(each.get<std::string>());
    }
    return all;
  }
  Reader object(const char* name) {
    static const json kNone;
    const json* found = member(name);
    return {found != nullptr ? *found : kNone, good_};
  }

 private:
  const json* member(const char* name) const {
    if (!value_.is_object()) return nullptr;
    const auto found = value_.find(name);
    return found == value_.end() ? nullptr : &*found;
  }
  bool require(bool condition) {
    good_ = good_ && condition;
    return condition;
  }

  const json& value_;
  bool& good_;
};

/// `least` is the lowest rank that it may be.
RankIdentity read_identity(Reader from, int64_t least = 0) {
  RankIdentity who;
  who.world_size = from.whole("world_size", 1, kMostRanks);
  who.rank = from.whole("rank", least, who.world_size - 1);
  who.host = from.text("host", kLongestName);
  who.process = from.whole("process", 0, kAnyNumber);
  who.started = from.whole("started", 0, kAnyNumber);
  return who;
}

ActivityStatus read_doing(Reader from) {
  ActivityStatus doing;
  doing.phase = from.text("phase", kLongestName);
  const int64_t step = from.whole("step", -1, kAnyNumber);
  if (step >= 0) doing.step = step;
  doing.waits_in = from.text("waits_in", kLongestName);
  doing.seconds = from.seconds("seconds");
  return doing;
}

Failure read_failure(Reader from) {
  Failure failure;
  failure.who = read_identity(from.object("who"), RankIdentity::kNobody);
  failure.doing = read_doing(from.object("doing"));
  failure.code = static_cast<ExitCode>(from.whole("code", 0, 255));
  failure.error = from.text("error", kLongestRead);
  failure.advice = from.text("advice", kLongestRead);
  return failure;
}

Invitation read_invitation(Reader& from) {
  Invitation invitation;
  invitation.who = read_identity(from.object("who"));
  invitation.port = from.whole("port", 1, 65535);
  invitation.secret = from.text("secret", kLongestName);
  invitation.addresses = from.texts("addresses", kLongestName);
  return invitation;
}

std::optional<WatchMessage> read_kind(Reader& from) {
  const std::string kind = from.text("kind", kLongestName);
  if (kind == "invitation") return read_invitation(from);
  if (kind == "hello") {
    Hello hello;
    hello.secret = from.text("secret", kLongestName);
    hello.who = read_identity(from.object("who"));
    hello.doing = read_doing(from.object("doing"));
    return hello;
  }
  if (kind == "welcome") return Welcome{};
  if (kind == "beat") return Beat{read_doing(from.object("doing"))};
  if (kind == "failed") return Failed{read_failure(from.object("failure"))};
  if (kind == "lost") return Lost{};
  if (kind == "verdict") return Verdict{read_failure(from.object("failure"))};
  if (kind == "bye") return Bye{};
  return std::nullopt;
}

}  // namespace

std::string line_of(const WatchMessage& message) {
  return std::visit(Writer{}, message).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<WatchMessage> read_watch_message(std::string_view line) {
  if (line.size() > kLongestLine) return std::nullopt;
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  bool good = true;
  Reader reader(object, good);
  std::optional<WatchMessage> message = read_kind(reader);
  return good ? message : std::nullopt;
}

std::string random_secret() {
  std::array<unsigned char, 16> bytes{};
  // getrandom() returns this few bytes completely or not at all.
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw EnvironmentError(
        fmt::format("This host gives no random numbers ({}), which ranks need to know each other by.",
                    std::generic_category().message(errno)));
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

bool same_secret(std::string_view mine, std::string_view theirs) {
  if (mine.size() != theirs.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    difference |= static_cast<unsigned char>(mine[i]) ^ static_cast<unsigned char>(theirs[i]);
  }
  return difference == 0;
}

}  // namespace adtrain
