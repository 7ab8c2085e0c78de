#pragma once

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>

namespace adtrain {

/// How a command ended and what it said, standard error included.
struct Finished {
  int exit_code;  ///< 128 + n where signal n ended it
  std::string output;
};

/// Runs a shell command to its end.
inline Finished run_shell(const std::string& command) {
  std::FILE* pipe = popen(("( " + command + " ) 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start: " + command);
  Finished finished{};
  std::array<char, 4096> chunk;
  while (const size_t size = std::fread(chunk.data(), 1, chunk.size(), pipe))
    finished.output.append(chunk.data(), size);
  const int status = pclose(pipe);
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

/// A word as the shell wants it.
inline std::string quoted(const std::string& word) {
  std::string result = "'";
  for (const char letter : word) result += letter == '\'' ? "'\\''" : std::string(1, letter);
  return result + "'";
}

}  // namespace adtrain
