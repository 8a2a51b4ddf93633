/* Patterns for names, and the files in which users write their own.
 *
 * No regular expressions: a pattern can't take long inside the training
 * process, whoever wrote it. */
#ifndef ARGUS_PATTERNS_H
#define ARGUS_PATTERNS_H

#include <stddef.h>

#define ARGUS_PATTERNS_MAX 256          /* in a file */
#define ARGUS_PATTERN_MAX 200           /* bytes of one */
#define ARGUS_PATTERN_FILE_MAX 65536    /* bytes of a file */

struct argus_pattern {
    size_t length;
    char text[ARGUS_PATTERN_MAX]; /* lower case (ASCII only) */
};

/* Whether a lower-case pattern is found in a text.  `*` stands for any bytes,
 * `?` for one; `^` at the beginning and `$` at the end tie it to the text's.
 * Time: at most length × pattern_length. */
int argus_match(const char *text, size_t length, const char *pattern, size_t pattern_length);

/* Takes the number-th good line, whose first word is not NUL-terminated.
 * Returns NULL, or what is wrong with the word: then the line doesn't count. */
typedef const char *argus_take_line(void *target, size_t number, const char *word, size_t length,
                                    const struct argus_pattern *pattern);

/* Reads a file of lines `<form> pattern`; `#` begins a comment.  Returns the
 * number of good lines.  `complaint` holds what is wrong, with file and line
 * and the mend, or is empty; it always ends with a zero byte. */
size_t argus_read_patterns(const char *path, const char *form, argus_take_line *take, void *target,
                           char *complaint, size_t size);

static inline char argus_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c; }

#endif
