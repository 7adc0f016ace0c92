/* The Python type `Program`. */
#ifndef ACME_QUANT_PROGRAM_H
#define ACME_QUANT_PROGRAM_H

#include "buffers.h"

extern PyTypeObject ProgramType;

#endif
