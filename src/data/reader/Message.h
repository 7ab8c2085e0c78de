#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

/// The protocol between a process and the one that reads histories for it. Over a stream socket they send
/// JSON messages, each after its length (8 bytes); after some of them follow plain bytes whose number both
/// sides know.
namespace adtrain {

/// Sends or receives exactly `size` bytes. False where the peer is gone. Never raises SIGPIPE.
bool send_bytes(int socket, const void* bytes, size_t size);
bool receive_bytes(int socket, void* bytes, size_t size);

/// In bytes. Longer messages are neither sent nor received, so that no damaged file fills the memory of the
/// process that asks about it.
inline constexpr size_t kLongestMessage = size_t{1} << 20;

/// Thrown where a message is longer, before anything of it is sent. what() says how long it is, and how long
/// it may be: "1 200 000 bytes as JSON; expected 1 048 576 at most".
class MessageTooLong : public std::length_error {
 public:
  explicit MessageTooLong(size_t bytes);
};

/// A message as it is sent, behind its length.
std::string message_text(const nlohmann::json& message);

/// False, or nothing, where the peer is gone or sends something that is not a message. Sending throws
/// MessageTooLong.
bool send_message(int socket, const nlohmann::json& message);
std::optional<nlohmann::json> receive_message(int socket);

}  // namespace adtrain
