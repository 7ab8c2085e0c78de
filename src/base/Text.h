#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace adtrain {

/// The candidate with the smallest edit distance to `name`, or "" where none is near enough to be a likely
/// slip (more than a third of its letters differ). Ties go to the earlier candidate.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::string to_lower(std::string_view text);

/// Whether all of it is UTF-8: no stray bytes, no overlong forms, no surrogates.
bool is_utf8(std::string_view text);
/// The text for a message: at most about `most` bytes, cut between two characters and followed by "… (70000
/// bytes)". Bytes that are not UTF-8, and control characters except tabs and line breaks, are shown as "?".
std::string abridged(std::string_view text, size_t most = 200);

/// "1 234 567" with thin groups of three, for figures that people read.
std::string grouped(int64_t number);
/// "1 task", "2 000 tasks": `one` is what a single one is called, and `many` what several are.
std::string counted(int64_t count, std::string_view one, std::string_view many);
/// "8.2 s", "3 min 05 s", "2 h 10 min".
std::string human_duration(double seconds);
/// "512 B", "1.5 KiB", "3.2 GiB": binary units.
std::string human_bytes(double bytes);

}  // namespace adtrain
