/* Kernel names taken apart. */
#define _GNU_SOURCE
#include <string.h>

#include "kernel_text.h"

/* nvcc writes these for unnamed namespaces and for code linked from several
 * files; they hold the file's name, which says nothing about the kernel. */
static const char *const unnamed[] = {"_GLOBAL__N", "_INTERNAL_"};
/* Unnamed namespaces as c++filt, nsys and GCC write them. */
static const char *const anonymous[] = {"(anonymous namespace)", "<unnamed>", "{anonymous}"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int begins(const char *text, size_t length, const char *with) {
    size_t n = strlen(with);
    return n <= length && memcmp(text, with, n) == 0;
}

static void head_add(struct argus_kernel_name *name, const char *text, size_t length) {
    size_t room = ARGUS_KERNEL_HEAD_MAX - name->head_length;
    if (length > room)
        length = room;
    for (size_t i = 0; i < length; i++)
        name->head[name->head_length + i] = argus_lower(text[i]);
    name->head_length += length;
}

/* One <length><identifier> of a mangled name into the head; returns the bytes
 * read, 0 where there is none. */
static size_t component(struct argus_kernel_name *name, const char *text, size_t length) {
    size_t digits = 0, size = 0;
    while (digits < length && digits < 5 && text[digits] >= '0' && text[digits] <= '9')
        size = size * 10 + (size_t)(text[digits++] - '0');
    if (digits == 0 || size == 0 || size > length - digits)
        return 0;
    const char *identifier = text + digits;
    for (size_t i = 0; i < COUNT(unnamed); i++)
        if (begins(identifier, size, unnamed[i]))
            return digits + size;
    if (name->head_length)
        head_add(name, "::", 2);
    head_add(name, identifier, size);
    return digits + size;
}

/* Itanium C++ ABI, as far as a kernel's own name needs it: kernels are
 * functions in namespaces, never members, so the name ends where the first
 * template arguments or the parameters begin. */
static size_t read_mangled(struct argus_kernel_name *name, const char *text, size_t length) {
    size_t at = 2;
    if (at < length && text[at] == 'L')
        at++;
    if (at < length && text[at] != 'N')
        return at + component(name, text + at, length - at);
    at++;
    while (at < length) {
        size_t read = component(name, text + at, length - at);
        if (read)
            at += read;
        else if (text[at] == 'L')
            at++;
        else if (begins(text + at, length - at, "St")) {
            head_add(name, "std", 3);
            at += 2;
        } else
            break;
    }
    return at;
}

/* The length of an unnamed namespace (with its ::) that a demangled name has here, 0: none. */
static size_t unnamed_here(const char *text, size_t length) {
    size_t size = 0;
    for (size_t i = 0; i < COUNT(anonymous) && !size; i++)
        if (begins(text, length, anonymous[i]))
            size = strlen(anonymous[i]);
    if (!size && (begins(text, length, unnamed[0]) || begins(text, length, unnamed[1])))
        while (size < length && text[size] != ':')
            size++;
    return size && begins(text + size, length - size, "::") ? size + 2 : size;
}

/* `void space::name<…>(…)`, `std::enable_if<…>::type space::name<…>(…)`,
 * `space::(anonymous namespace)::name(…)`, or a plain name. */
static size_t read_demangled(struct argus_kernel_name *name, const char *text, size_t length) {
    size_t depth = 0, arguments = 0, skip, begin = 0;
    if (begins(text, length, "std::enable_if<")) { /* nsys leaves its brackets unbalanced */
        const char *type = memmem(text, length, ">::type ", 8);
        begin = type ? (size_t)(type - text) + 8 : 0;
    }
    for (size_t at = begin; at < length; at++) {
        char c = text[at];
        if (depth == 0 && (skip = unnamed_here(text + at, length - at)) != 0) {
            at += skip - 1;
        } else if (depth == 0 && c == ' ') { /* what came before was the return type */
            name->head_length = 0;
            arguments = 0;
        } else if (c == '<' || c == '(' || c == '{') {
            if (depth == 0 && c == '(' && name->head_length) /* the parameters: nothing else follows */
                return arguments ? arguments : at;
            if (depth++ == 0 && !arguments)
                arguments = at;
        } else if (c == '>' || c == ')' || c == '}') {
            if (depth && !(c == '>' && text[at - 1] == '-'))
                depth--;
        } else if (depth == 0 && !arguments)
            head_add(name, &c, 1);
    }
    return arguments ? arguments : length;
}

void argus_kernel_name_read(struct argus_kernel_name *name, const char *text) {
    size_t length = text ? strnlen(text, ARGUS_KERNEL_NAME_MAX) : 0;
    name->length = length;
    name->head_length = 0;
    for (size_t i = 0; i < length; i++)
        name->whole[i] = argus_lower(text[i]);
    name->arguments = begins(text, length, "_Z") ? read_mangled(name, text, length)
                                                 : read_demangled(name, text, length);
    if (name->head_length == 0) { /* none of these forms: all of it may tell something */
        head_add(name, text, length);
        name->arguments = 0;
    }
}
