#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "data/Hdf5.h"

/// Attributes of HDF5 files that are one value. They are read from within the HDF5 library, which no
/// exception may leave: what cannot be read is nothing.
namespace adtrain {

/// A text, of fixed or variable length, or a number; null where the attribute is neither, or a text longer
/// than 64 KiB.
nlohmann::json attribute_value(const Hdf5Handle& attribute);

/// The same as text: a number as briefly as its own type tells it from others, "0.99", and h5py's truth
/// values as "true" and "false". Nothing where the attribute is none of these.
std::optional<std::string> attribute_text(const Hdf5Handle& attribute);

/// For a message about an attribute that is none of these: "3 values: integers of 8 bytes".
std::string attribute_words(const Hdf5Handle& attribute);

}  // namespace adtrain
