#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace adtrain {

/// A TCP connection that carries lines of text. Nothing that the other side does makes it wait or take much
/// memory: it may send without end, or read nothing. For one thread.
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
  /// Sends the line, which must hold no line break, as far as the other side takes it; the rest waits for
  /// flush(). Where too much waits already, the line is dropped.
  void send(const std::string& line);
  /// Sends what waits, as far as the other side takes it now.
  void flush();
  /// Lines that have arrived, without waiting. One that is longer than a watch's (kLongestLine) is left out.
  std::vector<std::string> receive();
  /// How much has been received of a line that has not come to its end.
  size_t unfinished() const { return received_.size(); }
  /// Waits for the next line; nothing where none comes in time.
  std::optional<std::string> wait_for_line(double timeout_seconds);
  /// Whether the other side has closed. Known after receive().
  bool closed() const { return closed_; }

 private:
  void read();

  int socket_;
  std::vector<std::string> lines_;  ///< that have arrived and were not asked for
  std::string received_;            ///< of a line without its end as yet
  bool skipping_ = false;           ///< what comes is the rest of a line that is too long
  std::string unsent_;
  bool closed_ = false;
};

/// A TCP port of this host at which LineSockets arrive.
class LineListener {
 public:
  /// On a free port of `address`, which is a numeric one of this host, or 0.0.0.0 for all of them. Throws
  /// EnvironmentError where the system gives none.
  explicit LineListener(const std::string& address = "0.0.0.0");
  ~LineListener();
  LineListener(const LineListener&) = delete;
  LineListener& operator=(const LineListener&) = delete;

  int64_t port() const { return port_; }
  int descriptor() const { return socket_; }
  /// The next one that has arrived, without waiting.
  std::optional<LineSocket> accept();
  /// Whether the last one that arrived could not be accepted, as this process or its host has no descriptors
  /// left. It keeps arriving, so waiting for it would not wait.
  bool exhausted() const { return exhausted_; }

 private:
  int socket_;
  int64_t port_;
  bool exhausted_ = false;
};

/// Returns when one of the descriptors can be read, or after the timeout.
void wait_until_readable(const std::vector<int>& descriptors, double timeout_seconds);

}  // namespace adtrain
