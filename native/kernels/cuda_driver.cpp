#include "cuda_driver.h"

#include <dlfcn.h>

namespace argus {
namespace {

Driver driver;
bool found;

template <typename F>
bool find(void *library, const char *name, F *function) {
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != nullptr;
}

} // namespace

const Driver *find_driver() {
    if (found)
        return &driver;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    found = library != nullptr && find(library, "cuCtxGetCurrent", &driver.current) &&
            find(library, "cuCtxPushCurrent_v2", &driver.push) && find(library, "cuCtxPopCurrent_v2", &driver.pop) &&
            find(library, "cuStreamCreate", &driver.create_stream) &&
            find(library, "cuMemAlloc_v2", &driver.allocate) &&
            find(library, "cuMemsetD32Async", &driver.memset) &&
            find(library, "cuStreamIsCapturing", &driver.capturing) &&
            find(library, "cuDriverGetVersion", &driver.version);
    return found ? &driver : nullptr;
}

} // namespace argus
