/* What each kind of operation does with its kernels. */
#include "operations.h"

#include <string.h>

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

/* A clip's record holds its lower bound as scale, its upper one as bias. */
static row_bounds bounds(const run *r, const op_record *op) {
  row_parameters p = parameters(r, op);
  return (row_bounds){p.scale, p.bias, p.scale_step, p.bias_step};
}

/* Sums are made in the place of the outputs that they become. */
static void integer_product(const run *r, const op_record *op, product_shape s,
                            float *y) {
  const engine *e = r->e;
  int32_t *sums = (int32_t *)y;
  if (op->format == FORMAT_int8)
    r->k->product_int8(tensor(r, op->weight), e->codes, s, sums);
  else
    r->k->product_int4(tensor(r, op->weight), e->codes, s, sums);
  dequantization d = {.scale = tensor(r, op->scale),
                      .zero_point = tensor(r, op->zero_point),
                      .bias = tensor(r, op->bias)};
  for (int64_t m = 0; m < s.rows; m++) {
    d.input_scale = e->input_scales[m];
    d.input_sum = e->input_sums[m];
    float *row = y + m * s.y_stride;
    r->k->dequantize_row(sums + m * s.y_stride, s.outputs, d, row);
    r->k->activate_row(row, s.outputs, op->activation);
  }
}

/* Integer weights against float rows: a few weight rows are widened at a time. */
static void widened_product(const run *r, const op_record *op, const float *x,
                            product_shape s, float *y) {
  float *wide = r->e->wide;
  const uint8_t *weight = tensor(r, op->weight);
  const float *scale = tensor(r, op->scale);
  const int32_t *zero_point = tensor(r, op->zero_point);
  product_shape part = s;
  for (int64_t first = 0; first < s.outputs; first += WIDE_ROWS) {
    part.outputs = s.outputs - first < WIDE_ROWS ? s.outputs - first : WIDE_ROWS;
    for (int64_t i = 0; i < part.outputs; i++) {
      int64_t n = first + i;
      int32_t shift = zero_point ? zero_point[n] : 0;
      float *row = wide + i * s.inputs;
      if (op->format == FORMAT_int8)
        r->k->widen_int8((const int8_t *)weight + n * s.inputs, s.inputs, shift,
                         scale[n], row);
      else
        r->k->widen_int4(weight + n * s.inputs / 2, s.inputs, shift, scale[n], row);
    }
    r->k->product_float32(wide, x, part, y + first);
  }
}

static void float_product(const run *r, const op_record *op, const float *x,
                          product_shape s, float *y) {
  if (op->format == FORMAT_float32)
    r->k->product_float32(tensor(r, op->weight), x, s, y);
  else if (op->format == FORMAT_float16)
    r->k->product_float16(tensor(r, op->weight), x, s, y);
  else
    widened_product(r, op, x, s, y);
  row_parameters shift = {.bias = tensor(r, op->bias), .bias_step = 1};
  for (int64_t m = 0; m < s.rows; m++) {
    float *row = y + m * s.y_stride;
    r->k->affine_row(row, s.outputs, shift, row);
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
  product_shape s = {.rows = rows,
                     .outputs = op->outputs,
                     .inputs = padded(op->inputs),
                     .x_stride = x_stride,
                     .y_stride = y_stride};
  if (op->activation_max == 0) {
    float_product(r, op, x, s, y);
    return;
  }
  s.x_stride = row_stride(op->inputs);
  quantize_rows(r, op, x, x_stride, rows, s.x_stride);
  integer_product(r, op, s, y);
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

/* The largest pixel under the window at one position, channel by channel; zeros where
 * the window holds none. */
static void pool_patch(const run *r, const op_record *op, const float *image,
                       int64_t position, float *y) {
  int64_t top = position / op->out_width * op->stride_height - op->pad_top;
  int64_t left = position % op->out_width * op->stride_width - op->pad_left;
  bool found = false;
  memset(y, 0, (size_t)op->channels * sizeof *y);
  for (int64_t i = top < 0 ? 0 : top; i < top + op->kernel_height && i < op->height; i++)
    for (int64_t j = left < 0 ? 0 : left;
         j < left + op->kernel_width && j < op->width; j++) {
      const float *pixel = image + (i * op->width + j) * op->channels;
      r->k->maximum_rows(found ? y : pixel, 1, pixel, 1, op->channels, y);
      found = true;
    }
}

static int64_t max_pool(const run *r, const op_record *op, const float *image,
                        float *y) {
  int64_t positions = op_positions(op);
  for (int64_t p = 0; p < positions; p++)
    pool_patch(r, op, image, p, y + p * op->channels);
  return positions * op->channels;
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
  else if (op->kind == KIND_multiply)
    r->k->multiply_rows(a, a_step, b, b_step, width, y);
  else if (op->kind == KIND_maximum)
    r->k->maximum_rows(a, a_step, b, b_step, width, y);
  else
    r->k->minimum_rows(a, a_step, b, b_step, width, y);
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
    case KIND_clip: r->k->clip_row(x, width, bounds(r, op), y); return width;
    case KIND_softmax: r->k->softmax_row(x, width, y); return width;
    case KIND_max_pool: return max_pool(r, op, x, y);
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

void run_operation(const run *r, const op_record *op) {
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
