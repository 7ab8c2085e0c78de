#include "telemetry/Console.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "base/Terminal.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr double kRedrawSeconds = 0.1;  ///< on a terminal
constexpr double kLineSeconds = 10;     ///< elsewhere
constexpr int kBannerColumns = 72;
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kBoldYellow = "\x1b[1;33m";
constexpr const char* kPlain = "\x1b[0m";
constexpr const char* kBackAndErase = "\r\x1b[K";

bool begins_character(char byte) {
  return (byte & 0xC0) != 0x80;
}

/// The first `most` columns of the text.
std::string_view cut_to(std::string_view text, int most) {
  int column = 0;
  const auto end =
      std::ranges::find_if(text, [&](char byte) { return begins_character(byte) && ++column > most; });
  return text.substr(0, static_cast<size_t>(end - text.begin()));
}

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

/// Unlike fmt::print it ignores errors: a full disk under standard output must not end a run.
void put(std::FILE* out, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

/// mpirun gives its ranks a pseudo-terminal even where its own output goes to a file. A rank that it started
/// on this host can inspect that output; others print plain lines.
bool mpirun_writes_to_terminal(int output) {
  const std::string link = fmt::format("/proc/{}/fd/{}", getppid(), output);
  char target[256];
  const ssize_t length = readlink(link.c_str(), target, sizeof target);
  return length > 0 && std::string_view(target, static_cast<size_t>(length)).starts_with("/dev/");
}

bool is_terminal(int output) {
  const char* kind = std::getenv("TERM");
  if (isatty(output) == 0 || (kind != nullptr && std::string_view(kind) == "dumb")) return false;
  return !is_set("OMPI_COMM_WORLD_RANK") || mpirun_writes_to_terminal(output);
}

}  // namespace

std::function<double()> Console::steady_seconds() {
  return [watch = Stopwatch()] { return watch.seconds(); };
}

Console Console::for_process(bool enabled, std::FILE* out) {
  const int output = fileno(out);
  const bool terminal = is_terminal(output);
  Settings settings;
  settings.out = out;
  settings.warnings = out == stdout && !terminal && isatty(STDERR_FILENO) != 0 ? stderr : nullptr;
  settings.enabled = enabled;
  settings.terminal = terminal;
  settings.colour = terminal && !is_set("NO_COLOR");
  settings.width = [output] { return terminal_columns(output).value_or(100); };
  return Console(std::move(settings));
}

void Console::banner(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows) {
  int widest = 0;
  for (const auto& [name, value] : rows) widest = std::max(widest, columns_of(name));
  info("━━ " + styled(kBold, title) + " " +
       repeated("━", std::max(2, kBannerColumns - 4 - columns_of(title))));
  for (const auto& [name, value] : rows) {
    info(fmt::format("   {}{}  {}", name, std::string(static_cast<size_t>(widest - columns_of(name)), ' '),
                     value));
  }
  info(repeated("━", kBannerColumns));
}

void Console::info(const std::string& line) {
  if (!settings_.enabled) return;
  clear_drawing();
  put(settings_.out, line + "\n");
}

void Console::warn(const std::string& line) {
  info(styled(kBoldYellow, "WARNING:") + " " + line);
  if (settings_.enabled && settings_.warnings != nullptr) {
    put(settings_.warnings, fmt::format("adtrain: WARNING: {}\n", line));
  }
}

void Console::draw(const std::string& line) {
  if (!settings_.enabled) return;
  clear_drawing();
  // The last column stays free: some terminals wrap after it.
  put(settings_.out, cut_to(line, settings_.width() - 1));
  drawn_ = true;
}

void Console::clear_drawing() {
  if (drawn_) put(settings_.out, kBackAndErase);
  drawn_ = false;
}

std::string Console::styled(const char* sequence, const std::string& text) const {
  return settings_.colour ? sequence + text + kPlain : text;
}

Progress::Progress(Console& console, std::string what, int64_t total, std::string unit, int64_t done)
    : console_(console),
      what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      first_(done),
      started_(console.settings_.seconds()),
      shown_(console.settings_.terminal ? started_ - kRedrawSeconds : started_) {}

Progress::~Progress() {
  if (done_ >= 0 && printed_ != done_) console_.info(line(/*bar_cells=*/0));
  console_.clear_drawing();
}

void Progress::update(int64_t done, const std::string& figures) {
  done_ = done;
  figures_ = figures;
  const double now = console_.settings_.seconds();
  if (now - shown_ < (console_.settings_.terminal ? kRedrawSeconds : kLineSeconds)) return;
  shown_ = now;
  if (console_.settings_.terminal) {
    console_.draw(line(/*bar_cells=*/std::clamp(console_.settings_.width() / 5, 4, 24)));
  } else {
    console_.info(line(/*bar_cells=*/0));
    printed_ = done;
  }
}

/// The figures are last, so a narrow terminal cuts them first.
std::string Progress::line(int bar_cells) const {
  const double share =
      total_ > 0 ? std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0) : 1.0;
  const double elapsed = console_.settings_.seconds() - started_;
  const double left =
      done_ > first_ ? elapsed * static_cast<double>(total_ - done_) / static_cast<double>(done_ - first_)
                     : std::numeric_limits<double>::infinity();
  std::string text = what_ + " ";
  if (bar_cells > 0) {
    const int full = static_cast<int>(share * bar_cells);
    text += repeated("━", full) + repeated("─", bar_cells - full) + " ";
  }
  text +=
      fmt::format("{:3d}%  {}/{} {}", static_cast<int>(100 * share), grouped(done_), grouped(total_), unit_);
  text += done_ < total_ ? fmt::format("  {} left", human_duration(left))
                         : fmt::format("  in {}", human_duration(elapsed));
  return figures_.empty() ? text : text + "  " + figures_;
}

}  // namespace adtrain
