#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace adtrain {

/// Values that may be needed again, the least recently used of which go where they cost more than `budget`
/// together. Whoever holds a value keeps it alive. Any number of threads may use it.
template <class Key, class Value, class Hash = std::hash<Key>>
class BoundedCache {
 public:
  /// `budget` is in the unit of `put`'s cost. Nothing is kept where it is 0.
  explicit BoundedCache(size_t budget) : budget_(budget) {}

  /// Null where it is not here.
  std::shared_ptr<const Value> get(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->value;
  }

  /// Keeps `value`, unless another thread was first with that key.
  void put(const Key& key, std::shared_ptr<const Value> value, size_t cost) {
    const std::lock_guard lock(mutex_);
    if (cost > budget_ || places_.contains(key)) return;
    entries_.push_front({key, std::move(value), cost});
    places_.emplace(key, entries_.begin());
    cost_ += cost;
    while (cost_ > budget_) {
      cost_ -= entries_.back().cost;
      places_.erase(entries_.back().key);
      entries_.pop_back();
    }
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    entries_.clear();
    places_.clear();
    cost_ = 0;
  }

  /// Of everything that is kept; never above the budget.
  size_t cost() const {
    const std::lock_guard lock(mutex_);
    return cost_;
  }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const Value> value;
    size_t cost;
  };

  size_t budget_, cost_ = 0;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  ///< the one used last in front
  std::unordered_map<Key, typename std::list<Entry>::iterator, Hash> places_;
};

}  // namespace adtrain
