#pragma once

#include <cstdint>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

namespace adtrain {

/// A socket that listens on all addresses, on this port or, for 0, on one which the system chooses.
class ListeningPort {
 public:
  explicit ListeningPort(uint16_t port = 0) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    socklen_t length = sizeof address;
    auto* pointer = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_, pointer, length) != 0 || listen(socket_, 1) != 0 ||
        getsockname(socket_, pointer, &length) != 0) {
      close(socket_);
      throw std::runtime_error("cannot listen");
    }
    port_ = ntohs(address.sin_port);
  }
  ~ListeningPort() { close(socket_); }
  ListeningPort(const ListeningPort&) = delete;
  ListeningPort& operator=(const ListeningPort&) = delete;

  int64_t port() const { return port_; }
  int descriptor() const { return socket_; }

 private:
  int socket_;
  int64_t port_ = 0;
};

/// A port that is free and that no other test gets while this process lives: each locks a file of that name,
/// as tests/launchers/small_run.py does. The ports are none that the system gives to connections.
inline int64_t free_port() {
  constexpr int kFirst = 25000, kLast = 32000;
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "adtrain-test-ports";
  std::filesystem::create_directories(folder);
  std::random_device random;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int port = kFirst + static_cast<int>(random() % (kLast - kFirst));
    const int file = open((folder / std::to_string(port)).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
      try {
        return ListeningPort(static_cast<uint16_t>(port)).port();  // the file stays open, and locked
      } catch (const std::runtime_error&) {                        // somebody else listens there
      }
    }
    close(file);
  }
  throw std::runtime_error("no port is free");
}

}  // namespace adtrain
