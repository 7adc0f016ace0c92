/* The insides of an engine, for the operations that run in it. */
#ifndef ACME_QUANT_OPERATIONS_H
#define ACME_QUANT_OPERATIONS_H

#include "engine.h"

enum { PATCH_ROWS = 64, WIDE_ROWS = 4, ALIGNMENT = 64 };

/* Rows of a value stand `stride` apart, with zeros beyond the width. */
typedef struct {
  float *rows;
  int64_t stride;
} value;

struct engine {
  layout layout;
  const kernel_table *kernels;
  int64_t work;
  int64_t block_rows; /* the most rows that run together */
  /* Scratch memory for `capacity` rows, made at the first run that needs it. */
  int64_t capacity, scratch_bytes;
  void *allocation;
  value *values;
  float *patches;      /* [PATCH_ROWS, row_stride(K)] of conv2d */
  float *wide;         /* [WIDE_ROWS, Kp], weights widened to float32 */
  int16_t *codes;      /* [rows, row_stride(K)], quantized input rows */
  float *input_scales; /* [BLOCK_ROWS] */
  int32_t *input_sums; /* [BLOCK_ROWS] */
};

/* Rows a multiple of a kilobyte apart would share a few sets of the cache. */
static inline int64_t row_stride(int64_t width) {
  int64_t stride = padded(width);
  return stride % 256 ? stride : stride + ROW;
}

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
