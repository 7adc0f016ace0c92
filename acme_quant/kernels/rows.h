/* The kernels over rows of floats, compiled once for each instruction set (see
 * lanes.h). A row's last, partial group of lanes is loaded and stored in part, so
 * that nothing is written beyond the width. */
#ifndef ACME_QUANT_ROWS_H
#define ACME_QUANT_ROWS_H

#include "kernels.h"
#include "lanes.h"

LANES_INLINE f8 load_lanes(const float *p, int64_t left) {
  return left >= LANES ? load(p) : load_part(p, left);
}

LANES_INLINE void store_lanes(float *p, int64_t left, f8 v) {
  if (left >= LANES)
    store(p, v);
  else
    store_part(p, left, v);
}

/* Lanes i.. of a parameter, of which a step of 0 broadcasts the first. */
LANES_INLINE f8 load_step(const float *p, int64_t step, int64_t i, int64_t left) {
  return step ? load_lanes(p + i, left) : splat(*p);
}

#define EACH_LANES(i, width) for (int64_t i = 0; i < (width); i += LANES)

LANES_INLINE i8 larger(i8 a, i8 b) {
#ifdef LANES_AVX2
  return (i8)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
  return (i8)choose(a > b, (f8)a, (f8)b);
#endif
}

/* The largest magnitude as its bit pattern: patterns of Inf and, above it, of NaN
 * are larger than those of all finite numbers. */
LANES_INLINE uint32_t largest_magnitude(const float *x, int64_t width) {
  i8 largest = {0};
  int64_t i = 0;
  for (; i + LANES <= width; i += LANES)
    largest = larger((i8)magnitude(load(x + i)), largest);
  if (i < width) largest = larger((i8)magnitude(load_part(x + i, width - i)), largest);
  uint32_t best = 0;
  for (int lane = 0; lane < LANES; lane++)
    if ((uint32_t)largest[lane] > best) best = (uint32_t)largest[lane];
  return best;
}

LANES_INLINE void store_codes(int16_t *codes, i8 first, i8 second) {
#ifdef LANES_AVX2
  __m256i packed = _mm256_packs_epi32((__m256i)first, (__m256i)second);
  _mm256_storeu_si256((__m256i *)codes, _mm256_permute4x64_epi64(packed, 0xd8));
#else
  for (int lane = 0; lane < LANES; lane++) {
    codes[lane] = (int16_t)first[lane];
    codes[LANES + lane] = (int16_t)second[lane];
  }
#endif
}

LANES_INLINE f8 load_or_zero(const float *p, int64_t left) {
  return left > 0 ? load_lanes(p, left) : splat(0);
}

/* Codes of 16 numbers; gives the sums of two each. */
LANES_INLINE i8 quantize_lanes(f8 first, f8 second, float inverse, int16_t *codes) {
  i8 a = rounded(first * inverse), b = rounded(second * inverse);
  store_codes(codes, a, b);
  return a + b;
}

enum { INFINITY_BITS = 0x7f800000 };

static float zero_row(int16_t *codes, int64_t width, int32_t *sum, float scale) {
  memset(codes, 0, (size_t)padded(width) * sizeof *codes);
  *sum = 0;
  return scale;
}

static float quantize_row(const float *x, int64_t width, int32_t largest_code,
                          int16_t *codes, int32_t *sum) {
  uint32_t bits = largest_magnitude(x, width);
  float largest, high = (float)largest_code;
  memcpy(&largest, &bits, sizeof largest);
  /* A row that has overflowed must not look like a good one. */
  if (bits >= INFINITY_BITS) return zero_row(codes, width, sum, __builtin_nanf(""));
  float inverse = high / largest;
  if (bits == 0 || inverse > FLT_MAX) return zero_row(codes, width, sum, 1);
  i8 total = {0};
  /* No clip is needed: x * inverse is within high * (1 + 2**-22), which rounds to
   * high. */
  int64_t i = 0;
  for (; i + 2 * LANES <= width; i += 2 * LANES)
    total += quantize_lanes(load(x + i), load(x + i + LANES), inverse, codes + i);
  for (; i < padded(width); i += 2 * LANES)
    total += quantize_lanes(load_or_zero(x + i, width - i),
                            load_or_zero(x + i + LANES, width - i - LANES), inverse,
                            codes + i);
  *sum = 0;
  for (int lane = 0; lane < LANES; lane++) *sum += total[lane];
  return largest / high;
}

LANES_INLINE f8 to_floats(const int32_t *sums) {
#ifdef LANES_AVX2
  return (f8)_mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)sums));
#else
  f8 v;
  for (int lane = 0; lane < LANES; lane++) v[lane] = (float)sums[lane];
  return v;
#endif
}

/* Integers wrap as two's complement: a payload of any content is defined. */
LANES_INLINE void shifted_sums(const int32_t *sums, int64_t count,
                               const int32_t *zero_point, int32_t input_sum,
                               int32_t shifted[LANES]) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t shift = (uint32_t)zero_point[i] * (uint32_t)input_sum;
    shifted[i] = (int32_t)((uint32_t)sums[i] - shift);
  }
}

LANES_INLINE f8 dequantized(const int32_t *sums, f8 scale, float input_scale) {
  return to_floats(sums) * (scale * input_scale);
}

static void dequantize_row(const int32_t *sums, int64_t width, dequantization d,
                           float *y) {
  int64_t i = 0;
  /* Nothing is asked at each group of the usual kind. */
  if (d.bias && !d.zero_point)
    for (; i + LANES <= width; i += LANES)
      store(y + i, dequantized(sums + i, load(d.scale + i), d.input_scale) +
                       load(d.bias + i));
  for (; i < width; i += LANES) {
    int64_t left = width - i < LANES ? width - i : LANES;
    int32_t group[LANES] = {0};
    if (d.zero_point)
      shifted_sums(sums + i, left, d.zero_point + i, d.input_sum, group);
    else
      memcpy(group, sums + i, (size_t)left * sizeof *group);
    f8 v = dequantized(group, load_lanes(d.scale + i, left), d.input_scale);
    if (d.bias) v = v + load_lanes(d.bias + i, left);
    store_lanes(y + i, left, v);
  }
}

static bool copy_finite_row(const float *x, int64_t width, float *y) {
  i8 bad = {0};
  EACH_LANES(i, width) {
    f8 v = load_lanes(x + i, width - i);
    bad |= (i8)magnitude(v) >= INFINITY_BITS;
    store_lanes(y + i, width - i, v);
  }
  int32_t any = 0;
  for (int lane = 0; lane < LANES; lane++) any |= bad[lane];
  return any == 0;
}

#define ACTIVATE_CASE(name) \
  case ACTIVATION_##name: \
    EACH_LANES(i, width) \
    store_lanes(y + i, width - i, name##_lanes(load_lanes(y + i, width - i))); \
    break;

LANES_INLINE f8 identity_lanes(f8 x) { return x; }

static void activate_row(float *y, int64_t width, int32_t activation) {
  if (activation == ACTIVATION_identity) return;
  switch (activation) { NAMED_ACTIVATIONS(ACTIVATE_CASE) }
}

static float mean_row(const float *x, int64_t width) {
  f8 total = splat(0);
  EACH_LANES(i, width) total = total + load_lanes(x + i, width - i);
  return sum_lanes(total) / (float)width;
}

static void affine_row(const float *x, int64_t width, row_parameters p, float *y) {
  EACH_LANES(i, width) {
    int64_t left = width - i;
    f8 v = load_lanes(x + i, left);
    if (p.scale) v = v * load_step(p.scale, p.scale_step, i, left);
    if (p.bias) v = v + load_step(p.bias, p.bias_step, i, left);
    store_lanes(y + i, left, v);
  }
}

/* Ba et al. 2016, "Layer Normalization". */
static void layer_norm_row(const float *x, int64_t width, float epsilon,
                           row_parameters p, float *y) {
  float mean = mean_row(x, width);
  f8 squares = splat(0);
  EACH_LANES(i, width) {
    int64_t left = width - i;
    store_lanes(y + i, left, load_lanes(x + i, left) - mean);
    f8 centred = load_lanes(y + i, left);
    squares = squares + centred * centred;
  }
  float variance = sum_lanes(squares) / (float)width;
  float inverse = 1 / __builtin_sqrtf(variance + epsilon);
  affine_row(y, width, (row_parameters){.scale = &inverse}, y);
  if (p.scale || p.bias) affine_row(y, width, p, y);
}

static void clip_row(const float *x, int64_t width, row_bounds b, float *y) {
  EACH_LANES(i, width) {
    int64_t left = width - i;
    f8 v = load_lanes(x + i, left);
    if (b.low) v = at_least(v, load_step(b.low, b.low_step, i, left));
    if (b.high) v = at_most(v, load_step(b.high, b.high_step, i, left));
    store_lanes(y + i, left, v);
  }
}

#define COMBINE_ROWS(name, operator) \
  static void name(const float *a, int64_t a_step, const float *b, int64_t b_step, \
                   int64_t width, float *y) { \
    EACH_LANES(i, width) { \
      int64_t left = width - i; \
      f8 v = load_step(a, a_step, i, left) operator load_step(b, b_step, i, left); \
      store_lanes(y + i, left, v); \
    } \
  }
COMBINE_ROWS(add_rows, +)
COMBINE_ROWS(subtract_rows, -)
COMBINE_ROWS(multiply_rows, *)

#define CHOOSE_ROWS(name, of_two) \
  static void name(const float *a, int64_t a_step, const float *b, int64_t b_step, \
                   int64_t width, float *y) { \
    EACH_LANES(i, width) { \
      int64_t left = width - i; \
      f8 v = of_two(load_step(a, a_step, i, left), load_step(b, b_step, i, left)); \
      store_lanes(y + i, left, v); \
    } \
  }
CHOOSE_ROWS(maximum_rows, at_least)
CHOOSE_ROWS(minimum_rows, at_most)

static void softmax_row(const float *x, int64_t width, float *y) {
  float top = x[0];
  for (int64_t i = 1; i < width; i++)
    if (x[i] > top) top = x[i];
  f8 total = splat(0);
  EACH_LANES(i, width) {
    int64_t left = width - i;
    store_lanes(y + i, left, exp_lanes(load_lanes(x + i, left) - top));
    total = total + load_lanes(y + i, left);
  }
  float inverse = 1 / sum_lanes(total);
  affine_row(y, width, (row_parameters){.scale = &inverse}, y);
}

static float argmax_row(const float *x, int64_t width) {
  int64_t best = 0;
  for (int64_t i = 1; i < width; i++)
    if (x[i] > x[best]) best = i;
  return (float)best;
}

#endif
