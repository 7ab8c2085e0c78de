#include "checkpoint/BestCheckpoint.h"

#include "base/File.h"

namespace adtrain {

using nlohmann::ordered_json;

void BestCheckpoint::write(const std::filesystem::path& folder) const {
  const ordered_json text = {{"step", step}, {"held_out_return", held_out_return}, {"measured", measured}};
  write_file_atomically(folder / kFileName, text.dump(2) + "\n");
}

std::optional<BestCheckpoint> BestCheckpoint::read(const std::filesystem::path& folder) {
  try {
    const ordered_json text = ordered_json::parse(read_file(folder / kFileName));
    BestCheckpoint best;
    text.at("step").get_to(best.step);
    text.at("held_out_return").get_to(best.held_out_return);
    best.measured = text.at("measured");
    return best;
  } catch (const ordered_json::exception&) {
    return std::nullopt;
  } catch (const std::filesystem::filesystem_error&) {
    return std::nullopt;
  }
}

}  // namespace adtrain
