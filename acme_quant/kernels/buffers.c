#include "buffers.h"

#include <string.h>

const buffer_kind FLOAT_MATRIX = {"f", 4, 2, false, "a C-contiguous float32 matrix"};
const buffer_kind FLOAT_VECTOR = {"f", 4, 1, false, "a contiguous float32 vector"};
const buffer_kind INT_VECTOR = {"il", 4, 1, false, "a contiguous int32 vector"};
const buffer_kind ANY_BYTES = {NULL, 0, 0, false, "a contiguous buffer"};

static bool letter_fits(const buffer_kind *kind, const char *format) {
  if (kind->letters == NULL) return true;
  if (format == NULL) return false;
  if (*format == '@' || *format == '=' || *format == '<') format++;
  return *format != '\0' && format[1] == '\0' && strchr(kind->letters, *format);
}

bool buffer_get(PyObject *object, const char *name, buffer_kind kind, Py_buffer *view) {
  int flags = kind.dimensions ? PyBUF_C_CONTIGUOUS | PyBUF_FORMAT : PyBUF_SIMPLE;
  if (kind.writable) flags |= PyBUF_WRITABLE;
  if (PyObject_GetBuffer(object, view, flags) < 0) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s: expected %s%s, got %s", name,
                 kind.writable ? "writable and " : "", kind.expected,
                 Py_TYPE(object)->tp_name);
    return false;
  }
  if (kind.dimensions == 0) return true;
  if (view->ndim == kind.dimensions && view->itemsize == kind.item_bytes &&
      letter_fits(&kind, view->format))
    return true;
  PyErr_Format(PyExc_ValueError, "%s: expected %s, got %d dimensions of format '%s'",
               name, kind.expected, view->ndim, view->format ? view->format : "B");
  PyBuffer_Release(view);
  return false;
}

bool buffer_get_shaped(PyObject *object, const char *name, buffer_kind kind,
                       Py_ssize_t first, Py_ssize_t second, Py_buffer *view) {
  if (!buffer_get(object, name, kind, view)) return false;
  Py_ssize_t wanted[2] = {first, second};
  for (int d = 0; d < kind.dimensions; d++)
    if (wanted[d] >= 0 && view->shape[d] != wanted[d]) {
      PyErr_Format(PyExc_ValueError, "%s: expected %zd in dimension %d, got %zd", name,
                   wanted[d], d, view->shape[d]);
      PyBuffer_Release(view);
      return false;
    }
  return true;
}
