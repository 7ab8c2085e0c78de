#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace adtrain {

/// Text that is compressed while it is appended, as a gzip file. For one thread.
class GzipText {
 public:
  GzipText();
  ~GzipText();
  GzipText(const GzipText&) = delete;
  GzipText& operator=(const GzipText&) = delete;

  void append(std::string_view text);
  /// The whole file; nothing may be appended after it.
  std::string finish();

 private:
  struct Stream;  ///< keeps zlib's header out of every other file
  std::unique_ptr<Stream> stream_;
};

/// `text` as a gzip file.
std::string gzipped(std::string_view text);
/// The text of a gzip file. Throws std::runtime_error where it is none, or not whole.
std::string gunzipped(std::string_view file);

}  // namespace adtrain
