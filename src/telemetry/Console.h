#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/Clock.h"

namespace adtrain {

/// What a person reads while a command runs. Rank 0 has an enabled one, the other ranks a silent one. For one thread.
class Console {
 public:
  struct Settings {
    std::FILE* out = stdout;
    bool enabled = true;
    bool terminal = false;  ///< redraw one progress line instead of printing many
    int width = 100;        ///< columns of the terminal
  };
  explicit Console(Settings settings) : settings_(settings) {}

  /// For standard output as it is: a terminal or not, and how wide.
  static Console for_process(bool enabled);

  /// A title and aligned rows.
  void banner(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows);
  void info(const std::string& line);
  void notice(const std::string& line) { info("notice: " + line); }
  /// Stands out, and also goes to standard error where that is another stream.
  void warn(const std::string& line);

 private:
  friend class Progress;
  void draw(const std::string& line);  ///< in place of the last drawn line
  void clear_drawing();

  Settings settings_;
  bool drawn_ = false;
};

/// The progress of one long piece of work: a bar on a terminal, elsewhere a line now and then. It knows the share done and
/// the time left; the caller adds figures. The console must outlive it.
class Progress {
 public:
  /// `done` is where the work resumes; the time left counts from there.
  Progress(Console& console, std::string what, int64_t total, std::string unit, int64_t done = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, const std::string& figures);

 private:
  std::string line(int64_t done, const std::string& figures, bool with_bar) const;

  Console& console_;
  std::string what_, unit_, last_figures_;
  int64_t total_, first_, last_ = -1, printed_ = -1;
  Stopwatch since_start_, since_shown_;
};

}  // namespace adtrain
