/* The kernels over rows of codes that need no text of their own in avx2.c: they are
 * off the hot path, or the compiler does as well. */
#ifndef ACME_QUANT_CODES_H
#define ACME_QUANT_CODES_H

#include "kernels.h"

static void widen_int8(const int8_t *w, int64_t width, int32_t zero_point, float scale,
                       float *wide) {
  float shift = (float)zero_point;
  for (int64_t k = 0; k < width; k++) wide[k] = ((float)w[k] - shift) * scale;
}

static void widen_int4(const uint8_t *w, int64_t width, int32_t zero_point, float scale,
                       float *wide) {
  float shift = (float)zero_point;
  for (int64_t block = 0; block < width; block += ROW)
    for (int j = 0; j < ROW / 2; j++) {
      uint8_t both = w[block / 2 + j];
      wide[block + j] = ((float)((both & 15) - 8) - shift) * scale;
      wide[block + j + ROW / 2] = ((float)((both >> 4) - 8) - shift) * scale;
    }
}

static void pack_int4(const int8_t *codes, int64_t count, uint8_t *packed) {
  for (int64_t block = 0; block < count; block += ROW)
    for (int j = 0; j < ROW / 2; j++) {
      uint8_t low = (uint8_t)(codes[block + j] + 8) & 15;
      uint8_t high = (uint8_t)(codes[block + j + ROW / 2] + 8) & 15;
      packed[block / 2 + j] = (uint8_t)(low | high << 4);
    }
}

#endif
