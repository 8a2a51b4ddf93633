#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "stack_walk.h"

#include <dlfcn.h>
#include <string.h>

#define SKIPPED UINT32_MAX
#define NAME_BYTES 400 /* more than the store keeps */

static struct {
    PyObject *f_back, *f_globals, *qualname, *name, *filename, *module;
    /* PyInterpreterState_Head() and _Main(), no part of the limited API; NULL where they aren't needed. */
    void *(*newest)(void), *(*main)(void);
} s;

static void find_interpreters(void) {
    PyObject *version = PySys_GetObject("hexversion"); /* borrowed */
    if (version == NULL || PyLong_AsUnsignedLong(version) < 0x030c0000)
        return;
    *(void **)&s.newest = dlsym(RTLD_DEFAULT, "PyInterpreterState_Head");
    *(void **)&s.main = dlsym(RTLD_DEFAULT, "PyInterpreterState_Main");
}

int argus_walk_allowed(void) {
    /* The main one is the oldest, and only it, or one that it made, can make others. */
    return s.newest == NULL || s.main == NULL || s.newest() == s.main();
}

int argus_walk_prepare(void) {
    find_interpreters();
    const struct {
        PyObject **place;
        const char *text;
    } names[] = {{&s.f_back, "f_back"},   {&s.f_globals, "f_globals"},  {&s.qualname, "co_qualname"},
                 {&s.name, "co_name"},    {&s.filename, "co_filename"}, {&s.module, "__name__"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (*names[i].place == NULL && (*names[i].place = PyUnicode_InternFromString(names[i].text)) == NULL)
            return -1;
    return 0;
}

/* Text of a str, which lives as long as the str does; empty where it has none. */
static struct argus_text text_of(PyObject *object) {
    struct argus_text text = {"", 0};
    Py_ssize_t length = 0;
    if (object == NULL || !PyUnicode_Check(object))
        return text;
    const char *data = PyUnicode_AsUTF8AndSize(object, &length);
    if (data == NULL) {
        PyErr_Clear();
        return text;
    }
    return (struct argus_text){data, (size_t)length};
}

static size_t append(char *buffer, size_t used, struct argus_text text) {
    size_t room = NAME_BYTES - used, count = text.length < room ? text.length : room;
    memcpy(buffer + used, text.data, count);
    return used + count;
}

static struct argus_text last_part(struct argus_text path) {
    for (size_t i = path.length; i > 0; i--)
        if (path.data[i - 1] == '/')
            return (struct argus_text){path.data + i, path.length - i};
    return path;
}

/* `module:qualified.name` of a frame's function, as an index; SKIPPED: it is a part of import's own
 * machinery, of which every import has many. */
static unsigned name_of(struct argus_stack_store *store, PyObject *frame) {
    char buffer[NAME_BYTES];
    PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    PyObject *name = PyObject_GetAttr(code, s.qualname);
    if (name == NULL) { /* before Python 3.11 */
        PyErr_Clear();
        name = PyObject_GetAttr(code, s.name);
    }
    PyObject *globals = PyObject_GetAttr(frame, s.f_globals), *filename = NULL;
    PyObject *module = globals != NULL && PyDict_Check(globals) ? PyDict_GetItemWithError(globals, s.module) : NULL;
    struct argus_text where = text_of(module);
    if (where.length == 0 || (where.length == 8 && memcmp(where.data, "__main__", 8) == 0)) {
        filename = PyObject_GetAttr(code, s.filename);
        where = last_part(text_of(filename));
    }
    static const char machinery[] = "importlib._bootstrap";
    int skipped = where.length >= sizeof machinery - 1 && memcmp(where.data, machinery, sizeof machinery - 1) == 0;
    size_t used = append(buffer, 0, where);
    used = append(buffer, used, (struct argus_text){":", 1});
    used = append(buffer, used, text_of(name));
    PyErr_Clear();
    Py_XDECREF(filename);
    Py_XDECREF(globals);
    Py_XDECREF(name);
    Py_DECREF(code);
    return skipped ? SKIPPED : argus_stack_store_name(store, buffer, used);
}

unsigned argus_walk(struct argus_stack_store *store, PyObject *frame, unsigned *names) {
    unsigned depth = 0;
    Py_INCREF(frame);
    while (frame != NULL && frame != Py_None) {
        if (depth == ARGUS_STACK_DEPTH) {
            names[depth - 1] = argus_stack_store_name(store, "(more)", 6);
            break;
        }
        unsigned name = name_of(store, frame);
        if (name != SKIPPED)
            names[depth++] = name;
        PyObject *back = PyObject_GetAttr(frame, s.f_back);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    PyErr_Clear();
    return depth;
}
