#include <string>

#include "base/Error.h"
#include "data/formats/MinariMetadata.h"
#include "fuzz/Targets.h"

namespace adtrain::fuzz {

void minari(std::string_view bytes) {
  try {
    const MinariMetadata metadata = MinariMetadata::parse(std::string(bytes), "metadata.json");
    require(metadata.episodes > 0 && metadata.steps > 0, "totals are counts");
    for (const Space* space : {&metadata.observation, &metadata.action})
      require(Space::from_json(space->to_json(), "space") == *space, "a space can be written and read again");
  } catch (const DataError&) {
  }
}

}  // namespace adtrain::fuzz
