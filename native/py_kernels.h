/* The kernel classes in Python. */
#ifndef ARGUS_PY_KERNELS_H
#define ARGUS_PY_KERNELS_H

#include "python.h"

/* kernel_classes(), kernel_class(), read_kernel_patterns(); -1 with an exception. */
int argus_add_kernels(PyObject *module);

#endif
