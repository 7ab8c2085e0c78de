#pragma once

#include <string_view>
#include <vector>

/// What is fuzzed: functions that read bytes of which anybody may be the author. A target gives them the
/// bytes, takes the errors that they are to throw, and aborts where they break a promise; anything else that
/// ends or holds up the process is a find too.
namespace adtrain::fuzz {

using Target = void (*)(std::string_view bytes);

/// A configuration file: includes, YAML, keys. What was read is written and read again.
void yaml(std::string_view bytes);
/// A safetensors file's header against the file's size.
void safetensors(std::string_view bytes);
/// manifest.json, as it is and with a checksum that is right.
void manifest(std::string_view bytes);
/// A pickle of torch.save.
void pickle(std::string_view bytes);
/// The zip archive around it, and the pickle in it, whatever its checksum.
void zip(std::string_view bytes);
/// SLURM's lists of hosts and of tasks.
void slurm(std::string_view bytes);
/// A launcher's environment variables, NAME=VALUE lines.
void launch(std::string_view bytes);
/// A line that came in at the watch's port. What was read is written and read again.
void watch(std::string_view bytes);
/// A history file, read by the reading process, and in place.
void history(std::string_view bytes);
/// The metadata.json of a Minari data set, with the spaces in it.
void minari(std::string_view bytes);

struct NamedTarget {
  const char* name;  ///< also of the folder in corpus/
  Target run;
};
inline constexpr NamedTarget kTargets[] = {{"yaml", yaml},         {"safetensors", safetensors},
                                           {"manifest", manifest}, {"pickle", pickle},
                                           {"zip", zip},           {"slurm", slurm},
                                           {"launch", launch},     {"watch", watch},
                                           {"history", history},   {"minari", minari}};

/// A promise that was broken.
void require(bool kept, const char* promise);

}  // namespace adtrain::fuzz
