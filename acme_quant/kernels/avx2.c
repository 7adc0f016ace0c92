/* The kernels for x86-64 CPUs with AVX2, FMA and F16C.
 *
 * avx2_vector.h has the products of one row, avx2_rows.h those of several,
 * avx2_panels.h of many short and avx2_pairs.h of many long ones; all of them sum in
 * int32 what vpmaddwd makes of int16 codes.
 *
 * Codes of inputs are int16 whatever their range: eight-bit ones would allow
 * vpmaddubsw, twice as many products an instruction, but its weights must first take
 * the inputs' signs and its sums be widened, so that it comes to as many instructions
 * (four for 32 products). Measured on an EPYC at 3.2 GHz, int16 against int8: one row
 * at 512, 1024, 2048 units 4.8, 19.0, 80 us against 4.7, 18.8, 76 us; blocks of 64
 * rows 150 against 143 billion operations a second.
 */
#include "kernels.h"

#ifdef HAVE_AVX2
#include <immintrin.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,sse4.2"))), \
                             apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,sse4.2")
#endif

#define LANES_AVX2 1
#include "avx2_columns.h"
#include "avx2_crc32c.h"
#include "avx2_panels.h"
#include "avx2_pairs.h"
#include "avx2_rows.h"
#include "avx2_vector.h"
#include "codes.h"
#include "rows.h"

static void product_int8(const int8_t *w, const int16_t *x, product_shape s,
                         int32_t *y) {
  if (s.rows == 1)
    vector_int8(w, x, s, y);
  else if (panels_pay(s))
    panels_int8(w, x, s, y);
  else if (pairs_pay(s))
    pairs_int8(w, x, s, y);
  else
    rows_int8(w, x, s, y);
}

static void product_int4(const uint8_t *w, const int16_t *x, product_shape s,
                         int32_t *y) {
  if (s.rows == 1)
    vector_int4(w, x, s, y);
  else if (panels_pay(s))
    panels_int4(w, x, s, y);
  else
    rows_int4(w, x, s, y);
}

#define PRODUCT_OF_FLOATS(format, weight) \
  static void product_##format(const weight *w, const float *x, product_shape s, \
                               float *y) { \
    if (s.rows == 1) \
      vector_##format(w, x, s, y); \
    else \
      rows_##format(w, x, s, y); \
  }
PRODUCT_OF_FLOATS(float32, float)
PRODUCT_OF_FLOATS(float16, uint16_t)

const kernel_table kernels_avx2 = {.isa = "avx2", KERNELS(KERNEL_ENTRY)};

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
