#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <netdb.h>

namespace adtrain {

/// A host name and port as the resolver understands them.
class MasterAddress {
 public:
  MasterAddress(const std::string& host, int64_t port);

  /// The first address found, or null; then trouble() says why.
  const addrinfo* first() const { return found_.get(); }
  /// All addresses found, in the resolver's order, each once.
  std::vector<const addrinfo*> all() const;
  const std::string& trouble() const { return trouble_; }

 private:
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> found_;
  std::string trouble_;
};

/// Where somebody listens.
struct FoundListener {
  std::string address;   ///< numeric; the one of the name's addresses that has answered; "" where none has
  std::string trouble;   ///< why none has; "" where one has
  bool is_known = true;  ///< whether the name has an address at all
};

/// Tries to connect until somebody listens there, for at most `timeout_seconds`, to all addresses that the
/// name has in turn. Where there are several, some may lead nowhere, so none of them is waited for as long as
/// there is time. The trouble is that of the last attempt. (torch's own store tries for twice as long, and
/// prints a stack each time.)
FoundListener find_listener(const std::string& host, int64_t port, double timeout_seconds);

/// The first line that the service listening there sends, unasked or in answer to a web browser's request; it
/// shows what kind of service it is. "" where it sends nothing within a second or two.
std::string answer_of_listener(const std::string& host, int64_t port);

}  // namespace adtrain
