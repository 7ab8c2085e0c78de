#pragma once

#include <cstdint>
#include <stdexcept>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace adtrain {

/// A socket that listens on a port which the system chose, on all addresses.
class ListeningPort {
 public:
  ListeningPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof address;
    auto* pointer = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_, pointer, length) != 0 || listen(socket_, 1) != 0 ||
        getsockname(socket_, pointer, &length) != 0) {
      throw std::runtime_error("cannot listen");
    }
    port_ = ntohs(address.sin_port);
  }
  ~ListeningPort() { close(socket_); }
  ListeningPort(const ListeningPort&) = delete;
  ListeningPort& operator=(const ListeningPort&) = delete;

  int64_t port() const { return port_; }

 private:
  int socket_;
  int64_t port_ = 0;
};

/// A port that was free a moment ago.
inline int64_t free_port() {
  return ListeningPort().port();
}

}  // namespace adtrain
