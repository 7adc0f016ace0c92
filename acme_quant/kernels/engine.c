/* Runs a checked layout, one block of rows at a time. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

/* Sums [rows, outputs] are made and turned into outputs in parts that stay in the
 * cache, their rows apart by a line of it more than their length. */
enum { SUMS = 32768, SUMS_GAP = 16 };
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
  int32_t *sums;       /* [rows, part of N + SUMS_GAP] */
  float *float_sums;   /* the same memory */
};

/* Rows a multiple of a kilobyte apart would share a few sets of the cache. */
static int64_t row_stride(int64_t width) {
  int64_t stride = padded(width);
  return stride % 256 ? stride : stride + ROW;
}

/* Sizes of the scratch memory of products. */
typedef struct {
  int64_t codes, patches, wide, sums;
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
  const int64_t most_floats = 1 << 22, most_codes = 1 << 16;
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
  product_sizes sizes = {0, 0, 0, 0};
  for (int64_t i = 0; i < l->op_count; i++) {
    const op_record *op = &l->ops[i];
    if (!op_is_product(op)) continue;
    int64_t stride = row_stride(op->inputs);
    int64_t together = op->kind == KIND_conv2d ? PATCH_ROWS : rows;
    int64_t sums = together * op->outputs;
    grow(&sizes.sums, (sums < SUMS ? sums : SUMS) + SUMS_GAP * BLOCK_ROWS);
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
  e->sums = take(a, sizes.sums, sizeof *e->sums);
  e->float_sums = (float *)e->sums;
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

/* One run's view of the engine. */
typedef struct {
  engine *e;
  const kernel_table *k;
  const uint8_t *payload;
  int64_t rows;
} run;

static const void *tensor(const run *r, int32_t id) {
  return id < 0 ? NULL : r->payload + r->e->layout.tensors[id].offset;
}

static row_parameters parameters(const run *r, const op_record *op) {
  const tensor_record *t = r->e->layout.tensors;
  row_parameters p = {.scale = tensor(r, op->scale), .bias = tensor(r, op->bias)};
  p.scale_step = op->scale >= 0 && t[op->scale].bytes > 4;
  p.bias_step = op->bias >= 0 && t[op->bias].bytes > 4;
  return p;
}

/* Outputs start .. start + s.outputs of a product. */
static void integer_part(const run *r, const op_record *op, int64_t start,
                         product_shape s, float *y, int64_t y_stride) {
  const engine *e = r->e;
  const uint8_t *weight = tensor(r, op->weight);
  if (op->format == FORMAT_int8)
    r->k->product_int8((const int8_t *)weight + start * s.inputs, e->codes, s, e->sums);
  else
    r->k->product_int4(weight + start * s.inputs / 2, e->codes, s, e->sums);
  const int32_t *zero_point = tensor(r, op->zero_point);
  const float *bias = tensor(r, op->bias);
  dequantization d = {.scale = (const float *)tensor(r, op->scale) + start,
                      .zero_point = zero_point ? zero_point + start : NULL,
                      .bias = bias ? bias + start : NULL};
  for (int64_t m = 0; m < s.rows; m++) {
    d.input_scale = e->input_scales[m];
    d.input_sum = e->input_sums[m];
    float *row = y + m * y_stride + start;
    r->k->dequantize_row(e->sums + m * s.y_stride, s.outputs, d, row);
    r->k->activate_row(row, s.outputs, op->activation);
  }
}

/* Integer weights against float rows: a few weight rows are widened at a time. */
static void widened_part(const run *r, const op_record *op, int64_t start,
                         const float *x, product_shape s, float *sums) {
  float *wide = r->e->wide;
  const uint8_t *weight = tensor(r, op->weight);
  const float *scale = tensor(r, op->scale);
  const int32_t *zero_point = tensor(r, op->zero_point);
  product_shape part = s;
  for (int64_t first = 0; first < s.outputs; first += WIDE_ROWS) {
    part.outputs = s.outputs - first < WIDE_ROWS ? s.outputs - first : WIDE_ROWS;
    for (int64_t i = 0; i < part.outputs; i++) {
      int64_t n = start + first + i;
      int32_t shift = zero_point ? zero_point[n] : 0;
      float *row = wide + i * s.inputs;
      if (op->format == FORMAT_int8)
        r->k->widen_int8((const int8_t *)weight + n * s.inputs, s.inputs, shift,
                         scale[n], row);
      else
        r->k->widen_int4(weight + n * s.inputs / 2, s.inputs, shift, scale[n], row);
    }
    r->k->product_float32(wide, x, part, sums + first);
  }
}

static void float_part(const run *r, const op_record *op, int64_t start, const float *x,
                       product_shape s, float *y, int64_t y_stride) {
  float *sums = r->e->float_sums;
  const uint8_t *weight = tensor(r, op->weight);
  if (op->format == FORMAT_float32)
    r->k->product_float32((const float *)weight + start * s.inputs, x, s, sums);
  else if (op->format == FORMAT_float16)
    r->k->product_float16((const uint16_t *)weight + start * s.inputs, x, s, sums);
  else
    widened_part(r, op, start, x, s, sums);
  const float *bias = tensor(r, op->bias);
  row_parameters shift = {.bias = bias ? bias + start : NULL, .bias_step = 1};
  for (int64_t m = 0; m < s.rows; m++) {
    float *row = y + m * y_stride + start;
    r->k->affine_row(sums + m * s.y_stride, s.outputs, shift, row);
    r->k->activate_row(row, s.outputs, op->activation);
  }
}

static void quantize_rows(const run *r, const op_record *op, const float *x,
                          int64_t x_stride, int64_t rows, int64_t stride) {
  const engine *e = r->e;
  for (int64_t m = 0; m < rows; m++)
    e->input_scales[m] =
        r->k->quantize_row(x + m * x_stride, op->inputs, op->activation_max,
                           e->codes + m * stride, &e->input_sums[m]);
}

/* x [rows, K] -> y [rows, N], with the activation; at most BLOCK_ROWS rows. */
static void product(const run *r, const op_record *op, const float *x,
                    int64_t x_stride, int64_t rows, float *y, int64_t y_stride) {
  bool quantized = op->activation_max > 0;
  product_shape s = {.rows = rows, .inputs = padded(op->inputs), .x_stride = x_stride};
  if (quantized) {
    s.x_stride = row_stride(op->inputs);
    quantize_rows(r, op, x, x_stride, rows, s.x_stride);
  }
  int64_t most = SUMS / rows / ROW * ROW;
  for (int64_t start = 0; start < op->outputs; start += most) {
    s.outputs = op->outputs - start < most ? op->outputs - start : most;
    s.y_stride = s.outputs + SUMS_GAP;
    if (quantized)
      integer_part(r, op, start, s, y, y_stride);
    else
      float_part(r, op, start, x, s, y, y_stride);
  }
}

/* The part of an image under the kernel at one position, zeros outside. */
static void gather_patch(const op_record *op, const float *image, int64_t position,
                         float *patch) {
  int64_t top = position / op->out_width * op->stride_height - op->pad_top;
  int64_t left = position % op->out_width * op->stride_width - op->pad_left;
  int64_t line = (int64_t)op->kernel_width * op->channels;
  int64_t first = left < 0 ? -left : 0, end = op->width - left;
  if (end > op->kernel_width) end = op->kernel_width;
  for (int64_t i = 0; i < op->kernel_height; i++, patch += line) {
    int64_t y = top + i;
    if (y < 0 || y >= op->height || first >= end) {
      memset(patch, 0, (size_t)line * sizeof *patch);
      continue;
    }
    const float *source = image + (y * op->width + left + first) * op->channels;
    memset(patch, 0, (size_t)(first * op->channels) * sizeof *patch);
    memcpy(patch + first * op->channels, source,
           (size_t)((end - first) * op->channels) * sizeof *patch);
    memset(patch + end * op->channels, 0,
           (size_t)((op->kernel_width - end) * op->channels) * sizeof *patch);
  }
}

static void convolve(const run *r, const op_record *op, const float *image, float *y) {
  int64_t positions = op_positions(op), stride = row_stride(op->inputs);
  float *patches = r->e->patches;
  for (int64_t start = 0; start < positions; start += PATCH_ROWS) {
    int64_t count = positions - start < PATCH_ROWS ? positions - start : PATCH_ROWS;
    for (int64_t p = 0; p < count; p++) {
      float *patch = patches + p * stride;
      gather_patch(op, image, start + p, patch);
      memset(patch + op->inputs, 0, (size_t)(stride - op->inputs) * sizeof *patch);
    }
    product(r, op, patches, stride, count, y + start * op->outputs, op->outputs);
  }
}

static void pair(const run *r, const op_record *op, const float *a, const float *b,
                 float *y) {
  const int32_t *widths = r->e->layout.value_widths;
  int64_t a_step = widths[op->input] > 1, b_step = widths[op->other] > 1;
  int64_t width = widths[op->output];
  if (op->kind == KIND_add)
    r->k->add_rows(a, a_step, b, b_step, width, y);
  else if (op->kind == KIND_subtract)
    r->k->subtract_rows(a, a_step, b, b_step, width, y);
  else
    r->k->multiply_rows(a, a_step, b, b_step, width, y);
}

/* The kinds that work row by row; gives the number of columns written. */
static int64_t row_operation(const run *r, const op_record *op, const float *x,
                             const float *other, float *y) {
  int64_t width = r->e->layout.value_widths[op->input];
  switch (op->kind) {
    case KIND_conv2d: convolve(r, op, x, y); return 0; /* activated already */
    case KIND_layer_norm:
      r->k->layer_norm_row(x, width, op->epsilon, parameters(r, op), y);
      return width;
    case KIND_affine: r->k->affine_row(x, width, parameters(r, op), y); return width;
    case KIND_clip: r->k->clip_row(x, width, parameters(r, op), y); return width;
    case KIND_mean: *y = r->k->mean_row(x, width); return 1;
    case KIND_argmax: *y = r->k->argmax_row(x, width); return 1;
    case KIND_unary: memcpy(y, x, (size_t)width * sizeof *y); return width;
    case KIND_copy:
      memcpy(y, x + op->input_offset, (size_t)op->inputs * sizeof *y);
      return op->inputs;
    default:
      pair(r, op, x, other, y);
      return r->e->layout.value_widths[op->output];
  }
}

static void operation(const run *r, const op_record *op) {
  value x = r->e->values[op->input], y = r->e->values[op->output];
  value other = op_is_pair(op) ? r->e->values[op->other] : x;
  if (op->kind == KIND_linear) {
    product(r, op, x.rows, x.stride, r->rows, y.rows, y.stride);
    return;
  }
  for (int64_t m = 0; m < r->rows; m++) {
    float *row = y.rows + m * y.stride + op->output_offset;
    int64_t written = row_operation(r, op, x.rows + m * x.stride,
                                    other.rows + m * other.stride, row);
    r->k->activate_row(row, written, op->activation);
  }
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
  for (int64_t i = 0; i < l->op_count; i++) operation(r, &l->ops[i]);
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
    engine_status status =
        run_block(&r, observations + start * in_width, out + start * out_width, bad_row);
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
