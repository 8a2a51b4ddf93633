/* From a Python frame to the names of its stack. */
#ifndef ARGUS_STACK_WALK_H
#define ARGUS_STACK_WALK_H

#include "python.h"
#include "stack_store.h"

#define ARGUS_STACK_DEPTH 160 /* functions of one stack, the innermost ones */

/* To be called once before.  -1 with an exception. */
int argus_walk_prepare(void);

/* Names in the store, at most ARGUS_STACK_DEPTH, from the innermost function outwards; their
 * number.  With the GIL; runs no Python code. */
unsigned argus_walk(struct argus_stack_store *store, PyObject *frame, unsigned *names);

#endif
