/* Runs a checked layout, one block of rows at a time. */
#include <stdlib.h>
#include <string.h>

#include "operations.h"

/* Sizes of the scratch memory of products. */
typedef struct {
  int64_t codes, patches, wide;
} product_sizes;

static void *copied(const void *source, int64_t count, size_t size) {
  void *copy = malloc((size_t)count * size + 1);
  if (copy && count) memcpy(copy, source, (size_t)count * size);
  return copy;
}

static int64_t layout_work(const layout *l) {
  int64_t work = 0;
  for (int64_t i = 0; i < l->op_count && work < INT64_MAX / 4; i++) {
    const op_record *op = &l->ops[i];
    work += op_is_product(op) ? op_positions(op) * op->outputs * padded(op->inputs)
                              : l->value_widths[op->output];
  }
  return work;
}

static int64_t row_floats(const layout *l) {
  int64_t total = 0;
  for (int64_t v = 0; v < l->value_count; v++) total += row_stride(l->value_widths[v]);
  return total;
}

/* Rows of which all values take a few megabytes, and the widest quantized input of a
 * linear operation half a cache of the second level. */
static int64_t fitting_rows(const layout *l) {
  const int64_t most_floats = 1 << 22, most_codes = 1 << 17;
  int64_t rows = most_floats / row_floats(l);
  for (int64_t i = 0; i < l->op_count; i++) {
    int64_t width = l->ops[i].kind == KIND_linear ? l->ops[i].inputs : 1;
    if (most_codes / width < rows) rows = most_codes / width;
  }
  return rows < 1 ? 1 : rows < BLOCK_ROWS ? rows : BLOCK_ROWS;
}

engine *engine_new(const layout *l, const kernel_table *kernels) {
  engine *e = calloc(1, sizeof *e);
  if (e == NULL) return NULL;
  e->layout = *l;
  e->kernels = kernels;
  e->work = layout_work(l);
  e->block_rows = fitting_rows(l);
  e->layout.ops = copied(l->ops, l->op_count, sizeof *l->ops);
  e->layout.tensors = copied(l->tensors, l->tensor_count, sizeof *l->tensors);
  e->layout.value_widths =
      copied(l->value_widths, l->value_count, sizeof *l->value_widths);
  e->values = calloc((size_t)l->value_count, sizeof *e->values);
  if (e->layout.ops && e->layout.tensors && e->layout.value_widths && e->values)
    return e;
  engine_free(e);
  return NULL;
}

void engine_free(engine *e) {
  if (e == NULL) return;
  free((void *)e->layout.ops);
  free((void *)e->layout.tensors);
  free((void *)e->layout.value_widths);
  free(e->values);
  free(e->allocation);
  free(e);
}

static void grow(int64_t *size, int64_t needed) {
  if (needed > *size) *size = needed;
}

static product_sizes sizes_of(const layout *l, int64_t rows) {
  product_sizes sizes = {0, 0, 0};
  for (int64_t i = 0; i < l->op_count; i++) {
    const op_record *op = &l->ops[i];
    if (!op_is_product(op)) continue;
    int64_t stride = row_stride(op->inputs);
    int64_t together = op->kind == KIND_conv2d ? PATCH_ROWS : rows;
    if (op->kind == KIND_conv2d) grow(&sizes.patches, PATCH_ROWS * stride);
    if (op->activation_max)
      grow(&sizes.codes, together * stride);
    else if (op_is_integer(op))
      grow(&sizes.wide, WIDE_ROWS * padded(op->inputs));
  }
  return sizes;
}

/* Hands out parts of the allocation; with a null base it only measures. */
typedef struct {
  uint8_t *base;
  size_t used;
} arena;

static void *take(arena *a, int64_t count, size_t size) {
  void *part = a->base ? a->base + a->used : NULL;
  size_t bytes = (size_t)count * size;
  a->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return part;
}

static void place(engine *e, arena *a, int64_t rows) {
  const layout *l = &e->layout;
  product_sizes sizes = sizes_of(l, rows);
  e->codes = take(a, sizes.codes, sizeof *e->codes);
  e->patches = take(a, sizes.patches, sizeof *e->patches);
  e->wide = take(a, sizes.wide, sizeof *e->wide);
  e->input_scales = take(a, BLOCK_ROWS, sizeof *e->input_scales);
  e->input_sums = take(a, BLOCK_ROWS, sizeof *e->input_sums);
  for (int64_t v = 0; v < l->value_count; v++) {
    e->values[v].stride = row_stride(l->value_widths[v]);
    e->values[v].rows = take(a, rows * e->values[v].stride, sizeof(float));
  }
}

/* Memory for blocks of `rows`; all zero, so that the padding of rows is. */
static bool reserve(engine *e, int64_t rows) {
  if (rows <= e->capacity) return true;
  arena a = {NULL, 0};
  place(e, &a, rows);
  void *allocation = calloc(a.used + ALIGNMENT, 1);
  free(e->allocation);
  e->allocation = allocation;
  e->capacity = allocation ? rows : 0;
  e->scratch_bytes = allocation ? (int64_t)a.used + ALIGNMENT : 0;
  if (allocation == NULL) return false;
  size_t past = (uintptr_t)allocation % ALIGNMENT;
  a = (arena){(uint8_t *)allocation + (ALIGNMENT - past), 0};
  place(e, &a, rows);
  return true;
}

static engine_status run_block(const run *r, const float *observations, float *out,
                               int64_t *bad_row) {
  const layout *l = &r->e->layout;
  value first = r->e->values[0];
  for (int64_t m = 0; m < r->rows; m++) {
    const float *row = observations + m * l->value_widths[0];
    if (r->k->copy_finite_row(row, l->value_widths[0], first.rows + m * first.stride))
      continue;
    *bad_row += m;
    return ENGINE_NOT_FINITE;
  }
  for (int64_t i = 0; i < l->op_count; i++) run_operation(r, &l->ops[i]);
  int64_t width = engine_output_width(r->e);
  value last = r->e->values[l->ops[l->op_count - 1].output];
  for (int64_t m = 0; m < r->rows; m++)
    memcpy(out + m * width, last.rows + m * last.stride, (size_t)width * sizeof *out);
  return ENGINE_DONE;
}

engine_status engine_run(engine *e, const uint8_t *payload, const float *observations,
                         int64_t rows, float *out, int64_t *bad_row) {
  int64_t most = rows < e->block_rows ? rows : e->block_rows;
  if (!reserve(e, most)) return ENGINE_NO_MEMORY;
  int64_t in_width = e->layout.value_widths[0], out_width = engine_output_width(e);
  for (int64_t start = 0; start < rows; start += most) {
    run r = {e, e->kernels, payload, rows - start < most ? rows - start : most};
    *bad_row = start;
    engine_status status = run_block(&r, observations + start * in_width,
                                     out + start * out_width, bad_row);
    if (status != ENGINE_DONE) return status;
  }
  return ENGINE_DONE;
}

const layout *engine_layout(const engine *e) { return &e->layout; }
const kernel_table *engine_kernels(const engine *e) { return e->kernels; }
int64_t engine_scratch_bytes(const engine *e) { return e->scratch_bytes; }
int64_t engine_work(const engine *e) { return e->work; }

int32_t engine_output_width(const engine *e) {
  const layout *l = &e->layout;
  return l->value_widths[l->ops[l->op_count - 1].output];
}
