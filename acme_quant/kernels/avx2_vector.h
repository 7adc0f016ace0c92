/* Products of one row of inputs: four weight rows at a time are streamed past it and
 * widened in registers. The memory is the limit. */
#ifndef ACME_QUANT_AVX2_VECTOR_H
#define ACME_QUANT_AVX2_VECTOR_H

#include "avx2_sums.h"
#include "kernels.h"

/* A row's next 32 codes against two registers of inputs. */
#define STREAMED_ROW(n) \
  "vpmovsxbw (%[w" #n "],%[k]), %[v]\n\t" \
  "vpmovsxbw 16(%[w" #n "],%[k]), %[t]\n\t" \
  "vpmaddwd %[v], %[low], %[v]\n\t" \
  "vpmaddwd %[t], %[high], %[t]\n\t" \
  "vpaddd %[v], %[a" #n "], %[a" #n "]\n\t" \
  "vpaddd %[t], %[a" #n "], %[a" #n "]\n\t"

/* The sums of four int8 rows, `ahead` being the four to come. In assembly: a load
 * widens as it goes, which leaves six instructions a row, and two requests fetch the
 * 128 bytes of a step. Compilers asked for each line twice, four requests a step, and
 * the loads were the limit: at 1024 and 2048 units the products took 37 and 163 us
 * where they now take 34 and 143. */
LANES_INLINE __m128i streamed_sums(const int8_t *const w[COLUMNS], const int8_t *ahead,
                                   const int16_t *x, int64_t inputs) {
  __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0, low, high, v, t;
  int64_t k = 0;
  __asm__ volatile(
      ".p2align 4\n1:\n\t"
      "prefetcht0 (%[ahead])\n\t"
      "prefetcht0 64(%[ahead])\n\t"
      "vmovdqu (%[x],%[k],2), %[low]\n\t"
      "vmovdqu 32(%[x],%[k],2), %[high]\n\t"
      STREAMED_ROW(0) STREAMED_ROW(1) STREAMED_ROW(2) STREAMED_ROW(3)
      "sub $-128, %[ahead]\n\t"
      "add $32, %[k]\n\t"
      "cmp %[inputs], %[k]\n\t"
      "jl 1b"
      : [a0] "+x"(a0), [a1] "+x"(a1), [a2] "+x"(a2), [a3] "+x"(a3), [low] "=&x"(low),
        [high] "=&x"(high), [v] "=&x"(v), [t] "=&x"(t), [k] "+&r"(k),
        [ahead] "+&r"(ahead)
      : [w0] "r"(w[0]), [w1] "r"(w[1]), [w2] "r"(w[2]), [w3] "r"(w[3]), [x] "r"(x),
        [inputs] "r"(inputs)
      : "memory", "cc");
  return four_sums(a0, a1, a2, a3);
}

static void vector_int8(const int8_t *w, const int16_t *x, product_shape s,
                        int32_t *sums) {
  for (int64_t n = 0; n < s.outputs; n += COLUMNS) {
    int64_t left = s.outputs - n;
    const int8_t *group = w + n * s.inputs, *row[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) row[c] = ROW_OF(group, c, left, s.inputs);
    __m128i four = streamed_sums(row, group + COLUMNS * s.inputs, x, s.inputs);
    put_sums(sums + n, left, true, four);
  }
}

static int32_t sum_codes(const int16_t *x, int64_t width) {
  __m256i none = _mm256_setzero_si256(), sum = none;
  for (int64_t k = 0; k < width; k += 16)
    sum = multiply_add(sum, load_codes(x + k), _mm256_set1_epi16(1));
  return _mm_extract_epi32(four_sums(sum, none, none, none), 0);
}

/* Sums code + 8, as stored, and takes 8 times the sum of the inputs off. */
static void vector_int4(const uint8_t *w, const int16_t *x, product_shape s,
                        int32_t *sums) {
  int64_t length = s.inputs / 2;
  __m256i low_half = _mm256_set1_epi16(15);
  __m128i shift = _mm_set1_epi32((int32_t)((uint32_t)sum_codes(x, s.inputs) * 8));
  for (int64_t n = 0; n < s.outputs; n += COLUMNS) {
    int64_t left = s.outputs - n;
    const uint8_t *row[COLUMNS];
    __m256i sum[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
      row[c] = ROW_OF(w + n * length, c, left, length);
      sum[c] = _mm256_setzero_si256();
    }
    for (int64_t k = 0; k < s.inputs; k += ROW) {
      __m256i low = load_codes(x + k), high = load_codes(x + k + 16);
      for (int c = 0; c < COLUMNS; c++) {
        const __m128i *both = (const __m128i *)(row[c] + k / 2);
        fetch_next_rows(both, length);
        __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(both));
        sum[c] = multiply_add(sum[c], _mm256_and_si256(wide, low_half), low);
        sum[c] = multiply_add(sum[c], _mm256_srli_epi16(wide, 4), high);
      }
    }
    __m128i four = four_sums(sum[0], sum[1], sum[2], sum[3]);
    put_sums(sums + n, left, true, _mm_sub_epi32(four, shift));
  }
}

#define VECTOR_FLOAT(name, element, get) \
  static void name(const element *w, const float *x, product_shape s, float *y) { \
    for (int64_t n = 0; n < s.outputs; n += COLUMNS) { \
      int64_t left = s.outputs - n; \
      const element *row[COLUMNS]; \
      __m256 even[COLUMNS], odd[COLUMNS]; \
      for (int c = 0; c < COLUMNS; c++) { \
        row[c] = ROW_OF(w + n * s.inputs, c, left, s.inputs); \
        even[c] = odd[c] = _mm256_setzero_ps(); \
      } \
      for (int64_t k = 0; k < s.inputs; k += 2 * LANES) { \
        __m256 first = _mm256_loadu_ps(x + k); \
        __m256 second = _mm256_loadu_ps(x + k + LANES); \
        for (int c = 0; c < COLUMNS; c++) { \
          even[c] = _mm256_fmadd_ps(get(row[c] + k), first, even[c]); \
          odd[c] = _mm256_fmadd_ps(get(row[c] + k + LANES), second, odd[c]); \
        } \
      } \
      for (int c = 0; c < COLUMNS; c++) even[c] = _mm256_add_ps(even[c], odd[c]); \
      put_float_sums(y + n, left, true, \
                     four_float_sums(even[0], even[1], even[2], even[3])); \
    } \
  }
VECTOR_FLOAT(vector_float32, float, get_float32)
VECTOR_FLOAT(vector_float16, uint16_t, get_float16)

#endif
