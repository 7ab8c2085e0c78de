#pragma once

#include <cstddef>
#include <optional>

#include <nlohmann/json.hpp>

/// How a process speaks with the one that reads histories for it: over a stream socket, messages of JSON
/// after their length (8 bytes), and after some of them plain bytes whose number both sides know.
namespace adtrain {

/// Sends or receives exactly `size` bytes. False where the other side is gone. Never raises SIGPIPE.
bool send_bytes(int socket, const void* bytes, size_t size);
bool receive_bytes(int socket, void* bytes, size_t size);

/// False, or nothing, where the other side is gone or what it sends is no message.
bool send_message(int socket, const nlohmann::json& message);
std::optional<nlohmann::json> receive_message(int socket);

}  // namespace adtrain
