/* One operation of an engine. */
#ifndef ACME_QUANT_OPERATIONS_H
#define ACME_QUANT_OPERATIONS_H

#include "engine.h"

/* One run's view of the engine. */
typedef struct {
  engine *e;
  const kernel_table *k;
  const uint8_t *payload;
  int64_t rows;
} run;

/* Computes the output's rows of one operation, with its activation. */
void run_operation(const run *r, const op_record *op);

#endif
