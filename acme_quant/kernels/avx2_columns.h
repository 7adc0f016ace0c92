/* Weight matrices [K, N] -> [N, Kp] in registers. */
#ifndef ACME_QUANT_AVX2_COLUMNS_H
#define ACME_QUANT_AVX2_COLUMNS_H

#include "columns.h"

enum { TILE = 64 };

/* 32 codes of a row of [K, N], of which `left` are there; as bytes. */
LANES_INLINE __m256i column_bytes(const float *w, column_codes c, int64_t n,
                                  int64_t left) {
  __m256i codes[4];
  for (int part = 0; part < 4; part++) {
    int64_t start = n + part * LANES, rest = left - part * LANES;
    codes[part] = _mm256_setzero_si256();
    if (rest > 0) codes[part] = (__m256i)column_code(w, c, start, rest);
  }
  __m256i low = _mm256_packs_epi32(codes[0], codes[1]);
  __m256i high = _mm256_packs_epi32(codes[2], codes[3]);
  /* The packs work within halves: sort the groups of four bytes. */
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* 16 x 16 bytes: four times, the first half of the rows is interleaved with the
 * second. */
LANES_INLINE void transpose_bytes(const uint8_t *from, int64_t from_stride,
                                  int8_t *to, int64_t to_stride, int64_t to_rows) {
  __m128i rows[16], next[16];
  for (int i = 0; i < 16; i++)
    rows[i] = _mm_loadu_si128((const __m128i *)(from + i * from_stride));
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < 8; i++) {
      next[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
      next[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
    }
    memcpy(rows, next, sizeof rows);
  }
  for (int i = 0; i < 16 && i < to_rows; i++)
    _mm_storeu_si128((__m128i *)(to + i * to_stride), rows[i]);
}

/* A tile's codes, still as [k, n]; zeros beyond the matrix. */
static void quantize_tile(const float *w, int64_t inputs, int64_t outputs,
                          column_codes c, int64_t n0, int64_t k0,
                          uint8_t tile[TILE][TILE]) {
  for (int64_t k = 0; k < TILE; k++)
    for (int64_t n = 0; n < TILE; n += ROW) {
      __m256i bytes = _mm256_setzero_si256();
      if (k0 + k < inputs)
        bytes = column_bytes(w + (k0 + k) * outputs, c, n0 + n, outputs - n0 - n);
      _mm256_storeu_si256((__m256i *)&tile[k][n], bytes);
    }
}

static void quantize_columns(const float *w, int64_t inputs, int64_t outputs,
                             column_codes c, int8_t *codes) {
  int64_t length = padded(inputs);
  uint8_t tile[TILE][TILE];
  for (int64_t k0 = 0; k0 < length; k0 += TILE)
    for (int64_t n0 = 0; n0 < outputs; n0 += TILE) {
      quantize_tile(w, inputs, outputs, c, n0, k0, tile);
      for (int64_t n = n0; n < n0 + TILE && n < outputs; n += 16)
        for (int64_t k = k0; k < k0 + TILE && k < length; k += 16)
          transpose_bytes(&tile[k - k0][n - n0], TILE, codes + n * length + k, length,
                          outputs - n);
    }
}

/* 8 x 8 floats, in place. */
LANES_INLINE void transpose_lanes(__m256 v[LANES]) {
  __m256 pairs[LANES], fours[LANES];
  for (int i = 0; i < LANES; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  for (int i = 0; i < LANES; i += 4)
    for (int j = 0; j < 2; j++) {
      fours[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0x44);
      fours[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0xee);
    }
  for (int i = 0; i < 4; i++) {
    v[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
  }
}

LANES_INLINE void put_float32(float *to, __m256 v) { _mm256_storeu_ps(to, v); }

LANES_INLINE void put_float16(uint16_t *to, __m256 v) {
  _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#define TRANSPOSE(name, element, put) \
  static void name(const float *w, int64_t inputs, int64_t outputs, element *rows) { \
    int64_t length = padded(inputs); \
    for (int64_t k0 = 0; k0 < length; k0 += ROW) \
      for (int64_t n = 0; n < outputs; n += LANES) \
        for (int64_t k = k0; k < k0 + ROW; k += LANES) { \
          __m256 v[LANES]; \
          for (int i = 0; i < LANES; i++) \
            v[i] = k + i < inputs \
                       ? (__m256)load_lanes(w + (k + i) * outputs + n, outputs - n) \
                       : _mm256_setzero_ps(); \
          transpose_lanes(v); \
          for (int64_t i = 0; i < LANES && n + i < outputs; i++) \
            put(rows + (n + i) * length + k, v[i]); \
        } \
  }
TRANSPOSE(transpose_float32, float, put_float32)
TRANSPOSE(transpose_float16, uint16_t, put_float16)

#endif
