/* The Python type `Program` and the kernels in use. */
#ifndef ACME_QUANT_PROGRAM_H
#define ACME_QUANT_PROGRAM_H

#include "buffers.h"
#include "kernels.h"

extern PyTypeObject ProgramType;

/* The chosen kernels; null with a ValueError if ACME_QUANT_ISA names none. */
const kernel_table *kernels_in_use(void);

#endif
