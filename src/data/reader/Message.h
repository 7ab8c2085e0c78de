#pragma once

#include <cstddef>
#include <optional>

#include <nlohmann/json.hpp>

/// The protocol between a process and the one that reads histories for it. Over a stream socket they send
/// JSON messages, each after its length (8 bytes); after some of them follow plain bytes whose number both
/// sides know.
namespace adtrain {

/// Sends or receives exactly `size` bytes. False where the peer is gone. Never raises SIGPIPE.
bool send_bytes(int socket, const void* bytes, size_t size);
bool receive_bytes(int socket, void* bytes, size_t size);

/// False, or nothing, where the peer is gone or sends something that is not a message.
bool send_message(int socket, const nlohmann::json& message);
std::optional<nlohmann::json> receive_message(int socket);

}  // namespace adtrain
