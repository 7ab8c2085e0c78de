#include "watchdog/ForeignError.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {
namespace {

constexpr size_t kMostBytes = 4000;  ///< of a library's message

constexpr const char* kGpuMemoryAdvice =
    "halve the micro-batch: double gradient_accumulation_steps at the same global_batch_size, or halve "
    "train_batch_size; mixed_precision: bf16 takes about half of the memory";
constexpr const char* kHostMemoryAdvice =
    "give it more (ulimit -v, the container's or the job's limit), start fewer ranks on the host, or make "
    "less necessary: a smaller micro-batch or model for training, a smaller eval_batch for evaluation, fewer "
    "n_stream or n_process for collecting";

ErrorMeaning out_of_host_memory(const std::string& detail) {
  return {ExitCode::kOutOfMemory, "the system refused memory on this host" + detail, kHostMemoryAdvice};
}

/// Whether it comes from libtorch's CPU allocator, which throws a plain c10::Error.
bool is_host_allocator(std::string_view message) {
  return message.find("DefaultCPUAllocator") != std::string_view::npos;
}

/// Makes ": 6.0 GiB were asked for" from "…: you tried to allocate 6442450944 bytes. Error code 12 …".
std::string bytes_asked_for(const std::string& message) {
  constexpr std::string_view kBefore = "you tried to allocate ";
  const size_t found = message.find(kBefore);
  if (found == std::string::npos) return "";
  const double bytes = std::strtod(message.c_str() + found + kBefore.size(), nullptr);
  return fmt::format(": {} were asked for in one piece", human_bytes(bytes));
}

ErrorMeaning of_torch(const c10::Error& error) {
  const std::string message = abridged(error.what_without_backtrace(), kMostBytes);
  if (is_host_allocator(message)) return out_of_host_memory(bytes_asked_for(message));
  if (is_out_of_memory(error)) return {ExitCode::kOutOfMemory, message, kGpuMemoryAdvice};
  return {ExitCode::kUnexpected, message, ""};
}

std::string advice_for(const std::error_code& reason) {
  switch (reason.value()) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "make room there (or raise the quota), and start again";
    case EROFS:
    case EACCES:
    case EPERM:
      return "make it writable and readable for this user, or choose another folder (by runs_dir, traj_dir "
             "or "
             "the option that names it), and start again";
    default:
      return "look at the path and the disk that it is on, and start again";
  }
}

ErrorMeaning of_file_system(const std::filesystem::filesystem_error& error) {
  // "filesystem error: cannot create: No space left on device [runs/small/config.yaml.tmp]"
  constexpr std::string_view kPrefix = "filesystem error: ";
  std::string_view text = error.what();
  if (text.starts_with(kPrefix)) text.remove_prefix(kPrefix.size());
  return {ExitCode::kEnvironment, abridged(text, kMostBytes), advice_for(error.code())};
}

ErrorMeaning of_system(const std::system_error& error) {
  const std::error_code reason = error.code();
  const bool system =
      reason.category() == std::generic_category() || reason.category() == std::system_category();
  const std::string text = abridged(error.what(), kMostBytes);
  if (system && reason.value() == ENOMEM) return out_of_host_memory("");
  if (system && (reason.value() == EAGAIN || reason.value() == EMFILE || reason.value() == ENFILE)) {
    return {ExitCode::kEnvironment, "a limit of the system on threads or open files was reached: " + text,
            "raise it (ulimit -u, ulimit -n, the container's pids limit) or start fewer threads (n_process, "
            "num_workers, cpu_threads)"};
  }
  return {ExitCode::kUnexpected, text, ""};
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    return known->exit_code() == ExitCode::kOutOfMemory;
  }
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (is_out_of_host_memory(error)) return true;
  const std::string_view text = error.what();
  for (const char* words : {"out of memory", "ALLOC_FAILED"}) {
    if (text.find(words) != std::string_view::npos) return true;
  }
  return false;
}

bool is_out_of_host_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return system->code() == std::errc::not_enough_memory;
  }
  return is_host_allocator(error.what());
}

ErrorMeaning meaning_of(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return {known->exit_code(), known->what(), ""};
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) return of_torch(*torch);
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return out_of_host_memory("");
  // A container was asked for more than can be addressed.
  if (dynamic_cast<const std::length_error*>(&error) != nullptr) {
    return out_of_host_memory(fmt::format(": more than can be addressed ({})", error.what()));
  }
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return of_file_system(*file);
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) return of_system(*system);
  return {ExitCode::kUnexpected, abridged(error.what(), kMostBytes), ""};
}

Error as_error(const std::exception& error) {
  const ErrorMeaning meaning = meaning_of(error);
  return {meaning.code, meaning.advice.empty() ? meaning.error : meaning.error + "; " + meaning.advice};
}

}  // namespace adtrain
