#include "telemetry/Console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/Text.h"

namespace adtrain {
namespace {

constexpr double kRedrawSeconds = 0.1;  ///< on a terminal
constexpr double kLineSeconds = 10;     ///< elsewhere

int terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

/// Columns that UTF-8 text takes, all our characters being one wide.
size_t columns(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cut_to(const std::string& text, int width) {
  if (columns(text) < static_cast<size_t>(width)) return text;
  size_t bytes = 0;
  for (int column = 0; bytes < text.size(); ++bytes) {
    if ((text[bytes] & 0xC0) != 0x80 && ++column >= width) break;
  }
  return text.substr(0, bytes);
}

}  // namespace

Console Console::for_process(bool enabled) {
  return Console({.out = stdout, .enabled = enabled, .terminal = isatty(STDOUT_FILENO) != 0, .width = terminal_width()});
}

void Console::banner(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t widest = 0;
  for (const auto& [name, value] : rows) widest = std::max(widest, columns(name));
  const std::string rule(64, '=');
  info(rule);
  info(title);
  info(rule);
  for (const auto& [name, value] : rows) info(fmt::format("  {}{}  {}", name, std::string(widest - columns(name), ' '), value));
  info(rule);
}

void Console::info(const std::string& line) {
  if (!settings_.enabled) return;
  clear_drawing();
  fmt::print(settings_.out, "{}\n", line);
  std::fflush(settings_.out);
}

void Console::warn(const std::string& line) {
  if (!settings_.enabled) return;
  info("WARNING: " + line);
  const bool same_place = settings_.terminal && isatty(STDERR_FILENO) != 0;
  if (!same_place && settings_.out == stdout) fmt::print(stderr, "adtrain: WARNING: {}\n", line);
}

void Console::draw(const std::string& line) {
  clear_drawing();
  fmt::print(settings_.out, "{}", cut_to(line, settings_.width));
  std::fflush(settings_.out);
  drawn_ = true;
}

void Console::clear_drawing() {
  if (drawn_) fmt::print(settings_.out, "\r\x1b[K");
  drawn_ = false;
}

Progress::Progress(Console& console, std::string what, int64_t total, std::string unit, int64_t done)
    : console_(console), what_(std::move(what)), unit_(std::move(unit)), total_(total), first_(done) {}

Progress::~Progress() {
  if (!console_.settings_.enabled || last_ < 0 || printed_ == last_) return;
  console_.info(line(last_, last_figures_, /*with_bar=*/false));  // the last state stays to be read
}

void Progress::update(int64_t done, const std::string& figures) {
  const bool first = last_ < 0;
  last_ = done;
  last_figures_ = figures;
  if (!console_.settings_.enabled) return;
  const bool terminal = console_.settings_.terminal;
  if (!first && since_shown_.seconds() < (terminal ? kRedrawSeconds : kLineSeconds)) return;
  since_shown_.restart();
  if (terminal) {
    console_.draw(line(done, figures, /*with_bar=*/true));
  } else {
    console_.info(line(done, figures, /*with_bar=*/false));
    printed_ = done;
  }
}

std::string Progress::line(int64_t done, const std::string& figures, bool with_bar) const {
  const double share = total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 1.0;
  const double elapsed = since_start_.seconds();
  const double left = done > first_ ? elapsed * static_cast<double>(total_ - done) / static_cast<double>(done - first_)
                                    : std::numeric_limits<double>::infinity();
  std::string text = what_ + " ";
  if (with_bar) {
    constexpr int kCells = 20;
    const int full = std::clamp(static_cast<int>(share * kCells), 0, kCells);
    for (int cell = 0; cell < kCells; ++cell) text += cell < full ? "━" : "─";
    text += " ";
  }
  text += fmt::format("{:3.0f}%  {}/{} {}", 100 * share, grouped(done), grouped(total_), unit_);
  if (!figures.empty()) text += "  " + figures;
  return text + (done < total_ ? fmt::format("  {} left", human_duration(left)) : fmt::format("  in {}", human_duration(elapsed)));
}

}  // namespace adtrain
