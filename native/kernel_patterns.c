/* The user's own patterns, from a file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernel_text.h"

struct argus_kernel_patterns {
    size_t used;
    struct {
        enum argus_kernel_class kernel_class;
        size_t length;
        char text[ARGUS_KERNEL_PATTERN_MAX];
    } pattern[ARGUS_KERNEL_PATTERNS_MAX];
};

/* What is wrong, in the caller's buffer: the first line at fault in full, the rest counted. */
struct complaint {
    const char *path;
    char *text;
    size_t size;
    unsigned lines;
};

static void complain(struct complaint *complaint, unsigned line, const char *what, const char *about,
                     size_t length) {
    if (complaint->lines++ == 0 && complaint->size)
        snprintf(complaint->text, complaint->size, "%s:%u: %s%s%.*s%s", complaint->path, line, what,
                 length ? ": '" : "", (int)(length < 60 ? length : 60), about, length ? "'" : "");
}

/* A regular file's first bytes; -1 with errno (EFBIG: more than `size`). */
static ssize_t read_file(const char *path, char *buffer, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold up the training */
    if (file < 0)
        return -1;
    struct stat status;
    size_t length = 0;
    int failure = 0;
    if (fstat(file, &status) < 0)
        failure = errno;
    else if (!S_ISREG(status.st_mode))
        failure = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    while (!failure) {
        ssize_t got = read(file, buffer + length, size - length);
        if (got == 0)
            break;
        if (got > 0)
            length += (size_t)got;
        else if (errno != EINTR)
            failure = errno;
        if (length == size)
            failure = EFBIG;
    }
    close(file);
    errno = failure;
    return failure ? -1 : (ssize_t)length;
}

static int blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static void read_line(struct argus_kernel_patterns *patterns, struct complaint *complaint, unsigned number,
                      const char *line, const char *end) {
    while (line < end && blank(*line))
        line++;
    if (line == end || *line == '#')
        return;
    while (blank(end[-1]))
        end--;
    const char *name = line;
    while (line < end && !blank(*line))
        line++;
    size_t name_length = (size_t)(line - name);
    while (line < end && blank(*line))
        line++;
    size_t length = (size_t)(end - line);
    enum argus_kernel_class kernel_class = argus_kernel_class_find(name, name_length);
    if (kernel_class == ARGUS_KERNEL_CLASSES)
        complain(complaint, number, "no such class (argus classify --list names them)", name, name_length);
    else if (length == 0)
        complain(complaint, number, "a class without a pattern; write: class pattern", "", 0);
    else if (length > ARGUS_KERNEL_PATTERN_MAX)
        complain(complaint, number, "a pattern of more than 200 bytes; a part of the name is enough", "", 0);
    else if (memchr(line, '\0', length))
        complain(complaint, number, "a zero byte; save the file as plain text", "", 0);
    else if (patterns->used == ARGUS_KERNEL_PATTERNS_MAX)
        complain(complaint, number, "more than 256 patterns; join some with *", "", 0);
    else {
        patterns->pattern[patterns->used].kernel_class = kernel_class;
        patterns->pattern[patterns->used].length = length;
        for (size_t i = 0; i < length; i++)
            patterns->pattern[patterns->used].text[i] = argus_lower(line[i]);
        patterns->used++;
    }
}

static void read_lines(struct argus_kernel_patterns *patterns, struct complaint *complaint, const char *text,
                       size_t length) {
    const char *end = text + length;
    for (unsigned number = 1; text < end; number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        read_line(patterns, complaint, number, text, stop);
        text = stop + 1;
    }
    size_t used = complaint->size ? strlen(complaint->text) : 0;
    if (complaint->lines > 1 && used < complaint->size)
        snprintf(complaint->text + used, complaint->size - used, " (and %u more)", complaint->lines - 1);
}

struct argus_kernel_patterns *argus_kernel_patterns_read(const char *path, char *text, size_t size) {
    struct complaint complaint = {.path = path, .text = text, .size = size};
    if (size)
        *text = '\0';
    struct argus_kernel_patterns *patterns = malloc(sizeof *patterns);
    char *buffer = malloc(ARGUS_KERNEL_FILE_MAX + 1);
    ssize_t length = -1;
    if (patterns == NULL || buffer == NULL)
        errno = ENOMEM;
    else
        length = read_file(path, buffer, ARGUS_KERNEL_FILE_MAX + 1);
    if (length < 0)
        snprintf(text, size, "%s: %s", path,
                 errno == EFBIG    ? "larger than 64 KiB; keep only lines of: class pattern"
                 : errno == EINVAL ? "not a regular file; name a text file with lines of: class pattern"
                                   : strerror(errno));
    else {
        patterns->used = 0;
        read_lines(patterns, &complaint, buffer, (size_t)length);
    }
    free(buffer);
    if (patterns && (length < 0 || patterns->used == 0)) {
        free(patterns);
        return NULL;
    }
    return patterns;
}

void argus_kernel_patterns_free(struct argus_kernel_patterns *patterns) { free(patterns); }

enum argus_kernel_class argus_kernel_patterns_find(const struct argus_kernel_patterns *patterns,
                                                   const struct argus_kernel_name *name) {
    for (size_t i = 0; patterns && i < patterns->used; i++)
        if (argus_kernel_match(name->whole, name->length, patterns->pattern[i].text, patterns->pattern[i].length))
            return patterns->pattern[i].kernel_class;
    return ARGUS_KERNEL_CLASSES;
}
