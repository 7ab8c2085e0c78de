#pragma once

namespace adtrain {

/// Holds SIGTERM back during the start of a rank. Where a rank fails, launchers send SIGTERM to all others at
/// once. A rank then reports which ranks are missing, for which its process must have come far enough:
/// loading libtorch alone takes almost half a second. So the signal is held until the start's watch, or
/// another owner, decides: a StopRequest makes it a request to stop. The state belongs to the process.
namespace held_termination {

/// From now on SIGTERM does not end the process. May be called before any constructor has run.
void begin();
/// Whether SIGTERM has arrived since then.
bool asked();
/// A descriptor that becomes readable when SIGTERM arrives, until it is read; −1 where the system gives none.
/// It stays open.
int descriptor();
/// Returns whether SIGTERM has arrived, which the caller then acts on: neither asked() nor release() knows of
/// it any more. One that arrives later is held again, unless the caller handles it by then.
bool take();
/// Restores SIGTERM's ordinary meaning. One that has already arrived ends this process now.
void release();

}  // namespace held_termination
}  // namespace adtrain
