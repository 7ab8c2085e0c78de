#include "data/reader/Message.h"

#include <cerrno>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/Text.h"

namespace adtrain {

MessageTooLong::MessageTooLong(size_t bytes)
    : std::length_error(fmt::format("{} bytes as JSON; expected {} at most",
                                    grouped(static_cast<int64_t>(bytes)),
                                    grouped(static_cast<int64_t>(kLongestMessage)))) {}

bool send_bytes(int socket, const void* bytes, size_t size) {
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t sent = ::send(socket, from, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_bytes(int socket, void* bytes, size_t size) {
  char* to = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t received = ::recv(socket, to, size, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    to += received;
    size -= static_cast<size_t>(received);
  }
  return true;
}

std::string message_text(const nlohmann::json& message) {
  // Names and reasons may come from a damaged file, in any encoding.
  return message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool send_message(int socket, const nlohmann::json& message) {
  const std::string text = message_text(message);
  if (text.size() > kLongestMessage) throw MessageTooLong(text.size());
  const uint64_t length = text.size();
  return send_bytes(socket, &length, sizeof length) && send_bytes(socket, text.data(), text.size());
}

std::optional<nlohmann::json> receive_message(int socket) {
  uint64_t length = 0;
  if (!receive_bytes(socket, &length, sizeof length) || length > kLongestMessage) return std::nullopt;
  std::string text(length, '\0');
  if (!receive_bytes(socket, text.data(), text.size())) return std::nullopt;
  nlohmann::json message = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!message.is_object()) return std::nullopt;
  return message;
}

}  // namespace adtrain
