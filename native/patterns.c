/* Patterns, and the user's files of them. */
#define _GNU_SOURCE
#include "patterns.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- matching ---- */

static int same(const char *text, const char *pattern, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (pattern[i] != '?' && pattern[i] != text[i])
            return 0;
    return 1;
}

/* Where in `text` a piece without `*` is found first, or NULL. */
static const char *find(const char *text, size_t length, const char *piece, size_t size) {
    if (size == 0)
        return text;
    while (size <= length) {
        if (piece[0] != '?') {
            const char *next = memchr(text, piece[0], length - size + 1);
            if (next == NULL)
                return NULL;
            length -= (size_t)(next - text);
            text = next;
        }
        if (same(text, piece, size))
            return text;
        text++, length--;
    }
    return NULL;
}

int argus_match(const char *text, size_t length, const char *pattern, size_t pattern_length) {
    const char *end = pattern + pattern_length;
    int tied = pattern < end && *pattern == '^', tied_end = pattern + tied < end && end[-1] == '$';
    pattern += tied;
    end -= tied_end;
    for (;; tied = 0) {
        const char *star = memchr(pattern, '*', (size_t)(end - pattern));
        size_t size = (size_t)((star ? star : end) - pattern);
        if (!star && tied_end) /* the last piece: only at the text's end */
            return size <= length && (!tied || size == length) && same(text + length - size, pattern, size);
        const char *found = tied ? (size <= length && same(text, pattern, size) ? text : NULL)
                                 : find(text, length, pattern, size);
        if (found == NULL)
            return 0;
        if (!star)
            return 1;
        length -= (size_t)(found - text) + size;
        text = found + size;
        pattern = star + 1;
    }
}

/* ---- files ---- */

struct reading {
    const char *path;
    const char *form;
    argus_take_line *take;
    void *target;
    size_t good;
    unsigned wrong;
    char *text; /* the first line at fault in full, the rest counted */
    size_t size;
};

static void complain(struct reading *reading, unsigned line, const char *what, const char *about, size_t length) {
    if (reading->wrong++ == 0 && reading->size)
        snprintf(reading->text, reading->size, "%s:%u: %s%s%.*s%s", reading->path, line, what,
                 length ? ": '" : "", (int)(length < 60 ? length : 60), about, length ? "'" : "");
}

static void complain_form(struct reading *reading, unsigned line) {
    char what[100];
    snprintf(what, sizeof what, "a %s without a pattern; write: %s pattern", reading->form, reading->form);
    complain(reading, line, what, "", 0);
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

static void read_line(struct reading *reading, unsigned number, const char *line, const char *end) {
    while (line < end && blank(*line))
        line++;
    if (line == end || *line == '#')
        return;
    while (blank(end[-1]))
        end--;
    const char *word = line;
    while (line < end && !blank(*line))
        line++;
    size_t word_length = (size_t)(line - word);
    while (line < end && blank(*line))
        line++;
    struct argus_pattern pattern = {.length = (size_t)(end - line)};
    for (size_t i = 0; i < pattern.length && i < ARGUS_PATTERN_MAX; i++)
        pattern.text[i] = argus_lower(line[i]);
    if (pattern.length == 0)
        complain_form(reading, number);
    else if (pattern.length > ARGUS_PATTERN_MAX)
        complain(reading, number, "a pattern of more than 200 bytes; a part of the name is enough", "", 0);
    else if (memchr(line, '\0', pattern.length))
        complain(reading, number, "a zero byte; save the file as plain text", "", 0);
    else if (reading->good == ARGUS_PATTERNS_MAX)
        complain(reading, number, "more than 256 patterns; join some with *", "", 0);
    else {
        const char *wrong = reading->take(reading->target, reading->good, word, word_length, &pattern);
        if (wrong == NULL)
            reading->good++;
        else
            complain(reading, number, wrong, word, word_length);
    }
}

static void read_lines(struct reading *reading, const char *text, size_t length) {
    const char *end = text + length;
    for (unsigned number = 1; text < end; number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        read_line(reading, number, text, stop);
        text = stop + 1;
    }
    size_t used = reading->size ? strlen(reading->text) : 0;
    if (reading->wrong > 1 && used < reading->size)
        snprintf(reading->text + used, reading->size - used, " (and %u more)", reading->wrong - 1);
}

size_t argus_read_patterns(const char *path, const char *form, argus_take_line *take, void *target,
                           char *complaint, size_t size) {
    struct reading reading = {path, form, take, target, 0, 0, complaint, size};
    if (size)
        *complaint = '\0';
    char *buffer = malloc(ARGUS_PATTERN_FILE_MAX + 1);
    ssize_t length = -1;
    if (buffer == NULL)
        errno = ENOMEM;
    else
        length = read_file(path, buffer, ARGUS_PATTERN_FILE_MAX + 1);
    if (length >= 0)
        read_lines(&reading, buffer, (size_t)length);
    else if (errno == EFBIG)
        snprintf(complaint, size, "%s: larger than 64 KiB; keep only lines of: %s pattern", path, form);
    else if (errno == EINVAL)
        snprintf(complaint, size, "%s: not a regular file; name a text file with lines of: %s pattern", path, form);
    else
        snprintf(complaint, size, "%s: %s", path, strerror(errno));
    free(buffer);
    return reading.good;
}
