/* Eight floats at a time, and the functions of them that policies need.
 *
 * The text is compiled once for each instruction set. As it fixes every operation
 * and its order, and as IEEE 754 fixes each result, the bits are the same in all.
 */
#ifndef ACME_QUANT_LANES_H
#define ACME_QUANT_LANES_H

#include <stdint.h>
#include <string.h>

#ifdef LANES_AVX2
#include <immintrin.h>
#endif

#define LANES_INLINE static inline __attribute__((always_inline))
/* Nothing here is called across files, so that its calling convention is ours. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum { LANES = 8 };
typedef float f8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef uint32_t u8 __attribute__((vector_size(32)));

LANES_INLINE f8 splat(float x) { return (f8){x, x, x, x, x, x, x, x}; }

LANES_INLINE f8 load(const float *p) {
  f8 v;
  memcpy(&v, p, sizeof v);
  return v;
}

LANES_INLINE void store(float *p, f8 v) { memcpy(p, &v, sizeof v); }

/* The first `count` numbers; the other lanes are 0 and stay untouched. */
LANES_INLINE f8 load_part(const float *p, int64_t count) {
#ifdef LANES_AVX2
  i8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
  i8 mask = (i8)_mm256_set1_epi32((int32_t)count) > lane;
  return (f8)_mm256_maskload_ps(p, (__m256i)mask);
#else
  f8 v = splat(0);
  for (int64_t i = 0; i < count; i++) v[i] = p[i];
  return v;
#endif
}

LANES_INLINE void store_part(float *p, int64_t count, f8 v) {
#ifdef LANES_AVX2
  i8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
  i8 mask = (i8)_mm256_set1_epi32((int32_t)count) > lane;
  _mm256_maskstore_ps(p, (__m256i)mask, (__m256)v);
#else
  for (int64_t i = 0; i < count; i++) p[i] = v[i];
#endif
}

/* mask ? a : b, a mask being all ones or all zeros as comparisons give it. */
LANES_INLINE f8 choose(i8 mask, f8 a, f8 b) {
#ifdef LANES_AVX2
  return (f8)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
#else
  return (f8)((mask & (i8)a) | (~mask & (i8)b));
#endif
}

/* x where x is not a number. */
LANES_INLINE f8 at_least(f8 x, f8 low) {
#ifdef LANES_AVX2
  return (f8)_mm256_max_ps((__m256)low, (__m256)x);
#else
  return choose(x < low, low, x);
#endif
}

LANES_INLINE f8 at_most(f8 x, f8 high) {
#ifdef LANES_AVX2
  return (f8)_mm256_min_ps((__m256)high, (__m256)x);
#else
  return choose(x > high, high, x);
#endif
}

LANES_INLINE f8 magnitude(f8 x) { return (f8)((i8)x & 0x7fffffff); }

/* ((v0+v4)+(v2+v6)) + ((v1+v5)+(v3+v7)) */
LANES_INLINE float sum_lanes(f8 v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* 1.5 * 2**23: adding it to |x| < 2**22 rounds x to an integer, half to even, and
 * leaves that integer in the low bits of the sum. */
#define ROUNDER 12582912.0f
LANES_INLINE i8 rounded(f8 x) { return (i8)(x + ROUNDER) - (i8)splat(ROUNDER); }

/* exp(x) = (1 + fraction) * power with |fraction| < 0.42 and power = 2**n, after
 * Cephes' expf (Moshier): n = round(x / log 2), r = x - n log 2 in two parts, and a
 * polynomial for exp(r) - 1, in pairs of terms as a long chain of sums would wait for
 * itself. x must lie in [-87, 88] or be NaN. */
typedef struct {
  f8 fraction, power;
} split_exp;

LANES_INLINE split_exp exp_parts(f8 x) {
  f8 shifted = x * 1.44269504088896341f + ROUNDER;
  f8 n = shifted - ROUNDER;
  f8 r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  f8 square = r * r;
  f8 fifth = r * 1.9875691500e-4f + 1.3981999507e-3f;
  f8 third = r * 8.3334519073e-3f + 4.1665795894e-2f;
  f8 first = r * 1.6666665459e-1f + 5.0000001201e-1f;
  f8 p = (fifth * square + third) * square + first;
  u8 power = ((u8)shifted << 23) + (127u << 23);
  return (split_exp){p * square + r, (f8)power};
}

LANES_INLINE f8 within_exp_range(f8 x) {
  return at_most(at_least(x, splat(-87)), splat(88));
}

LANES_INLINE f8 exp_lanes(f8 x) {
  split_exp e = exp_parts(within_exp_range(x));
  return e.fraction * e.power + e.power;
}

/* exp(x) - 1 without its cancellation near 0; x within the range of exp_parts. */
LANES_INLINE f8 expm1_lanes(f8 x) {
  split_exp e = exp_parts(x);
  return e.fraction * e.power + (e.power - 1);
}

/* A rational function of the ninth degree, its coefficients fitted by weighted least
 * squares to a relative error of 2.3e-8 up to 9.1, from where on tanh is 1 in float32;
 * the operations, in pairs of terms as above, round it to six units in the last place.
 * The last step holds it within 1. */
LANES_INLINE f8 tanh_lanes(f8 x) {
  f8 bounded = at_most(at_least(x, splat(-9.1f)), splat(9.1f));
  f8 square = bounded * bounded;
  f8 fourth = square * square;
  f8 p = fourth * 1.317748755e-8f + (square * 2.048115857e-5f + 3.487809328e-3f);
  f8 q = fourth * 7.704031191e-7f + (square * 3.272917529e-4f + 2.584738098e-2f);
  p = p * fourth + (square * 1.337447315e-1f + 1);
  q = q * fourth + (square * 4.670778811e-1f + 1);
  f8 y = (p * bounded) / q;
  return at_most(at_least(y, splat(-1)), splat(1));
}

LANES_INLINE f8 expm1_of_negative(f8 x) {
  return expm1_lanes(at_least(at_most(x, splat(0)), splat(-87)));
}

LANES_INLINE f8 relu_lanes(f8 x) { return at_least(x, splat(0)); }

LANES_INLINE f8 elu_lanes(f8 x) {
  return choose(x > 0, x, expm1_of_negative(x));
}

/* Klambauer et al. 2017, "Self-Normalizing Neural Networks". */
LANES_INLINE f8 selu_lanes(f8 x) {
  f8 negative = expm1_of_negative(x) * 1.6732632423543772f;
  return choose(x > 0, x, negative) * 1.0507009873554805f;
}

LANES_INLINE f8 sigmoid_lanes(f8 x) { return 1 / (1 + exp_lanes(-x)); }

/* log(1 + t) for t in [0, 1]: 2 atanh(z), z = t / (2 + t) <= 1/3, by its series; the
 * first term left out is z**16 / 17 < 2e-9 of the sum. */
LANES_INLINE f8 log1p_lanes(f8 t) {
  f8 z = t / (t + 2);
  f8 square = z * z;
  f8 p = splat(1.0f / 15);
  for (int k = 13; k >= 1; k -= 2) p = p * square + 1.0f / (float)k;
  return p * (z + z);
}

/* Eigen's rational function, odd over even, good to six units up to 4, from where erf
 * is 1 in float32. */
LANES_INLINE f8 erf_lanes(f8 x) {
  f8 bounded = at_most(at_least(x, splat(-4)), splat(4));
  f8 square = bounded * bounded;
  f8 p = square * -2.72614225801306e-10f + 2.77068142495902e-08f;
  p = p * square + -2.10102402082508e-06f;
  p = p * square + -5.69250639462346e-05f;
  p = p * square + -7.34990630326855e-04f;
  p = p * square + -2.95459980854025e-03f;
  p = p * square + -1.60960333262415e-02f;
  f8 q = square * -1.45660718464996e-05f + -2.13374055278905e-04f;
  q = q * square + -1.68282697438203e-03f;
  q = q * square + -7.37332916720468e-03f;
  q = q * square + -1.42647390514189e-02f;
  f8 y = (p * bounded) / q;
  return at_most(at_least(y, splat(-1)), splat(1));
}

/* log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)) */
LANES_INLINE f8 softplus_lanes(f8 x) {
  return relu_lanes(x) + log1p_lanes(exp_lanes(-magnitude(x)));
}

#endif
