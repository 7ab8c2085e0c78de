#pragma once

/// How a process ends when its work is done.
namespace adtrain {

/// Ends the process with `code` after what is buffered for standard output and error has been written. Where
/// nobody waits for exit handlers, they are skipped: those of libtorch take thousands of operators off its
/// tables one by one, a good tenth of a second for memory that the process gives back anyway. They run where
/// a GPU's driver is loaded or a library has been preloaded, as profilers and checkers write what they have
/// found in exit handlers, and under sanitizers. To be called at the end of main, when all else has been
/// closed, MPI included.
[[noreturn]] void end_process(int code);

}  // namespace adtrain
