/* What C++ code keeps of a thread. Threads take turns, so `thread_local` would be one variable for all of them. */
#include "threads.h"

/* The exceptions that a thread has caught and not done with, as the C++ library keeps them. */
void *__cxa_get_globals(void) {
    return &cellar_running->exceptions;
}

void *__cxa_get_globals_fast(void) {
    return &cellar_running->exceptions;
}

/* Where pybind11 keeps what lives as long as the call at hand. */
void **cellar_thread_slot(void) {
    return &cellar_running->call_frame;
}
