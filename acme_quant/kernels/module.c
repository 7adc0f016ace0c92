/* The Python face: the lists of names, and the kernels that work on whole weight
 * matrices. */
#include "in_use.h"
#include "layout.h"
#include "portable.h"
#include "program.h"

/* Bytes from which a pass over memory runs without the GIL. */
#define BYTES_WITHOUT_GIL 65536

static const buffer_kind CODE_MATRIX = {"b", 1, 2, false, "a C-contiguous int8 matrix"};
static const buffer_kind BYTE_MATRIX = {
    "B", 1, 2, false, "a C-contiguous uint8 matrix"};
static const buffer_kind HALF_MATRIX = {
    "He", 2, 2, false, "a C-contiguous float16 or uint16 matrix"};

static PyThreadState *release_gil_for(Py_ssize_t bytes) {
  return bytes >= BYTES_WITHOUT_GIL ? PyEval_SaveThread() : NULL;
}

static void restore_gil(PyThreadState *state) {
  if (state) PyEval_RestoreThread(state);
}

static PyObject *crc32c(PyObject *module, PyObject *arguments, PyObject *keywords) {
  (void)module;
  static char *names[] = {"buffer", "value", NULL};
  PyObject *object;
  unsigned int value = 0;
  Py_buffer view;
  const kernel_table *k = kernels_in_use();
  if (k == NULL ||
      !PyArg_ParseTupleAndKeywords(arguments, keywords, "O|I:crc32c", names, &object,
                                   &value) ||
      !buffer_get(object, "buffer", ANY_BYTES, &view))
    return NULL;
  PyThreadState *state = release_gil_for(view.len);
  uint32_t crc = k->crc32c(value, view.buf, view.len);
  restore_gil(state);
  PyBuffer_Release(&view);
  return PyLong_FromUnsignedLong(crc);
}

/* float32 [K, N] with at least one number. */
static bool get_weight(PyObject *object, Py_buffer *view) {
  if (!buffer_get(object, "w", FLOAT_MATRIX, view)) return false;
  if (view->len > 0) return true;
  PyErr_Format(PyExc_ValueError, "w: expected at least one number, got [%zd, %zd]",
               view->shape[0], view->shape[1]);
  PyBuffer_Release(view);
  return false;
}

static PyObject *column_range(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *objects[3];
  Py_buffer w, low, high;
  const kernel_table *k = kernels_in_use();
  if (k == NULL || !PyArg_ParseTuple(arguments, "OOO:column_range", &objects[0],
                                     &objects[1], &objects[2]) ||
      !get_weight(objects[0], &w))
    return NULL;
  buffer_kind vector = writable_buffer(FLOAT_VECTOR);
  bool taken = false, finite = true;
  if (buffer_get_shaped(objects[1], "low", vector, w.shape[1], -1, &low)) {
    if (buffer_get_shaped(objects[2], "high", vector, w.shape[1], -1, &high)) {
      taken = true;
      PyThreadState *state = release_gil_for(w.len);
      finite = k->column_range(w.buf, w.shape[0], w.shape[1], low.buf, high.buf);
      restore_gil(state);
      PyBuffer_Release(&high);
    }
    PyBuffer_Release(&low);
  }
  PyBuffer_Release(&w);
  if (!finite)
    PyErr_SetString(PyExc_ValueError, "w: expected finite numbers, got NaN or Inf");
  if (!taken || !finite) return NULL;
  Py_RETURN_NONE;
}

/* The arguments of quantize_columns, of which zero_point may have no buffer. */
typedef struct {
  Py_buffer w, inverse_scale, zero_point, out;
} column_buffers;

static void release_columns(column_buffers *b) {
  /* Releasing an empty view does nothing. */
  PyBuffer_Release(&b->w);
  PyBuffer_Release(&b->inverse_scale);
  PyBuffer_Release(&b->zero_point);
  PyBuffer_Release(&b->out);
}

static bool get_columns(PyObject *const objects[4], column_buffers *b) {
  memset(b, 0, sizeof *b);
  if (!get_weight(objects[0], &b->w)) return false;
  Py_ssize_t inputs = b->w.shape[0], outputs = b->w.shape[1];
  bool good =
      buffer_get_shaped(objects[1], "inverse_scale", FLOAT_VECTOR, outputs, -1,
                        &b->inverse_scale) &&
      (objects[2] == Py_None || buffer_get_shaped(objects[2], "zero_point", INT_VECTOR,
                                                  outputs, -1, &b->zero_point)) &&
      buffer_get_shaped(objects[3], "out", writable_buffer(CODE_MATRIX), outputs,
                        padded(inputs), &b->out);
  if (!good) release_columns(b);
  return good;
}

static bool check_codes(const column_codes *c, Py_ssize_t outputs) {
  if (c->code_min < -128 || c->code_max > 127 || c->code_min > c->code_max) {
    PyErr_Format(PyExc_ValueError,
                 "codes: expected a range within -128..127, got %d..%d", c->code_min,
                 c->code_max);
    return false;
  }
  for (Py_ssize_t n = 0; c->zero_point && n < outputs; n++)
    if (c->zero_point[n] < -(1 << 20) || c->zero_point[n] > 1 << 20) {
      PyErr_Format(PyExc_ValueError,
                   "zero_point: expected numbers within +-%d, got %d", 1 << 20,
                   c->zero_point[n]);
      return false;
    }
  return true;
}

static PyObject *quantize_columns(PyObject *module, PyObject *arguments,
                                  PyObject *keywords) {
  (void)module;
  static char *names[] = {"w",        "inverse_scale", "zero_point", "code_min",
                          "code_max", "out",           NULL};
  PyObject *objects[4];
  column_codes c;
  column_buffers b;
  const kernel_table *k = kernels_in_use();
  if (k == NULL ||
      !PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOiiO:quantize_columns",
                                   names, &objects[0], &objects[1], &objects[2],
                                   &c.code_min, &c.code_max, &objects[3]) ||
      !get_columns(objects, &b))
    return NULL;
  c.inverse_scale = b.inverse_scale.buf;
  c.zero_point = b.zero_point.buf;
  bool good = check_codes(&c, b.w.shape[1]);
  if (good) {
    PyThreadState *state = release_gil_for(b.w.len);
    k->quantize_columns(b.w.buf, b.w.shape[0], b.w.shape[1], c, b.out.buf);
    restore_gil(state);
  }
  release_columns(&b);
  if (!good) return NULL;
  Py_RETURN_NONE;
}

static PyObject *transpose_columns(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *weight, *result;
  Py_buffer w, out;
  const kernel_table *k = kernels_in_use();
  if (k == NULL ||
      !PyArg_ParseTuple(arguments, "OO:transpose_columns", &weight, &result) ||
      !get_weight(weight, &w))
    return NULL;
  Py_ssize_t inputs = w.shape[0], outputs = w.shape[1];
  buffer_kind matrix = FLOAT_MATRIX;
  if (buffer_get(result, "out", writable_buffer(HALF_MATRIX), &out)) {
    matrix = HALF_MATRIX;
    PyBuffer_Release(&out);
  }
  PyErr_Clear();
  bool good = buffer_get_shaped(result, "out", writable_buffer(matrix), outputs,
                                padded(inputs), &out);
  if (good) {
    PyThreadState *state = release_gil_for(w.len);
    if (matrix.item_bytes == 2)
      k->transpose_float16(w.buf, inputs, outputs, out.buf);
    else
      k->transpose_float32(w.buf, inputs, outputs, out.buf);
    restore_gil(state);
    PyBuffer_Release(&out);
  }
  PyBuffer_Release(&w);
  if (!good) return NULL;
  Py_RETURN_NONE;
}

static PyObject *pack_int4(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *source, *result;
  Py_buffer codes, out;
  const kernel_table *k = kernels_in_use();
  if (k == NULL || !PyArg_ParseTuple(arguments, "OO:pack_int4", &source, &result) ||
      !buffer_get(source, "codes", CODE_MATRIX, &codes))
    return NULL;
  bool good = codes.shape[1] % ROW == 0;
  if (!good)
    PyErr_Format(PyExc_ValueError, "codes: expected rows of a multiple of %d, got %zd",
                 ROW, codes.shape[1]);
  good = good && buffer_get_shaped(result, "out", writable_buffer(BYTE_MATRIX),
                                   codes.shape[0], codes.shape[1] / 2, &out);
  if (good) {
    PyThreadState *state = release_gil_for(codes.len);
    k->pack_int4(codes.buf, codes.len, out.buf);
    restore_gil(state);
    PyBuffer_Release(&out);
  }
  PyBuffer_Release(&codes);
  if (!good) return NULL;
  Py_RETURN_NONE;
}

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))function
static PyMethodDef functions[] = {
    {"isa", get_isa, METH_NOARGS,
     "isa()\n--\n\nReturns the name of the kernels in use.\n\n"
     "ACME_QUANT_ISA in the environment chooses them; without it, the best.\n\n"
     "Raises:\n  ValueError: ACME_QUANT_ISA names none of ISAS."},
    {"select_isa", select_isa, METH_O,
     "select_isa(name, /)\n--\n\nChooses the kernels of Programs built from now on.\n\n"
     "Raises:\n  ValueError: The name is none of ISAS."},
    {"crc32c", WITH_KEYWORDS(crc32c), METH_VARARGS | METH_KEYWORDS,
     "crc32c(buffer, value=0)\n--\n\nReturns the CRC-32C of a buffer's bytes.\n\n"
     "Args:\n  buffer: contiguous.\n  value: the CRC-32C of the bytes before."},
    {"column_range", column_range, METH_VARARGS,
     "column_range(w, low, high, /)\n--\n\nWrites the extremes of each column.\n\n"
     "Args:\n  w: float32 [K, N].\n  low, high: float32 [N], written.\n\n"
     "Raises:\n  ValueError: A number is NaN or Inf."},
    {"quantize_columns", WITH_KEYWORDS(quantize_columns), METH_VARARGS | METH_KEYWORDS,
     "quantize_columns(w, inverse_scale, zero_point, code_min, code_max, out)\n--\n\n"
     "Writes codes clip(rint(w[k, n] * inverse_scale[n]) + zero_point[n], code_min,\n"
     "code_max) to out[n, k]; half to even, padding 0.\n\n"
     "Args:\n  w: float32 [K, N].\n  inverse_scale: float32 [N].\n"
     "  zero_point: int32 [N] or None.\n  out: int8 [N, Kp], written."},
    {"transpose_columns", transpose_columns, METH_VARARGS,
     "transpose_columns(w, out, /)\n--\n\nWrites w[k, n] to out[n, k], padding 0.\n\n"
     "Args:\n  w: float32 [K, N].\n"
     "  out: float32, float16 or uint16 (bits of float16) [N, Kp], written."},
    {"pack_int4", pack_int4, METH_VARARGS,
     "pack_int4(codes, out, /)\n--\n\nPacks two codes a byte.\n\n"
     "Args:\n  codes: int8 [N, Kp] in [-7, 7].\n  out: uint8 [N, Kp / 2], written."},
    {NULL, NULL, 0, NULL}};

#define NAME_TEXT(name) #name,
#define FIELD_TEXT(type, name) #name,
#define KERNEL_TEXT(type, name, arguments) #name,
static const char *const format_names[] = {NAMED_FORMATS(NAME_TEXT) NULL};
static const char *const activation_names[] = {NAMED_ACTIVATIONS(NAME_TEXT) NULL};
static const char *const field_names[] = {OP_FIELDS(FIELD_TEXT) NULL};
static const char *const kernel_names[] = {KERNELS(KERNEL_TEXT) NULL};

static const struct {
  const char *name;
  const char *const *entries;
} lists[] = {{"FORMATS", format_names},
             {"ACTIVATIONS", activation_names},
             {"KINDS", kind_names},
             {"OP_FIELDS", field_names},
             {"KERNELS", kernel_names}};

static PyObject *tuple_of(const char *const *entries) {
  Py_ssize_t count = 0;
  while (entries[count]) count++;
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple && i < count; i++)
    PyTuple_SET_ITEM(tuple, i, PyUnicode_FromString(entries[i]));
  return tuple;
}

/* Adds and owns the object, which may be null after an error. */
static bool add(PyObject *module, const char *name, PyObject *object) {
  if (object && PyModule_AddObject(module, name, object) == 0) return true;
  Py_XDECREF(object);
  return false;
}

static bool fill_module(PyObject *module) {
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    if (!add(module, lists[i].name, tuple_of(lists[i].entries))) return false;
  Py_INCREF(&ProgramType);
  return add(module, "Program", (PyObject *)&ProgramType) &&
         add(module, "ISAS", isa_names()) &&
         PyModule_AddIntConstant(module, "ROW", ROW) == 0 &&
         PyModule_AddIntConstant(module, "LARGEST_CODE", LARGEST_CODE) == 0;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "acme_quant.kernels._kernels",
                                        "The C face of the engine.",
                                        -1,
                                        functions,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};

PyMODINIT_FUNC PyInit__kernels(void) {
  portable_prepare();
  if (PyType_Ready(&ProgramType) < 0) return NULL;
  PyObject *module = PyModule_Create(&definition);
  if (module && fill_module(module)) return module;
  Py_XDECREF(module);
  return NULL;
}
