/* Integer products of many short rows.
 *
 * With short rows the sums of lanes, at the end of each block of avx2_rows.h, cost as
 * much as the products. Here a lane is a column: 16 weight rows are packed to a panel
 * [K / 2, 16, 2], two codes of each beside each other, and two codes of an input row
 * are broadcast to meet them.
 */
#ifndef ACME_QUANT_AVX2_PANELS_H
#define ACME_QUANT_AVX2_PANELS_H

#include "avx2_columns.h"
#include "avx2_sums.h"

enum { PANEL = 16, PANEL_INPUTS = 480, PANEL_ROWS = 4 };

/* Packing takes as long as some ten rows' products; measured. */
LANES_INLINE bool panels_pay(product_shape s) {
  return s.inputs <= PANEL_INPUTS && s.rows >= 8 && 8 * s.rows >= s.inputs;
}

/* 16 rows [Kp] -> [Kp / 2, 16, 2]; a pair of codes moves like a float. */
#define PACK_PANEL(format, weight) \
  static void panel_of_##format(const weight *const rows[PANEL], int64_t inputs, \
                                int16_t *panel) { \
    for (int64_t k = 0; k < inputs; k += 16) \
      for (int half = 0; half < PANEL; half += LANES) { \
        __m256 v[LANES]; \
        for (int i = 0; i < LANES; i++) \
          v[i] = _mm256_castsi256_ps(codes_##format(rows[half + i], k)); \
        transpose_lanes(v); \
        for (int i = 0; i < LANES; i++) \
          _mm256_store_si256((__m256i *)(panel + (k + 2 * i) * PANEL + 2 * half), \
                             _mm256_castps_si256(v[i])); \
      } \
  }
PACK_PANEL(int8, int8_t)
PACK_PANEL(int4, uint8_t)

#define PANEL_ROW(n, at) \
  "vpbroadcastd " at "(%[x" #n "],%[k]), %[b]\n\t" \
  "vpmaddwd %[v], %[b], %[t]\n\t" \
  "vpmaddwd %[w], %[b], %[b]\n\t" \
  "vpaddd %[t], %[low" #n "], %[low" #n "]\n\t" \
  "vpaddd %[b], %[high" #n "], %[high" #n "]\n\t"
#define PANEL_STEP(x_at, first, second) \
  "vmovdqa " first "(%[panel]), %[v]\n\t" \
  "vmovdqa " second "(%[panel]), %[w]\n\t" \
  PANEL_ROW(0, x_at) PANEL_ROW(1, x_at) PANEL_ROW(2, x_at) PANEL_ROW(3, x_at)

/* Four rows of inputs against a panel; in assembly as the loop of avx2_rows.h is. */
LANES_INLINE void panel_sums(const int16_t *panel, const int16_t *const x[PANEL_ROWS],
                             int64_t inputs, __m256i sums[PANEL_ROWS][2]) {
  __m256i low0 = _mm256_setzero_si256(), low1 = low0, low2 = low0, low3 = low0;
  __m256i high0 = low0, high1 = low0, high2 = low0, high3 = low0, v, w, b, t;
  int64_t k = 0, bytes = inputs * (int64_t)sizeof(int16_t); /* a multiple of 64 */
  __asm__ volatile(
      ".p2align 4\n1:\n\t" PANEL_STEP("", "", "32") PANEL_STEP("4", "64", "96")
      "add $8, %[k]\n\t"
      "sub $-128, %[panel]\n\t"
      "cmp %[bytes], %[k]\n\t"
      "jl 1b"
      : [low0] "+x"(low0), [low1] "+x"(low1), [low2] "+x"(low2), [low3] "+x"(low3),
        [high0] "+x"(high0), [high1] "+x"(high1), [high2] "+x"(high2),
        [high3] "+x"(high3), [v] "=&x"(v), [w] "=&x"(w), [b] "=&x"(b), [t] "=&x"(t),
        [k] "+r"(k), [panel] "+r"(panel)
      : [x0] "r"(x[0]), [x1] "r"(x[1]), [x2] "r"(x[2]), [x3] "r"(x[3]),
        [bytes] "r"(bytes)
      : "memory", "cc");
  sums[0][0] = low0, sums[0][1] = high0, sums[1][0] = low1, sums[1][1] = high1;
  sums[2][0] = low2, sums[2][1] = high2, sums[3][0] = low3, sums[3][1] = high3;
}

LANES_INLINE void put_panel_row(int32_t *y, int64_t left, const __m256i sums[2]) {
  if (left >= PANEL) {
    _mm256_storeu_si256((__m256i *)y, sums[0]);
    _mm256_storeu_si256((__m256i *)(y + LANES), sums[1]);
  } else {
    memcpy(y, sums, (size_t)left * sizeof *y);
  }
}

/* Four rows go together that are a quarter of all rows apart, so that each quarter is
 * read as one long stream. */
static void panel_product(const int16_t *panel, const int16_t *x, product_shape s,
                          int64_t left, int32_t *y) {
  int64_t quarter = (s.rows + PANEL_ROWS - 1) / PANEL_ROWS;
  for (int64_t m = 0; m < quarter; m++) {
    const int16_t *rows[PANEL_ROWS];
    __m256i sums[PANEL_ROWS][2];
    for (int r = 0; r < PANEL_ROWS; r++) {
      int64_t row = m + r * quarter;
      rows[r] = x + (row < s.rows ? row : s.rows - 1) * s.x_stride;
    }
    panel_sums(panel, rows, s.inputs, sums);
    for (int r = 0; r < PANEL_ROWS && m + r * quarter < s.rows; r++)
      put_panel_row(y + (m + r * quarter) * s.y_stride, left, sums[r]);
  }
}

#define PRODUCT_OF_PANELS(format, weight, row_length) \
  static void panels_##format(const weight *w, const int16_t *x, product_shape s, \
                              int32_t *y) { \
    _Alignas(32) int16_t panel[PANEL * PANEL_INPUTS]; \
    const weight *rows[PANEL]; \
    for (int64_t n = 0; n < s.outputs; n += PANEL) { \
      int64_t left = s.outputs - n; \
      for (int c = 0; c < PANEL; c++) \
        rows[c] = ROW_OF(w + n * (row_length), c, left, row_length); \
      panel_of_##format(rows, s.inputs, panel); \
      panel_product(panel, x, s, left, y + n); \
    } \
  }
PRODUCT_OF_PANELS(int8, int8_t, s.inputs)
PRODUCT_OF_PANELS(int4, uint8_t, s.inputs / 2)

#endif
