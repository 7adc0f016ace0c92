/* Python buffers with the type, shape and writability a function asks for. */
#ifndef ACME_QUANT_BUFFERS_H
#define ACME_QUANT_BUFFERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* Formats of `struct` that are taken (any of the letters, or none for all), the size
 * of an element, the number of dimensions (0: any bytes), and the words for it all in
 * messages. */
typedef struct {
  const char *letters;
  Py_ssize_t item_bytes;
  int dimensions;
  bool writable;
  const char *expected;
} buffer_kind;

extern const buffer_kind FLOAT_MATRIX, FLOAT_VECTOR, INT_VECTOR, ANY_BYTES;

/* Fills `view`, to be released with PyBuffer_Release; false with a ValueError that
 * says what was expected of `name` and what came. */
bool buffer_get(PyObject *object, const char *name, buffer_kind kind, Py_buffer *view);

/* buffer_get, and the last dimensions must be these (-1: any). */
bool buffer_get_shaped(PyObject *object, const char *name, buffer_kind kind,
                       Py_ssize_t first, Py_ssize_t second, Py_buffer *view);

static inline buffer_kind writable_buffer(buffer_kind kind) {
  kind.writable = true;
  return kind;
}

#endif
