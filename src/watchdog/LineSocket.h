#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace adtrain {

/// A TCP connection that carries lines of text. Whatever the peer does, the connection neither blocks nor
/// takes much memory: the peer may send without end, or read nothing. For one thread.
class LineSocket {
 public:
  /// Takes over a connected socket.
  explicit LineSocket(int socket);
  ~LineSocket();
  LineSocket(LineSocket&& other) noexcept;
  LineSocket& operator=(LineSocket&& other) noexcept;

  /// Connects to a numeric IPv4 or IPv6 address. Returns nothing where nobody answers there in time.
  static std::optional<LineSocket> connect(const std::string& address, int64_t port, double timeout_seconds);

  int descriptor() const { return socket_; }
  /// Sends the line, which must hold no line break, as far as the peer accepts it; the rest is buffered for
  /// flush(). Where too much is buffered already, the line is dropped.
  void send(const std::string& line);
  /// Sends what is buffered, as far as the peer accepts it now.
  void flush();
  /// Returns the lines that have arrived, without waiting. Lines longer than kLongestLine are dropped.
  std::vector<std::string> receive();
  /// Bytes received of a line that is still incomplete.
  size_t unfinished() const { return received_.size(); }
  /// Waits for the next line; returns nothing where none arrives in time.
  std::optional<std::string> wait_for_line(double timeout_seconds);
  /// Whether the peer has closed the connection, as of the latest receive().
  bool closed() const { return closed_; }

 private:
  void read();

  int socket_;
  std::vector<std::string> lines_;  ///< arrived and not yet returned
  std::string received_;            ///< of a line that is still incomplete
  bool skipping_ = false;           ///< the next bytes belong to a line that is too long
  std::string unsent_;
  bool closed_ = false;
};

/// A TCP port of this host that accepts LineSockets.
class LineListener {
 public:
  /// Listens on a free port of `address`, which is a numeric address of this host, or 0.0.0.0 for all of its
  /// IPv4 addresses, or :: for all of either family. Throws EnvironmentError where the system provides none.
  explicit LineListener(const std::string& address = "0.0.0.0");
  ~LineListener();
  LineListener(const LineListener&) = delete;
  LineListener& operator=(const LineListener&) = delete;

  int64_t port() const { return port_; }
  int descriptor() const { return socket_; }
  /// The next connection that has arrived, without waiting.
  std::optional<LineSocket> accept();
  /// Whether the last connection could not be accepted because this process or its host has no descriptors
  /// left. It stays in the backlog, so that waiting for the listener would return at once.
  bool exhausted() const { return exhausted_; }

 private:
  int socket_;
  int64_t port_;
  bool exhausted_ = false;
};

/// Returns when one of the descriptors can be read, or after the timeout.
void wait_until_readable(const std::vector<int>& descriptors, double timeout_seconds);

}  // namespace adtrain
