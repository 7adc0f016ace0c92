/* The kernels in plain C: what they compute, for any CPU. */
#include <string.h>

#include "columns.h"
#include "half.h"
#include "kernels.h"
#include "portable.h"
#include "rows.h"

/* Sums are unsigned, as only those wrap: codes of a damaged payload (-128) could
 * leave the range that the engine has checked. */
static int32_t dot_int8(const int8_t *w, const int16_t *x, int64_t width) {
  uint32_t sum = 0;
  for (int64_t k = 0; k < width; k++) sum += (uint32_t)(w[k] * x[k]);
  return (int32_t)sum;
}

static int32_t dot_int4(const uint8_t *w, const int16_t *x, int64_t width) {
  uint32_t sum = 0;
  for (; width > 0; width -= ROW, w += ROW / 2, x += ROW)
    for (int j = 0; j < ROW / 2; j++) {
      sum += (uint32_t)(((w[j] & 15) - 8) * x[j]);
      sum += (uint32_t)(((w[j] >> 4) - 8) * x[j + ROW / 2]);
    }
  return (int32_t)sum;
}

static float dot_float32(const float *w, const float *x, int64_t width) {
  f8 sum = splat(0);
  for (int64_t k = 0; k < width; k += LANES) sum = sum + load(w + k) * load(x + k);
  return sum_lanes(sum);
}

static float dot_float16(const uint16_t *w, const float *x, int64_t width) {
  f8 sum = splat(0);
  for (int64_t k = 0; k < width; k += LANES) {
    float wide[LANES];
    for (int lane = 0; lane < LANES; lane++) wide[lane] = half_to_float(w[k + lane]);
    sum = sum + load(wide) * load(x + k);
  }
  return sum_lanes(sum);
}

#define PRODUCT(name, dot, weight, input, output, row_length) \
  static void name(const weight *w, const input *x, product_shape s, output *y) { \
    for (int64_t n = 0; n < s.outputs; n++) \
      for (int64_t m = 0; m < s.rows; m++) \
        y[m * s.y_stride + n] = \
            dot(w + n * (row_length), x + m * s.x_stride, s.inputs); \
  }
PRODUCT(product_int8, dot_int8, int8_t, int16_t, int32_t, s.inputs)
PRODUCT(product_int4, dot_int4, uint8_t, int16_t, int32_t, s.inputs / 2)
PRODUCT(product_float32, dot_float32, float, float, float, s.inputs)
PRODUCT(product_float16, dot_float16, uint16_t, float, float, s.inputs)

/* [K, N] -> [N, Kp] in tiles of 16 rows and columns, which stay in the cache. */
enum { TILE = 16 };
#define EACH_TILE(n, k, inputs, outputs) \
  for (int64_t n = 0; n < (outputs); n += TILE) \
    for (int64_t k = 0; k < padded(inputs); k += TILE)

#define TRANSPOSE(name, element, convert) \
  static void name(const float *w, int64_t inputs, int64_t outputs, element *rows) { \
    EACH_TILE(n0, k0, inputs, outputs) \
    for (int64_t n = n0; n < n0 + TILE && n < outputs; n++) \
      for (int64_t k = k0; k < k0 + TILE; k++) \
        rows[n * padded(inputs) + k] = \
            k < inputs ? convert(w[k * outputs + n]) : (element)0; \
  }
#define SAME(x) (x)
TRANSPOSE(transpose_float32, float, SAME)
TRANSPOSE(transpose_float16, uint16_t, float_to_half)

static void quantize_columns(const float *w, int64_t inputs, int64_t outputs,
                             column_codes c, int8_t *codes) {
  EACH_TILE(n0, k0, inputs, outputs)
  for (int64_t n = n0; n < n0 + TILE && n < outputs; n += LANES)
    for (int64_t k = k0; k < k0 + TILE; k++) {
      int64_t left = outputs - n < LANES ? outputs - n : LANES;
      i8 group = {0};
      if (k < inputs) group = column_code(w + k * outputs, c, n, left);
      for (int64_t lane = 0; lane < left; lane++)
        codes[(n + lane) * padded(inputs) + k] = (int8_t)group[lane];
    }
}

/* CRC-32C eight bytes a step (Kounavis and Berry 2005, "slicing-by-8"). */
static uint32_t crc_table[8][256];

void portable_prepare(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? CRC32C : 0);
    crc_table[0][byte] = crc;
  }
  for (int slice = 1; slice < 8; slice++)
    for (int byte = 0; byte < 256; byte++) {
      uint32_t before = crc_table[slice - 1][byte];
      crc_table[slice][byte] = before >> 8 ^ crc_table[0][before & 255];
    }
}

static uint32_t crc32c(uint32_t crc, const uint8_t *bytes, int64_t length) {
  crc = ~crc;
  for (; length >= 8; length -= 8, bytes += 8) {
    uint32_t next = 0;
    for (int i = 0; i < 8; i++) {
      uint8_t byte = i < 4 ? (uint8_t)(crc >> 8 * i) ^ bytes[i] : bytes[i];
      next ^= crc_table[7 - i][byte];
    }
    crc = next;
  }
  for (; length > 0; length--) crc = crc >> 8 ^ crc_table[0][(crc ^ *bytes++) & 255];
  return ~crc;
}

#include "codes.h"

const kernel_table kernels_portable = {.isa = "portable", KERNELS(KERNEL_ENTRY)};
