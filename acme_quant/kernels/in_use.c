/* The choice of kernels: by ACME_QUANT_ISA, by hand, or the best. */
#include "in_use.h"

#include <stdlib.h>

static const kernel_table *in_use;

PyObject *isa_names(void) {
  const kernel_table *tables[MAX_ISAS];
  int count = kernels_supported(tables);
  PyObject *names = PyTuple_New(count);
  for (int i = 0; names && i < count; i++)
    PyTuple_SET_ITEM(names, i, PyUnicode_FromString(tables[i]->isa));
  return names;
}

static const kernel_table *find_isa(const char *what, const char *name) {
  const kernel_table *found = kernels_find(name);
  if (found) return found;
  PyObject *names = isa_names();
  if (names == NULL) return NULL;
  PyErr_Format(PyExc_ValueError, "%s: expected one of %R, got '%s'", what, names, name);
  Py_DECREF(names);
  return NULL;
}

const kernel_table *kernels_in_use(void) {
  if (in_use == NULL) in_use = find_isa("ACME_QUANT_ISA", getenv("ACME_QUANT_ISA"));
  return in_use;
}

PyObject *get_isa(PyObject *module, PyObject *nothing) {
  (void)module, (void)nothing;
  const kernel_table *k = kernels_in_use();
  return k ? PyUnicode_FromString(k->isa) : NULL;
}

PyObject *select_isa(PyObject *module, PyObject *name) {
  (void)module;
  const char *text = PyUnicode_AsUTF8(name);
  const kernel_table *k = text ? find_isa("select_isa", text) : NULL;
  if (k == NULL) return NULL;
  in_use = k;
  Py_RETURN_NONE;
}
