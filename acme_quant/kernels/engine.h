/* A policy with the memory it runs in, and running it. */
#ifndef ACME_QUANT_ENGINE_H
#define ACME_QUANT_ENGINE_H

#include "layout.h"

/* Rows that run through all operations together: enough to use a weight often while
 * it is in a register, few enough for their values to stay in the cache. */
enum { BLOCK_ROWS = 128 };

enum { PATCH_ROWS = 64, WIDE_ROWS = 4, ALIGNMENT = 64 };

/* Rows of a value stand `stride` apart, with zeros beyond the width. */
typedef struct {
  float *rows;
  int64_t stride;
} value;

typedef struct {
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
} engine;

/* Rows a multiple of a kilobyte apart would share a few sets of the cache. */
static inline int64_t row_stride(int64_t width) {
  int64_t stride = padded(width);
  return stride % 256 ? stride : stride + ROW;
}

typedef enum { ENGINE_DONE, ENGINE_NOT_FINITE, ENGINE_NO_MEMORY } engine_status;

/* A copy of a checked layout; null if there is no memory. */
engine *engine_new(const layout *l, const kernel_table *kernels);
void engine_free(engine *e);

/* observations float32 [rows, W0] -> out float32 [rows, last width]. Uses the
 * engine's scratch memory: one caller at a time. On ENGINE_NOT_FINITE `*bad_row`
 * is the row. */
engine_status engine_run(engine *e, const uint8_t *payload, const float *observations,
                         int64_t rows, float *out, int64_t *bad_row);

const layout *engine_layout(const engine *e);
const kernel_table *engine_kernels(const engine *e);
int32_t engine_output_width(const engine *e);
int64_t engine_scratch_bytes(const engine *e);
/* Multiplications for one row. */
int64_t engine_work(const engine *e);

#endif
