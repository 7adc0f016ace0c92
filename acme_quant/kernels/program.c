/* `Program`: an engine behind the buffer protocol, for any number of threads. */
#include "program.h"

#include <stddef.h>

#include "engine.h"
#include "in_use.h"

/* Multiplications from which giving the GIL away costs less than it frees: about
 * ten microseconds of work. */
#define WORK_WITHOUT_GIL 250000

typedef struct {
  PyObject_HEAD
  engine *engine;
  PyThread_type_lock lock; /* of the engine's scratch memory */
} Program;

static const buffer_kind OP_RECORDS = {
    NULL, sizeof(op_record), 1, false, "a contiguous vector of OP_DTYPE"};
static const buffer_kind TENSOR_RECORDS = {
    "lq", 8, 2, false, "a C-contiguous int64 matrix [T, 2]"};

/* The layout of three buffers. */
typedef struct {
  Py_buffer ops, tensors, widths;
} layout_buffers;

static bool get_layout(PyObject *const objects[3], layout_buffers *b) {
  if (!buffer_get(objects[0], "ops", OP_RECORDS, &b->ops)) return false;
  if (buffer_get_shaped(objects[1], "tensors", TENSOR_RECORDS, -1, 2, &b->tensors)) {
    if (buffer_get(objects[2], "value_widths", INT_VECTOR, &b->widths)) return true;
    PyBuffer_Release(&b->tensors);
  }
  PyBuffer_Release(&b->ops);
  return false;
}

static void release_layout(layout_buffers *b) {
  PyBuffer_Release(&b->ops);
  PyBuffer_Release(&b->tensors);
  PyBuffer_Release(&b->widths);
}

static engine *make_engine(const layout_buffers *b, long long payload_bytes) {
  layout l = {.ops = b->ops.buf,
              .op_count = b->ops.shape[0],
              .tensors = b->tensors.buf,
              .tensor_count = b->tensors.shape[0],
              .value_widths = b->widths.buf,
              .value_count = b->widths.shape[0],
              .payload_bytes = payload_bytes};
  const kernel_table *kernels = kernels_in_use();
  message error;
  if (kernels == NULL) return NULL;
  if (!layout_check(&l, &error)) {
    PyErr_SetString(PyExc_ValueError, error.text);
    return NULL;
  }
  engine *e = engine_new(&l, kernels);
  if (e == NULL) PyErr_NoMemory();
  return e;
}

static PyObject *program_new(PyTypeObject *type, PyObject *arguments,
                             PyObject *keywords) {
  static char *names[] = {"ops", "tensors", "value_widths", "payload_bytes", NULL};
  PyObject *objects[3];
  long long payload_bytes;
  layout_buffers buffers;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOL:Program", names,
                                   &objects[0], &objects[1], &objects[2],
                                   &payload_bytes) ||
      !get_layout(objects, &buffers))
    return NULL;
  engine *e = make_engine(&buffers, payload_bytes);
  release_layout(&buffers);
  if (e == NULL) return NULL;
  Program *self = (Program *)type->tp_alloc(type, 0);
  if (self == NULL) {
    engine_free(e);
    return NULL;
  }
  self->engine = e;
  self->lock = PyThread_allocate_lock();
  if (self->lock) return (PyObject *)self;
  Py_DECREF(self);
  return PyErr_NoMemory();
}

static void program_dealloc(PyObject *object) {
  Program *self = (Program *)object;
  engine_free(self->engine);
  if (self->lock) PyThread_free_lock(self->lock);
  Py_TYPE(object)->tp_free(object);
}

typedef struct {
  Py_buffer payload, observations, out;
} run_buffers;

static bool check_payload(const Program *self, const Py_buffer *payload) {
  int64_t expected = engine_layout(self->engine)->payload_bytes;
  if (payload->len < expected) {
    PyErr_Format(PyExc_ValueError, "payload: expected at least %lld bytes, got %zd",
                 (long long)expected, payload->len);
    return false;
  }
  if ((uintptr_t)payload->buf % 4 == 0) return true;
  PyErr_SetString(PyExc_ValueError,
                  "payload: expected it to start at a multiple of 4 bytes in memory");
  return false;
}

static bool overlap(const Py_buffer *a, const Py_buffer *b) {
  const char *x = a->buf, *y = b->buf;
  return x < y + b->len && y < x + a->len;
}

static bool check_run(const Program *self, const run_buffers *b) {
  if (!check_payload(self, &b->payload)) return false;
  if (!overlap(&b->out, &b->observations) && !overlap(&b->out, &b->payload))
    return true;
  PyErr_SetString(PyExc_ValueError,
                  "out: expected memory of its own, got part of another argument's");
  return false;
}

static bool get_run(const Program *self, PyObject *const *objects, run_buffers *b) {
  const layout *l = engine_layout(self->engine);
  if (!buffer_get(objects[0], "payload", ANY_BYTES, &b->payload)) return false;
  if (buffer_get_shaped(objects[1], "observations", FLOAT_MATRIX, -1,
                        l->value_widths[0], &b->observations)) {
    if (buffer_get_shaped(objects[2], "out", writable_buffer(FLOAT_MATRIX),
                          b->observations.shape[0], engine_output_width(self->engine),
                          &b->out)) {
      if (check_run(self, b)) return true;
      PyBuffer_Release(&b->out);
    }
    PyBuffer_Release(&b->observations);
  }
  PyBuffer_Release(&b->payload);
  return false;
}

/* Waits for the lock without the GIL, as its holder may be waiting for the GIL. */
static void take_lock(Program *self) {
  if (PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) return;
  Py_BEGIN_ALLOW_THREADS
  PyThread_acquire_lock(self->lock, WAIT_LOCK);
  Py_END_ALLOW_THREADS
}

static engine_status run_locked(Program *self, const run_buffers *b, int64_t *bad_row) {
  int64_t rows = b->observations.shape[0], work = engine_work(self->engine);
  engine_status status;
  take_lock(self);
  PyThreadState *state = NULL;
  if (rows > 0 && work >= WORK_WITHOUT_GIL / rows) state = PyEval_SaveThread();
  status = engine_run(self->engine, b->payload.buf, b->observations.buf, rows,
                      b->out.buf, bad_row);
  PyThread_release_lock(self->lock);
  if (state) PyEval_RestoreThread(state);
  return status;
}

static PyObject *program_run(PyObject *object, PyObject *const *arguments,
                             Py_ssize_t count) {
  Program *self = (Program *)object;
  run_buffers buffers;
  if (count != 3)
    return PyErr_Format(PyExc_TypeError,
                        "run: expected payload, observations and out, got %zd "
                        "arguments",
                        count);
  if (!get_run(self, arguments, &buffers)) return NULL;
  int64_t bad_row = 0;
  engine_status status = run_locked(self, &buffers, &bad_row);
  PyBuffer_Release(&buffers.out);
  PyBuffer_Release(&buffers.observations);
  PyBuffer_Release(&buffers.payload);
  if (status == ENGINE_NO_MEMORY) return PyErr_NoMemory();
  if (status == ENGINE_NOT_FINITE)
    return PyErr_Format(PyExc_ValueError,
                        "observations: expected finite numbers, got NaN or Inf in "
                        "row %lld",
                        (long long)bad_row);
  Py_RETURN_NONE;
}

static PyObject *get_input_width(PyObject *self, void *closure) {
  (void)closure;
  return PyLong_FromLong(engine_layout(((Program *)self)->engine)->value_widths[0]);
}

static PyObject *get_output_width(PyObject *self, void *closure) {
  (void)closure;
  return PyLong_FromLong(engine_output_width(((Program *)self)->engine));
}

static PyObject *get_payload_bytes(PyObject *self, void *closure) {
  (void)closure;
  return PyLong_FromLongLong(engine_layout(((Program *)self)->engine)->payload_bytes);
}

static PyObject *get_activation_bytes(PyObject *self, void *closure) {
  (void)closure;
  return PyLong_FromLongLong(engine_scratch_bytes(((Program *)self)->engine));
}

static PyObject *get_kernels(PyObject *self, void *closure) {
  (void)closure;
  return PyUnicode_FromString(engine_kernels(((Program *)self)->engine)->isa);
}

static PyGetSetDef program_properties[] = {
    {"input_width", get_input_width, NULL, "Numbers in an observation row.", NULL},
    {"output_width", get_output_width, NULL, "Numbers in an output row.", NULL},
    {"payload_bytes", get_payload_bytes, NULL, "The least size of a payload.", NULL},
    {"activation_bytes", get_activation_bytes, NULL,
     "Scratch memory held now; it grows with the largest batch, up to 128 rows.", NULL},
    {"isa", get_kernels, NULL, "The instruction set its kernels use.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PyDoc_STRVAR(run_doc,
             "run(payload, observations, out, /)\n--\n\n"
             "Computes out from observations in one call.\n\n"
             "Any number of threads may call. Large work runs without the GIL.\n\n"
             "Args:\n"
             "  payload: buffer of at least payload_bytes; fastest if it starts at a\n"
             "    multiple of 64 bytes in memory.\n"
             "  observations: float32 [M, input_width], C-contiguous.\n"
             "  out: float32 [M, output_width], C-contiguous, written.\n\n"
             "Raises:\n"
             "  ValueError: A buffer's type or shape differs, or an observation is\n"
             "    NaN or Inf.");

static PyMethodDef program_methods[] = {
    {"run", (PyCFunction)(void (*)(void))program_run, METH_FASTCALL, run_doc},
    {NULL, NULL, 0, NULL}};

PyDoc_STRVAR(program_doc,
             "Program(ops, tensors, value_widths, payload_bytes)\n--\n\n"
             "A checked list of operations over a payload.\n\n"
             "Args:\n"
             "  ops: OP_DTYPE [L]; the last one's output is the result.\n"
             "  tensors: int64 [T, 2], offset and size in bytes in the payload.\n"
             "  value_widths: int32 [V], numbers in a row of each value.\n"
             "  payload_bytes: the least size of a payload.\n\n"
             "Raises:\n"
             "  ValueError: The first thing that does not fit, in one sentence.");

PyTypeObject ProgramType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "acme_quant.kernels.Program",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = program_doc,
    .tp_new = program_new,
    .tp_dealloc = program_dealloc,
    .tp_methods = program_methods,
    .tp_getset = program_properties,
};
