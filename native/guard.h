/* Survives a segment file that shrinks under its mapping.
 *
 * Whoever may write to the file may also truncate it; the next store would
 * then end the training process with SIGBUS.  A handler for that one signal
 * puts private memory in the place of the mapping and marks the segment lost;
 * faults anywhere else go to the handler that was there before. */
#ifndef ARGUS_GUARD_H
#define ARGUS_GUARD_H

#include <stddef.h>

/* Beyond a few thousand mappings (a replay of many ranks) nothing is guarded. */
void argus_guard_add(void *base, size_t bytes, int fd, volatile int *lost);
void argus_guard_remove(void *base);

#endif
