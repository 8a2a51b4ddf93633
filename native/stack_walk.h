/* From a Python frame to the names of its stack. */
#ifndef ARGUS_STACK_WALK_H
#define ARGUS_STACK_WALK_H

#include "python.h"
#include "stack_store.h"

#define ARGUS_STACK_DEPTH 160 /* functions of one stack, the innermost ones */

/* To be called once before.  -1 with an exception. */
int argus_walk_prepare(void);

/* Whether the frames of all threads may be looked at: not where other interpreters run under locks of
 * their own (Python 3.12 and newer), for sys._current_frames() goes through theirs as well while they
 * change, of which the process dies.  With the GIL of the main interpreter. */
int argus_walk_allowed(void);

/* Names in the store, at most ARGUS_STACK_DEPTH, from the innermost function outwards; their
 * number.  With the GIL; runs no Python code. */
unsigned argus_walk(struct argus_stack_store *store, PyObject *frame, unsigned *names);

#endif
