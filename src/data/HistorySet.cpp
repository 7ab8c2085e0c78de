#include "data/HistorySet.h"

#include <utility>

namespace adtrain {

HistorySet::HistorySet(int64_t steps, std::vector<Transition> transitions)
    : steps_(steps), transitions_(std::move(transitions)) {}

}  // namespace adtrain
