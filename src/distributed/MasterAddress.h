#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <netdb.h>

namespace adtrain {

/// A host name and port as the resolver understands them.
class MasterAddress {
 public:
  MasterAddress(const std::string& host, int64_t port);

  /// The first address found, or null; then trouble() says why.
  const addrinfo* first() const { return found_.get(); }
  const std::string& trouble() const { return trouble_; }

 private:
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> found_;
  std::string trouble_;
};

/// Tries until somebody listens there, at most `timeout_seconds`. Returns what the last attempt met with: ""
/// for success. (torch's own store tries as long twice over, and prints a stack each time.)
std::string wait_for_listener(const std::string& host, int64_t port, double timeout_seconds);

/// What kind of service it is: the first line that whoever listens there says, of its own accord or to a web
/// browser's request; "" where it says nothing within a second or two.
std::string answer_of_listener(const std::string& host, int64_t port);

}  // namespace adtrain
