#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace adtrain {

/// The folder into which a command writes the results of work that it would have to do again without them.
struct ResultsFolder {
  std::filesystem::path path;
  std::string otherwise;  ///< how to choose another one, where this one stays as it is: the end of messages

  /// Finds out before the work whether it can be written, by a small file that is removed again. A folder
  /// that is not there yet is not made: the file is tried where it would be made. So nothing is left behind
  /// whatever becomes of the work, and processes that share a folder do not disturb each other. For one rank
  /// to call. Throws EnvironmentError that names the folder, the system's reason and what to do.
  void check() const;
  /// Runs what makes the folder and writes there. Where that throws a std::filesystem::filesystem_error,
  /// removes folders that it has made and left empty, and throws the same error as check().
  void write(const std::function<void()>& action) const;

  /// What a start that failed leaves here: the block that names the rank.
  std::filesystem::path failure() const { return path / "failure.txt"; }
  /// Leaves the mark by which job scripts know that the same command is to be started again. What a start
  /// before has failed of is over.
  void ask_for_requeue() const;
  /// Takes back what starts before have left, as the work is done. Throws std::filesystem::filesystem_error.
  void forget_earlier_starts() const;

 private:
  std::filesystem::path requeue() const { return path / "requeue"; }
};

}  // namespace adtrain
