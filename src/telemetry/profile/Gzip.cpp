#include "telemetry/profile/Gzip.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include <zlib.h>

namespace adtrain {
namespace {

constexpr int kLevel = 4;  ///< a trace is a tenth of its size at this level, in half of the default's time
constexpr int kGzip = 16;  ///< added to the window bits: gzip's header and checksum
constexpr size_t kPiece = size_t{1} << 16;
constexpr size_t kMostIn = size_t{1} << 30;  ///< zlib counts what it is given in 32 bits

Bytef* bytes_of(const char* text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text));
}

}  // namespace

struct GzipText::Stream {
  z_stream zlib{};
  std::string file;

  void put(std::string_view text, int flush) {
    zlib.next_in = bytes_of(text.data());
    zlib.avail_in = static_cast<uInt>(text.size());
    char piece[kPiece];
    do {
      zlib.next_out = bytes_of(piece);
      zlib.avail_out = sizeof piece;
      deflate(&zlib, flush);
      file.append(piece, sizeof piece - zlib.avail_out);
    } while (zlib.avail_out == 0);
  }
};

GzipText::GzipText() : stream_(std::make_unique<Stream>()) {
  constexpr int kDefaultMemory = 8;
  if (deflateInit2(&stream_->zlib, kLevel, Z_DEFLATED, MAX_WBITS + kGzip, kDefaultMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
}

GzipText::~GzipText() {
  deflateEnd(&stream_->zlib);
}

void GzipText::append(std::string_view text) {
  for (; !text.empty(); text.remove_prefix(std::min(kMostIn, text.size()))) {
    stream_->put(text.substr(0, kMostIn), Z_NO_FLUSH);
  }
}

std::string GzipText::finish() {
  stream_->put({}, Z_FINISH);
  return std::move(stream_->file);
}

std::string gzipped(std::string_view text) {
  GzipText gzip;
  gzip.append(text);
  return gzip.finish();
}

std::string gunzipped(std::string_view file) {
  z_stream zlib{};
  if (inflateInit2(&zlib, MAX_WBITS + kGzip) != Z_OK) throw std::bad_alloc();
  std::string text;
  int state = Z_OK;
  for (char piece[kPiece]; state == Z_OK;) {
    if (zlib.avail_in == 0) {
      zlib.next_in = bytes_of(file.data());
      zlib.avail_in = static_cast<uInt>(std::min(kMostIn, file.size()));
      file.remove_prefix(zlib.avail_in);
    }
    zlib.next_out = bytes_of(piece);
    zlib.avail_out = sizeof piece;
    state = inflate(&zlib, Z_NO_FLUSH);
    text.append(piece, sizeof piece - zlib.avail_out);
  }
  inflateEnd(&zlib);
  if (state != Z_STREAM_END) throw std::runtime_error("found bytes that are no whole gzip file");
  return text;
}

}  // namespace adtrain
