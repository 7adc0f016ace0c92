/* Columns of a weight matrix [K, N]: their extremes, and the code of a weight. Here a
 * float becomes int8, whatever the instruction set. */
#ifndef ACME_QUANT_COLUMNS_H
#define ACME_QUANT_COLUMNS_H

#include "rows.h"

static bool column_range(const float *w, int64_t inputs, int64_t outputs, float *low,
                         float *high) {
  i8 bad = {0};
  for (int64_t k = 0; k < inputs; k++) {
    const float *row = w + k * outputs;
    EACH_LANES(n, outputs) {
      int64_t left = outputs - n;
      f8 v = load_lanes(row + n, left);
      bad |= (i8)magnitude(v) >= INFINITY_BITS;
      store_lanes(low + n, left, k ? at_most(load_lanes(low + n, left), v) : v);
      store_lanes(high + n, left, k ? at_least(load_lanes(high + n, left), v) : v);
    }
  }
  int32_t any = 0;
  for (int lane = 0; lane < LANES; lane++) any |= bad[lane];
  return any == 0;
}

/* Codes of eight neighbours in a row of [K, N], that is, of eight output columns. */
LANES_INLINE i8 column_code(const float *w, column_codes c, int64_t n, int64_t left) {
  f8 v = load_lanes(w + n, left) * load_lanes(c.inverse_scale + n, left);
  /* The comparisons take a NaN to the lower bound. */
  f8 bound = splat(2097152.0f);
  v = choose(v > -bound, v, -bound);
  i8 code = rounded(at_most(v, bound));
  if (c.zero_point) {
    i8 zero_point = {0};
    memcpy(&zero_point, c.zero_point + n,
           (size_t)(left < LANES ? left : LANES) * sizeof(int32_t));
    code += zero_point;
  }
  i8 low = (i8){0} + c.code_min, high = (i8){0} + c.code_max;
  code = (i8)choose(code < low, (f8)low, (f8)code);
  return (i8)choose(code > high, (f8)high, (f8)code);
}

#endif
