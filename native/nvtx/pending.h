/* What NVTX's callers, which don't hold the GIL, want Python to do: it is done
 * by the main thread, when it next gets there. */
#ifndef ARGUS_NVTX_PENDING_H
#define ARGUS_NVTX_PENDING_H

/* Whatever there is to do: after an iteration (argus_iterated() in python.h),
 * what is wrong with the user's rules, argus.init(). */
void argus_nvtx_ask(void);

/* argus.init() is to be called, once: the user wished it with ARGUS_NVTX_INIT. */
void argus_nvtx_want_initialisation(void);
/* Asks as long as that was not done. */
void argus_nvtx_ask_for_initialisation(void);

#endif
