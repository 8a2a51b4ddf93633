/* Finding CUPTI at run time. */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "cupti_api.h"

namespace argus {
namespace {

/* Newest first: what the driver supports decides in the end, and a copy that is
 * in the process already is found before any of these is loaded. */
const char *const kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so.11.7",
                              "libcupti.so.11.6", "libcupti.so"};

/* Whether all that would be mapped is there: the loader waits for pipes, and
 * is killed by a file that was cut short. */
bool is_whole(int file) {
    struct stat status;
    Elf64_Ehdr header;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
        pread(file, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
        std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(Elf64_Phdr))
        return false;
    uint64_t size = static_cast<uint64_t>(status.st_size);
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr part;
        off_t at = static_cast<off_t>(header.e_phoff + i * sizeof part);
        if (pread(file, &part, sizeof part, at) != static_cast<ssize_t>(sizeof part) || part.p_filesz > size ||
            part.p_offset > size - part.p_filesz)
            return false;
    }
    return true;
}

void *open_file(const char *path) {
    if (std::strchr(path, '/') != nullptr) { /* else the loader looks for it */
        int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        bool whole = file >= 0 && is_whole(file);
        if (file >= 0)
            close(file);
        if (!whole)
            return nullptr;
    }
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *open_library(const char *path) {
    for (const char *name : kNames)
        if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD))
            return library; /* torch's copy: two in one process disturb each other */
    const char *given = getenv("ARGUS_CUPTI");
    if (given != nullptr && given[0] != '\0')
        return open_file(given);
    if (path != nullptr)
        if (void *library = open_file(path))
            return library;
    for (const char *name : kNames)
        if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL))
            return library;
    return nullptr;
}

template <typename F>
bool find(void *library, const char *name, F *function) {
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != nullptr;
}

} // namespace

const char *load_cupti(Cupti *cupti, const char *path) {
    void *library = open_library(path);
    const char *given = getenv("ARGUS_CUPTI");
    if (library == nullptr && given != nullptr && given[0] != '\0')
        return "the libcupti that ARGUS_CUPTI names can't be loaded; check the path, or unset it";
    if (library == nullptr)
        return "no libcupti was found; set ARGUS_CUPTI to its path (torch and the CUDA toolkit bring one)";
    if (!find(library, "cuptiActivityRegisterCallbacks", &cupti->register_callbacks) ||
        !find(library, "cuptiActivityEnable", &cupti->enable) ||
        !find(library, "cuptiActivityDisable", &cupti->disable) ||
        !find(library, "cuptiActivityFlushAll", &cupti->flush_all) ||
        !find(library, "cuptiActivityGetNextRecord", &cupti->next_record) ||
        !find(library, "cuptiActivityGetNumDroppedRecords", &cupti->dropped_records))
        return "libcupti lacks the activity API; set ARGUS_CUPTI to one of CUDA 11.8 to 13";
    find(library, "cuptiGetTimestamp", &cupti->timestamp);
    find(library, "cuptiActivitySetAttribute", &cupti->set_attribute);
    find(library, "cuptiActivityEnableDriverApi", &cupti->enable_driver_call);
    find(library, "cuptiGetStreamIdEx", &cupti->stream_id);
    return nullptr;
}

const char *explain(CuptiResult result) {
    switch (result) {
    case 14:
    case 39:
        return "another profiler (nsys, ncu) has CUPTI; stop it to trace kernels";
    case kNotInitialized:
    case kUnknown:
        return "CUPTI finds no NVIDIA driver that it can use; on a GPU node, check nvidia-smi and that this "
               "libcupti is not newer than the driver";
    case 33:
    case 35:
    case 40:
        return "this user may not profile the GPU; the administrator can allow it "
               "(NVreg_RestrictProfilingToAdminUsers=0)";
    default:
        return "CUPTI refused; its release notes explain the code";
    }
}

} // namespace argus
