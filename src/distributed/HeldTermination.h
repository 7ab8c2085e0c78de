#pragma once

namespace adtrain {

/// SIGTERM during the start of a rank. Where a rank fails, launchers send it to all others at once, and then
/// it is the sign to say who is not there, for which a process must have come far enough: loading libtorch
/// takes most of a second's half. So it is held until the start's watch, or whoever else, decides. For the
/// process.
namespace held_termination {

/// From now on SIGTERM ends nothing. May be called before any constructor has run.
void begin();
/// Whether it has come since then.
bool asked();
/// A descriptor that can be read from the moment on at which it comes; −1 where the system gives none. Stays
/// open.
int descriptor();
/// Back to the ordinary meaning, also of one that has come already: that one ends this process now.
void release();

}  // namespace held_termination
}  // namespace adtrain
