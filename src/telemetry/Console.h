#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/Clock.h"

namespace adtrain {

/// What a person reads while a command runs. Rank 0 has an enabled one, the other ranks a silent one. For one
/// thread.
class Console {
 public:
  struct Settings {
    std::FILE* out = stdout;
    std::FILE* warnings = nullptr;  ///< warnings go here as well; nullptr for nowhere
    bool enabled = true;
    bool terminal = false;                            ///< redraw one progress line instead of printing many
    bool colour = false;                              ///< by ANSI sequences
    std::function<int()> width = [] { return 100; };  ///< columns of the terminal, which may change
    std::function<double()> seconds = steady_seconds();  ///< a clock, for progress
  };
  explicit Console(Settings settings) : settings_(std::move(settings)) {}

  /// The console for the process's standard output, or for standard error where the output is left to a
  /// document: detects whether it is a terminal and how wide; uses colour unless NO_COLOR is set
  /// (https://no-color.org). Where standard output goes to a file and standard error does not, warnings are
  /// shown on both.
  static Console for_process(bool enabled, std::FILE* out = stdout);

  /// A title and aligned rows.
  void banner(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows);
  void info(const std::string& line);
  void notice(const std::string& line) { info("notice: " + line); }
  /// Prints a highlighted line.
  void warn(const std::string& line);

 private:
  friend class Progress;
  /// A clock that begins at 0.
  static std::function<double()> steady_seconds();
  void draw(const std::string& line);  ///< in place of the last drawn line
  void clear_drawing();
  std::string styled(const char* sequence, const std::string& text) const;

  Settings settings_;
  bool drawn_ = false;
};

/// The progress of one long piece of work: a bar on a terminal, redrawn at most ten times a second; elsewhere
/// a line every ten seconds. It shows the share done and the time left; the caller adds figures. The
/// destructor leaves the last state visible. The console must outlive it.
class Progress {
 public:
  /// `done` is where the work resumes; the time left counts from there.
  Progress(Console& console, std::string what, int64_t total, std::string unit, int64_t done = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, const std::string& figures);

 private:
  std::string line(int bar_cells) const;

  Console& console_;
  std::string what_, unit_, figures_;
  int64_t total_, first_;
  int64_t done_ = -1;     ///< −1 before the first update
  int64_t printed_ = -1;  ///< `done_` in the latest permanent line
  double started_, shown_;
};

}  // namespace adtrain
