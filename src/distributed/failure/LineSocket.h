#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace adtrain {

/// A TCP connection that carries lines of text. For one thread.
class LineSocket {
 public:
  /// Takes over a connected socket.
  explicit LineSocket(int socket);
  ~LineSocket();
  LineSocket(LineSocket&& other) noexcept;
  LineSocket& operator=(LineSocket&& other) noexcept;

  /// Nothing where nobody answers there in time.
  static std::optional<LineSocket> connect(const std::string& address, int64_t port, double timeout_seconds);

  int descriptor() const { return socket_; }
  /// Sends the line, which must hold no line break; what a peer that is gone does not take is dropped.
  void send(const std::string& line);
  /// Lines that have arrived, without waiting.
  std::vector<std::string> receive();
  /// Waits for the next line; nothing where none comes in time.
  std::optional<std::string> wait_for_line(double timeout_seconds);
  /// Whether the other side has closed. Known after receive().
  bool closed() const { return closed_; }

 private:
  int socket_;
  std::string pending_;  ///< received, without its end as yet
  bool closed_ = false;
};

/// A TCP port of this host, on all its addresses, at which LineSockets arrive.
class LineListener {
 public:
  /// On a free port. Throws EnvironmentError where the system gives none.
  LineListener();
  ~LineListener();
  LineListener(const LineListener&) = delete;
  LineListener& operator=(const LineListener&) = delete;

  int64_t port() const { return port_; }
  int descriptor() const { return socket_; }
  /// The next one that has arrived, without waiting.
  std::optional<LineSocket> accept();

 private:
  int socket_;
  int64_t port_;
};

/// Returns when one of the descriptors can be read, or after the timeout.
void wait_until_readable(const std::vector<int>& descriptors, double timeout_seconds);

}  // namespace adtrain
