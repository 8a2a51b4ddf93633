/* The classes of native/kernel_classes.h, as the library needs them. */
#ifndef ARGUS_CLASSES_H
#define ARGUS_CLASSES_H

namespace argus {

unsigned kernel_class_of(const char *name);
unsigned kernel_class_count();
const char *kernel_class_name(unsigned kernel_class);
bool is_communication(unsigned kernel_class);
unsigned memcpy_class();
unsigned memset_class();

} // namespace argus

#endif
