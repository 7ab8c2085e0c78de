#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "data/Hdf5.h"

namespace adtrain {

/// h5py's booleans: an enumeration over one byte with the members FALSE and TRUE.
bool is_boolean(hid_t type);
/// For a message about a type that is not read: "texts of 3 bytes".
std::string words_for_type(hid_t type);

/// How a data set of `file` lies in it: {"shape", "type": NumPy's name or "" where it has none, "found": what
/// the type is, "big_endian", "storage": "contiguous" | "chunked" | "compact" | "virtual" | "external" | "of
/// another file"}; contiguous also {"address": null where nothing was written}; chunked also {"chunk",
/// "filters": [{"id", "name"}]}; {"fill": the bytes of one element in hexadecimal digits}. A data set that
/// cannot be opened is {"error"}.
nlohmann::json description_of(const Hdf5Handle& file, const std::string& name);

}  // namespace adtrain
