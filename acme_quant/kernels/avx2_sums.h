/* What the products of avx2.c are put together from. */
#ifndef ACME_QUANT_AVX2_SUMS_H
#define ACME_QUANT_AVX2_SUMS_H

#include "kernels.h"
#include "lanes.h"

/* Weight rows that go together, and bytes of a line of the cache. */
enum { COLUMNS = 4, LINE = 64 };

/* Weight row c of a product with `left` rows left; the last one stands in for those
 * beyond it, and its sums are not stored. */
#define ROW_OF(w, c, left, length) ((w) + ((c) < (left) ? (c) : (left) - 1) * (length))

/* Asks for the same place in the four weight rows to come: a row is too short for the
 * CPU's own prefetching to be of much use. Beyond the payload it does nothing. */
LANES_INLINE void fetch_next_rows(const void *place, int64_t row_bytes) {
  uintptr_t next = (uintptr_t)place + (uintptr_t)(COLUMNS * row_bytes);
  _mm_prefetch((const char *)next, _MM_HINT_T0);
}

LANES_INLINE __m256i load_codes(const void *p) { return _mm256_loadu_si256(p); }

/* 16 codes of a row from k on, a multiple of 16. */
LANES_INLINE __m256i codes_int8(const int8_t *row, int64_t k) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(row + k)));
}

LANES_INLINE __m256i codes_int4(const uint8_t *row, int64_t k) {
  const __m128i *block = (const __m128i *)(row + k / ROW * (ROW / 2));
  __m256i both = _mm256_cvtepu8_epi16(_mm_loadu_si128(block));
  __m256i half = k % ROW ? _mm256_srli_epi16(both, 4)
                         : _mm256_and_si256(both, _mm256_set1_epi16(15));
  return _mm256_sub_epi16(half, _mm256_set1_epi16(8));
}

LANES_INLINE __m256i multiply_add(__m256i sum, __m256i a, __m256i b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

/* a0+a2, b0+b2, a1+a3, b1+b3 of each half; two of them give four_sums with fewer
 * instructions inside the CPU than its horizontal sums take. */
LANES_INLINE __m256i low_high_sums(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

/* The sums of four vectors' lanes. */
LANES_INLINE __m128i four_sums(__m256i a, __m256i b, __m256i c, __m256i d) {
  __m256i ab = low_high_sums(a, b), cd = low_high_sums(c, d);
  __m256i low = _mm256_unpacklo_epi64(ab, cd), high = _mm256_unpackhi_epi64(ab, cd);
  __m256i all = _mm256_add_epi32(low, high);
  return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

LANES_INLINE __m128 four_float_sums(__m256 a, __m256 b, __m256 c, __m256 d) {
  __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}

/* Stores up to four sums, on top of those of earlier chunks unless these are the
 * first. */
LANES_INLINE void put_sums(int32_t *y, int64_t left, bool first, __m128i sums) {
  int32_t part[COLUMNS];
  if (left >= COLUMNS) {
    if (!first) sums = _mm_add_epi32(sums, _mm_loadu_si128((__m128i *)y));
    _mm_storeu_si128((__m128i *)y, sums);
    return;
  }
  _mm_storeu_si128((__m128i *)part, sums);
  for (int64_t c = 0; c < left; c++)
    y[c] = first ? part[c] : (int32_t)((uint32_t)y[c] + (uint32_t)part[c]);
}

LANES_INLINE void put_float_sums(float *y, int64_t left, bool first, __m128 sums) {
  float part[COLUMNS];
  if (left >= COLUMNS) {
    if (!first) sums = _mm_add_ps(sums, _mm_loadu_ps(y));
    _mm_storeu_ps(y, sums);
    return;
  }
  _mm_storeu_ps(part, sums);
  for (int64_t c = 0; c < left; c++) y[c] = first ? part[c] : y[c] + part[c];
}

LANES_INLINE __m256 get_float32(const float *w) { return _mm256_loadu_ps(w); }

LANES_INLINE __m256 get_float16(const uint16_t *w) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w));
}

#endif
