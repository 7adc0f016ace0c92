/* What an exported policy computes with: plain C99, one number at a time.
 *
 * `c_text.py` takes from here, and from the engine's own text in acme_quant/kernels,
 * the functions that a policy uses. Whatever is a formula of one number (activations,
 * integer sums, float16) is the engine's text; here stand the loops around it, with
 * the sums of floats in the engine's order: eight of them, number k in the k % 8th.
 *
 * Nothing here may be contracted to a fused multiply-add or summed in another order.
 */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8 };

static inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float splat(float x) { return x; }

static inline float choose(int condition, float a, float b) {
  return condition ? a : b;
}

static inline float at_least(float x, float low) { return x < low ? low : x; }

static inline float at_most(float x, float high) { return x > high ? high : x; }

static inline float magnitude(float x) { return fabsf(x); }

static inline float sum_lanes(const float v[LANES]) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* 0 if a number is not finite. */
static int copy_finite(const float *x, int32_t width, float *y) {
  uint32_t largest = 0;
  for (int32_t i = 0; i < width; i++) {
    uint32_t bits = bits_of(x[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
    y[i] = x[i];
  }
  return largest < 0x7f800000;
}

/* Gives a row's scale, its codes with zeros up to a multiple of ROW, and their sum. */
static float quantize_row(const float *x, int32_t width, int32_t largest_code,
                          int16_t *codes, int32_t *sum) {
  uint32_t bits = 0;
  for (int32_t i = 0; i < width; i++) {
    uint32_t next = bits_of(x[i]) & 0x7fffffff;
    bits = next > bits ? next : bits;
  }
  memset(codes, 0, (size_t)padded(width) * sizeof *codes);
  *sum = 0;
  if (bits >= 0x7f800000) return NAN;
  float largest = float_of(bits), high = (float)largest_code;
  float inverse = high / largest;
  if (bits == 0 || inverse > FLT_MAX) return 1;
  for (int32_t i = 0; i < width; i++) {
    codes[i] = (int16_t)rounded(x[i] * inverse);
    *sum += codes[i];
  }
  return largest / high;
}

static float dot_float32(const float *w, const float *x, int32_t width) {
  float sums[LANES] = {0};
  for (int32_t k = 0; k < width; k += LANES)
    for (int32_t lane = 0; lane < LANES; lane++)
      sums[lane] = sums[lane] + w[k + lane] * x[k + lane];
  return sum_lanes(sums);
}

static float dot_float16(const uint16_t *w, const float *x, int32_t width) {
  float sums[LANES] = {0};
  for (int32_t k = 0; k < width; k += LANES)
    for (int32_t lane = 0; lane < LANES; lane++)
      sums[lane] = sums[lane] + half_to_float(w[k + lane]) * x[k + lane];
  return sum_lanes(sums);
}

/* int8 weights against floats, each weight as `(code - zero_point) * scale`. */
static float dot_widened_int8(const int8_t *w, float shift, float scale,
                              const float *x, int32_t width) {
  float sums[LANES] = {0};
  for (int32_t k = 0; k < width; k += LANES)
    for (int32_t lane = 0; lane < LANES; lane++)
      sums[lane] = sums[lane] + ((float)w[k + lane] - shift) * scale * x[k + lane];
  return sum_lanes(sums);
}

static float dot_widened_int4(const uint8_t *w, float shift, float scale,
                              const float *x, int32_t width) {
  float sums[LANES] = {0};
  for (int32_t k = 0; k < width; k++) {
    uint8_t both = w[k / ROW * (ROW / 2) + k % (ROW / 2)];
    int32_t code = (k % ROW < ROW / 2 ? both & 15 : both >> 4) - 8;
    sums[k % LANES] = sums[k % LANES] + ((float)code - shift) * scale * x[k];
  }
  return sum_lanes(sums);
}

/* A layer's numbers beside its weights, one for each output; null: it has none. */
typedef struct {
  const float *scale, *bias;
  const int32_t *zero_point;
} channels;

static float dequantized(int32_t sum, int32_t input_sum, float input_scale,
                         const channels *c, int32_t n) {
  uint32_t shift = c->zero_point ? (uint32_t)c->zero_point[n] * (uint32_t)input_sum : 0;
  float y = (float)(int32_t)((uint32_t)sum - shift) * (c->scale[n] * input_scale);
  return c->bias ? y + c->bias[n] : y;
}

static void product_int8(const int8_t *w, const channels *c, const float *x,
                         int32_t inputs, int32_t outputs, int32_t largest_code,
                         float *y) {
  int32_t input_sum, width = padded(inputs);
  float input_scale = quantize_row(x, inputs, largest_code, scratch_codes, &input_sum);
  for (int32_t n = 0; n < outputs; n++)
    y[n] = dequantized(dot_int8(w + n * width, scratch_codes, width), input_sum,
                       input_scale, c, n);
}

static void product_int4(const uint8_t *w, const channels *c, const float *x,
                         int32_t inputs, int32_t outputs, int32_t largest_code,
                         float *y) {
  int32_t input_sum, width = padded(inputs);
  float input_scale = quantize_row(x, inputs, largest_code, scratch_codes, &input_sum);
  for (int32_t n = 0; n < outputs; n++)
    y[n] = dequantized(dot_int4(w + n * width / 2, scratch_codes, width), input_sum,
                       input_scale, c, n);
}

static void product_widened_int8(const int8_t *w, const channels *c, const float *x,
                                 int32_t inputs, int32_t outputs, float *y) {
  int32_t width = padded(inputs);
  for (int32_t n = 0; n < outputs; n++) {
    float shift = c->zero_point ? (float)c->zero_point[n] : 0;
    y[n] = dot_widened_int8(w + n * width, shift, c->scale[n], x, width);
    if (c->bias) y[n] = y[n] + c->bias[n];
  }
}

static void product_widened_int4(const uint8_t *w, const channels *c, const float *x,
                                 int32_t inputs, int32_t outputs, float *y) {
  int32_t width = padded(inputs);
  for (int32_t n = 0; n < outputs; n++) {
    float shift = c->zero_point ? (float)c->zero_point[n] : 0;
    y[n] = dot_widened_int4(w + n * width / 2, shift, c->scale[n], x, width);
    if (c->bias) y[n] = y[n] + c->bias[n];
  }
}

static void product_float32(const float *w, const channels *c, const float *x,
                            int32_t inputs, int32_t outputs, float *y) {
  for (int32_t n = 0; n < outputs; n++) {
    y[n] = dot_float32(w + n * padded(inputs), x, padded(inputs));
    if (c->bias) y[n] = y[n] + c->bias[n];
  }
}

static void product_float16(const uint16_t *w, const channels *c, const float *x,
                            int32_t inputs, int32_t outputs, float *y) {
  for (int32_t n = 0; n < outputs; n++) {
    y[n] = dot_float16(w + n * padded(inputs), x, padded(inputs));
    if (c->bias) y[n] = y[n] + c->bias[n];
  }
}

/* Sizes of a convolution over an image [height, width, channels]. */
typedef struct {
  int32_t height, width, channels, kernel_height, kernel_width;
  int32_t stride_height, stride_width, pad_top, pad_left, out_height, out_width;
} op_record;

/* The part of an image under the kernel, with zeros up to a multiple of ROW. */
static const float *patch_at(const op_record *op, const float *image, int32_t position,
                             int32_t inputs) {
  gather_patch(op, image, position, scratch_patch);
  for (int32_t k = inputs; k < padded(inputs); k++) scratch_patch[k] = 0;
  return scratch_patch;
}

/* A null scale or bias leaves the part out; a step of 0 broadcasts one number. */
static void affine(const float *x, int32_t width, const float *scale,
                   int32_t scale_step, const float *bias, int32_t bias_step, float *y) {
  for (int32_t i = 0; i < width; i++) {
    float v = x[i];
    if (scale) v = v * scale[i * scale_step];
    if (bias) v = v + bias[i * bias_step];
    y[i] = v;
  }
}

/* min(max(x, low), high) */
static void clip(const float *x, int32_t width, const float *low, int32_t low_step,
                 const float *high, int32_t high_step, float *y) {
  for (int32_t i = 0; i < width; i++) {
    float v = x[i];
    if (low) v = at_least(v, low[i * low_step]);
    if (high) v = at_most(v, high[i * high_step]);
    y[i] = v;
  }
}

static float mean(const float *x, int32_t width) {
  float sums[LANES] = {0};
  for (int32_t i = 0; i < width; i++) sums[i % LANES] = sums[i % LANES] + x[i];
  return sum_lanes(sums) / (float)width;
}

/* Ba et al. 2016, "Layer Normalization". */
static void layer_norm(const float *x, int32_t width, float epsilon, const float *scale,
                       int32_t scale_step, const float *bias, int32_t bias_step,
                       float *y) {
  float centre = mean(x, width), squares[LANES] = {0};
  for (int32_t i = 0; i < width; i++) {
    y[i] = x[i] - centre;
    squares[i % LANES] = squares[i % LANES] + y[i] * y[i];
  }
  float variance = sum_lanes(squares) / (float)width;
  float inverse = 1 / sqrtf(variance + epsilon);
  for (int32_t i = 0; i < width; i++) y[i] = y[i] * inverse;
  affine(y, width, scale, scale_step, bias, bias_step, y);
}

static void add(const float *a, int32_t a_step, const float *b, int32_t b_step,
                int32_t width, float *y) {
  for (int32_t i = 0; i < width; i++) y[i] = a[i * a_step] + b[i * b_step];
}

static void subtract(const float *a, int32_t a_step, const float *b, int32_t b_step,
                     int32_t width, float *y) {
  for (int32_t i = 0; i < width; i++) y[i] = a[i * a_step] - b[i * b_step];
}

static void multiply(const float *a, int32_t a_step, const float *b, int32_t b_step,
                     int32_t width, float *y) {
  for (int32_t i = 0; i < width; i++) y[i] = a[i * a_step] * b[i * b_step];
}

static void maximum(const float *a, int32_t a_step, const float *b, int32_t b_step,
                    int32_t width, float *y) {
  for (int32_t i = 0; i < width; i++) y[i] = at_least(a[i * a_step], b[i * b_step]);
}

static void minimum(const float *a, int32_t a_step, const float *b, int32_t b_step,
                    int32_t width, float *y) {
  for (int32_t i = 0; i < width; i++) y[i] = at_most(a[i * a_step], b[i * b_step]);
}

static void softmax(const float *x, int32_t width, float *y) {
  float top = x[0], sums[LANES] = {0};
  for (int32_t i = 1; i < width; i++) top = x[i] > top ? x[i] : top;
  for (int32_t i = 0; i < width; i++) {
    y[i] = exp_one(x[i] - top);
    sums[i % LANES] = sums[i % LANES] + y[i];
  }
  float inverse = 1 / sum_lanes(sums);
  for (int32_t i = 0; i < width; i++) y[i] = y[i] * inverse;
}

/* The largest pixel under the window at one position, channel by channel; zeros where
 * the window holds none. */
static void pool_patch(const op_record *op, const float *image, int32_t position,
                       float *y) {
  int32_t top = position / op->out_width * op->stride_height - op->pad_top;
  int32_t left = position % op->out_width * op->stride_width - op->pad_left, found = 0;
  for (int32_t k = 0; k < op->channels; k++) y[k] = 0;
  for (int32_t i = top < 0 ? 0 : top; i < top + op->kernel_height && i < op->height; i++)
    for (int32_t j = left < 0 ? 0 : left;
         j < left + op->kernel_width && j < op->width; j++, found = 1) {
      const float *pixel = image + (i * op->width + j) * op->channels;
      maximum(found ? y : pixel, 1, pixel, 1, op->channels, y);
    }
}
