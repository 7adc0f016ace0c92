/* The kernels in use, and Python's choice of them. */
#ifndef ACME_QUANT_IN_USE_H
#define ACME_QUANT_IN_USE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernels.h"

/* The chosen kernels; null with a ValueError if ACME_QUANT_ISA names none. */
const kernel_table *kernels_in_use(void);

/* The names this CPU can run, a new tuple. */
PyObject *isa_names(void);

/* `isa()` and `select_isa(name)` of the module. */
PyObject *get_isa(PyObject *module, PyObject *nothing);
PyObject *select_isa(PyObject *module, PyObject *name);

#endif
