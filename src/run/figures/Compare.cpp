#include "run/figures/Compare.h"

#include "base/StandardStreams.h"
#include "run/figures/RunComparison.h"

namespace adtrain {

ExitCode compare(const CompareRequest& request) {
  const RecordedRun first = RecordedRun::open(request.first), second = RecordedRun::open(request.second);
  const RunComparison comparison = RunComparison::between(first, second);
  print_answer(request.json ? comparison.json().dump(2) + "\n" : comparison.text());
  return request.expect_equal && !comparison.equal() ? ExitCode::kEnvironment : ExitCode::kDone;
}

}  // namespace adtrain
