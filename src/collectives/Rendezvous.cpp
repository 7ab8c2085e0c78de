#include "collectives/Rendezvous.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "base/Error.h"
#include "base/Host.h"
#include "base/Text.h"
#include "collectives/C10dTerms.h"
#include "collectives/gloo/GlooCommunicator.h"
#include "launch/MasterAddress.h"
#include "watchdog/Activity.h"
#include "watchdog/StartWatch.h"
#include "watchdog/WatchMessage.h"

namespace adtrain {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

std::string place(const LaunchContext& context) {
  return fmt::format("{}:{} (MASTER_ADDR and MASTER_PORT)", context.master_address, context.master_port);
}

/// What this rank finds on its own host is no other rank's fault: the failure is its own.
[[noreturn]] void throw_own_failure(const LaunchContext& context, const std::string& message) {
  const auto me = RankIdentity::of_this_process(context.rank, context.world_size);
  throw MeetingError(Failure::of(EnvironmentError(message), me), message);
}

/// torchrun's agent is not a rank. Where rank 0 serves the store, rank 0 is the one to look at.
[[noreturn]] void throw_unreachable(const LaunchContext& context, double timeout, const std::string& why,
                                    StartWatch& watch, bool is_known = true) {
  const std::string server = context.agent_store ? "torchrun's agent" : "rank 0";
  const std::string message = fmt::format(
      "Rank {} of {} did not reach {} at {} within {} ({}); check that {} has started and runs on that host, "
      "that every rank was given the same address and port, and that no firewall lies between.",
      context.rank, context.world_size, server, place(context), human_duration(timeout), why, server);
  if (!is_known) throw_own_failure(context, message);
  if (context.agent_store || context.is_root()) throw EnvironmentError(message);
  throw MeetingError(
      watch.absence({0}, fmt::format("rank {} did not reach it at {}", context.rank, place(context))),
      message);
}

std::string what_listens(const LaunchContext& context, const std::string& host) {
  const std::string answer = answer_of_listener(host, context.master_port);
  if (answer.empty())
    return "something accepts connections there and says nothing, a rank 0 that hangs perhaps";
  return fmt::format(
      "what listens there is something else, which answers '{}'; choose another MASTER_PORT, or "
      "end that service",
      answer);
}

StorePointer open_store(const std::string& host, int64_t port, std::optional<int> listener, double timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = listener.has_value();
  options.masterListenFd = listener;
  options.waitWorkers = false;
  options.timeout = to_milliseconds(timeout);
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

/// The store's client waits without limit for an answer from whatever listens there. So it runs on a thread
/// of its own, which is abandoned when the time is over.
StorePointer connect(const LaunchContext& context, const std::string& host, const Deadline& deadline,
                     StartWatch& watch) {
  const double timeout = deadline.limit_seconds();
  // Of a name with several addresses, the one that answers: the store's client may spend all of its time on
  // one that swallows packets.
  const FoundListener found = find_listener(host, context.master_port, deadline.seconds_left());
  if (!found.trouble.empty()) throw_unreachable(context, timeout, found.trouble, watch, found.is_known);
  std::promise<StorePointer> opened;
  std::future<StorePointer> store = opened.get_future();
  std::thread([address = found.address, port = context.master_port, left = deadline.seconds_left(),
               opened = std::move(opened)]() mutable {
    try {
      opened.set_value(open_store(address, port, std::nullopt, left));
    } catch (...) {
      opened.set_exception(std::current_exception());
    }
  }).detach();
  const std::chrono::duration<double> left(std::max(0.0, deadline.seconds_left()));
  if (store.wait_for(left) != std::future_status::ready) {
    throw_unreachable(context, timeout, what_listens(context, found.address), watch);
  }
  try {
    return store.get();
  } catch (const c10::Error& error) {
    throw_unreachable(context, timeout, reason_of(error), watch);
  }
}

StorePointer serve(const LaunchContext& context, const std::string& host, MeetingPort& port, double timeout) {
  try {
    return open_store(host, context.master_port, port.hand_over(), timeout);
  } catch (const c10::Error& error) {
    throw_own_failure(context, fmt::format("Rank 0 cannot serve the meeting point at {} ({}).",
                                           place(context), reason_of(error)));
  }
}

void bind_port(std::optional<MeetingPort>& port, const LaunchContext& context,
               const MeetingAddress& address) {
  try {
    port.emplace(context, address);
  } catch (const EnvironmentError& error) {
    throw_own_failure(context, error.what());
  }
}

constexpr auto kBetweenAnswers = std::chrono::milliseconds(20);

std::string of_rank(const char* key, int64_t rank) {
  return fmt::format("{}/{}", key, rank);
}

std::string answer_to(const std::string& question) {
  return "answer to " + question;
}

std::string numbered(const std::vector<int64_t>& ranks) {
  std::vector<std::string> texts;
  for (const int64_t rank : ranks) texts.push_back(std::to_string(rank));
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", join(texts, ", "));
}

constexpr const char* kRootsWord = "word of rank 0";
constexpr const char* kRootsWorldSize = "world size of rank 0";
constexpr const char* kArrivals = "arrivals";  ///< how many ranks have arrived
constexpr const char* kAllAreHere = "all are here";
constexpr const char* kNewestAttempt = "newest attempt";
constexpr const char* kQuestions = "questions";  ///< one a line
constexpr const char* kRefused = "refused";      ///< "rank why": a rank that does not belong to the run

}  // namespace

Rendezvous::Rendezvous(const LaunchContext& context, const DistributedOptions& options, StartWatch& watch)
    : Meeting(context), options_(options), watch_(watch), deadline_(options.rendezvous_timeout_seconds) {
  const Activity::Waiting waiting("the meeting of all ranks");
  watch.waits(fmt::format("at {}", place(context)),
              "look for a rank that is there and says nothing: what it runs on may hang.");
  const bool serves = context.is_root() && !context.agent_store;
  const MeetingAddress address = MeetingAddress::of(context);
  if (serves) {
    unknown_ = address.trouble;
    bind_port(port_, context, address);
  }
  store_ = c10::make_intrusive<c10d::PrefixStore>(
      "adtrain/" + context.run_id, serves ? serve(context, address.connect, *port_, deadline_.limit_seconds())
                                   : context.agent_store
                                       ? connect(context, context.master_address, deadline_, watch)
                                       : connect(context, address.connect, deadline_, watch));
  if (context.agent_store) {
    of_all_attempts_ = store_;
    begin_attempt(agree_on_attempt());
  }
  arrive();
}

Rendezvous::Rendezvous(const LaunchContext& context, const DistributedOptions& options, StartWatch& watch,
                       StorePointer store)
    : Meeting(context),
      options_(options),
      watch_(watch),
      deadline_(options.rendezvous_timeout_seconds),
      store_(std::move(store)) {
  arrive();
}

std::string Rendezvous::agree_on_attempt() {
  try {
    if (context().is_root()) {
      const std::string name = random_secret();
      of_all_attempts_->set(kNewestAttempt, name);
      return name;
    }
    const std::string question = random_secret(), line = question + "\n";
    of_all_attempts_->append(kQuestions, {line.begin(), line.end()});
    of_all_attempts_->wait({answer_to(question)}, to_milliseconds(deadline_.seconds_left()));
    return of_all_attempts_->get_to_str(answer_to(question));
  } catch (const c10::DistStoreError&) {
    throw_missing({0});
  } catch (const c10::Error& error) {
    throw_given_up(reason_of(error));
  }
}

void Rendezvous::begin_attempt(const std::string& name) {
  attempt_ = name;
  store_ = c10::make_intrusive<c10d::PrefixStore>(name, of_all_attempts_);
}

/// The questions of earlier attempts are still there; nobody reads the answers to them.
void Rendezvous::answer_questions() {
  const std::string newest = of_all_attempts_->get_to_str(kNewestAttempt);
  if (newest != attempt_) {  // a second rank 0 has named it: here and there all hear of that
    tell_refused(0, "it has come twice: each process must be given a rank of its own (RANK)");
    begin_attempt(newest);
    arrive();
  }
  if (!of_all_attempts_->check({kQuestions})) return;
  const std::string questions = of_all_attempts_->get_to_str(kQuestions);
  for (size_t end = 0; (end = questions.find('\n', answered_)) != std::string::npos; answered_ = end + 1) {
    of_all_attempts_->set(answer_to(questions.substr(answered_, end - answered_)), attempt_);
  }
}

void Rendezvous::arrive() {
  const std::string me = fmt::format("process {} on {}", getpid(), host_name());
  try {
    if (store_->add(of_rank("processes", context().rank), 1) > 1) {
      refuse(context().rank,
             fmt::format("it has come twice, as {} and as {}: each process must be given a rank "
                         "of its own (RANK)",
                         store_->get_to_str(of_rank("process", context().rank)), me));
    }
    store_->set(of_rank("process", context().rank), me);
  } catch (const c10::Error& error) {
    throw_given_up(reason_of(error));
  }
}

std::string Rendezvous::word_of_root(const std::string& word) {
  const Activity::Waiting waiting("a word from rank 0");
  try {
    if (context().is_root()) {
      store_->set(kRootsWord, word);
      return word;
    }
    store_->wait({kRootsWord}, to_milliseconds(deadline_.seconds_left()));
    const std::string heard = store_->get_to_str(kRootsWord);
    if (heard.empty()) throw_if_refused();
    return heard;
  } catch (const c10::DistStoreError&) {
    throw_missing({0});
  } catch (const c10::Error& error) {
    throw_given_up(reason_of(error));
  }
}

void Rendezvous::await_all() {
  const Activity::Waiting waiting("the meeting of all ranks");
  try {
    if (context().is_root()) store_->set(kRootsWorldSize, std::to_string(context().world_size));
    store_->wait({kRootsWorldSize}, to_milliseconds(deadline_.seconds_left()));
    check_world_size(store_->get_to_str(kRootsWorldSize));
    store_->set(of_rank("arrived", context().rank), "");
    if (store_->add(kArrivals, 1) == context().world_size) store_->set(kAllAreHere, "");
    while (of_all_attempts_ && context().is_root() && !store_->check({kAllAreHere}) && !deadline_.passed()) {
      answer_questions();
      std::this_thread::sleep_for(kBetweenAnswers);
    }
    store_->wait({kAllAreHere}, to_milliseconds(deadline_.seconds_left()));
    throw_if_refused();
  } catch (const c10::DistStoreError&) {
    throw_missing(missing());
  } catch (const c10::Error& error) {
    throw_given_up(reason_of(error));
  }
}

void Rendezvous::check_world_size(const std::string& of_root) const {
  const std::string mine = std::to_string(context().world_size);
  if (of_root == mine) return;
  refuse(context().rank,
         fmt::format(
             "it was started as one of {} ranks and rank 0 as one of {}: every rank must be told the same "
             "number (WORLD_SIZE)",
             mine, of_root));
}

void Rendezvous::tell_refused(int64_t rank, const std::string& why) const {
  store_->set(kRefused, fmt::format("{} {}", rank, why));
  store_->set(kRootsWord, "");
  store_->set(kAllAreHere, "");
}

void Rendezvous::refuse(int64_t rank, const std::string& why) const {
  tell_refused(rank, why);
  throw_refusal(rank, why);
}

void Rendezvous::throw_refusal(int64_t rank, const std::string& why) const {
  const Failure failure = {{rank, std::max(context().world_size, rank + 1), "", 0},
                           {},
                           ExitCode::kEnvironment,
                           why,
                           "start every rank once, with a number of its own and the same number of ranks"};
  throw MeetingError(failure, fmt::format("Rank {} does not belong to the run that meets at {}: {}.", rank,
                                          place(context()), why));
}

void Rendezvous::throw_missing(const std::vector<int64_t>& ranks) const {
  const std::string unknown =
      unknown_.empty() ? "" : fmt::format(", a name that is not known here ({}),", unknown_);
  const std::string waited =
      fmt::format("waited {} at {}{}", human_duration(deadline_.limit_seconds()), place(context()), unknown);
  throw MeetingError(
      unknown_.empty() ? watch_.absence(ranks, fmt::format("the others {}", waited)) : unknown_name(ranks),
      fmt::format(
          "Rank {} of {} {} for {}; check that all {} ranks were started with the same world size, address "
          "and port, and look for an error in the output of those that did not come.",
          context().rank, context().world_size, waited, numbered(ranks), context().world_size));
}

Failure Rendezvous::unknown_name(const std::vector<int64_t>& ranks) const {
  return {{RankIdentity::kNobody, context().world_size, "", 0, 0},
          {},
          ExitCode::kEnvironment,
          fmt::format("MASTER_ADDR {} is not known on {} ({}), and {} did not come: perhaps it is not known "
                      "to them either",
                      context().master_address, host_name(), unknown_, numbered(ranks)),
          "make the name known to every host (/etc/hosts), or give an address as MASTER_ADDR, and start "
          "again"};
}

void Rendezvous::throw_if_refused() const {
  if (!store_->check({kRefused})) return;
  const std::string refused = store_->get_to_str(kRefused);
  throw_refusal(std::stoll(refused), refused.substr(refused.find(' ') + 1));
}

std::vector<int64_t> Rendezvous::missing() const {
  std::vector<int64_t> absent;
  for (int64_t rank = 0; rank < context().world_size; ++rank) {
    try {
      if (!store_->check({of_rank("arrived", rank)})) absent.push_back(rank);
    } catch (const c10::Error& error) {
      throw_given_up(reason_of(error));
    }
  }
  return absent.empty() ? std::vector<int64_t>{0} : absent;  // the last one has arrived at this moment
}

void Rendezvous::throw_given_up(const std::string& why) const {
  const std::string message = fmt::format(
      "Rank {} of {} had reached the meeting point at {}, which has closed since ({}): {} "
      "has ended or given up waiting for the others; its last lines say for which.",
      context().rank, context().world_size, place(context()), why,
      context().agent_store ? "torchrun's agent" : "rank 0");
  if (context().agent_store || context().is_root()) throw EnvironmentError(message);
  throw MeetingError(watch_.absence({0}, "the meeting point that it served has closed"), message);
}

std::unique_ptr<Communicator> Rendezvous::join() {
  await_all();
  watch_.waits(
      fmt::format("to connect to all others, which it met at {}", place(context())),
      "name the network interface that leads to them in GLOO_SOCKET_IFNAME, and check that no firewall "
      "lies between.");
  auto communicator = std::make_unique<GlooCommunicator>(context(), options_, store_);
  if (port_) port_->refuse_more();
  return communicator;
}

}  // namespace adtrain
