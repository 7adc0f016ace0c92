/* Products of several rows of inputs: four weight rows are widened once, a chunk of K
 * at a time, into a buffer that stays in L1, and every two rows of inputs make a 2 x 4
 * block of sums in registers from it. */
#ifndef ACME_QUANT_AVX2_ROWS_H
#define ACME_QUANT_AVX2_ROWS_H

#include "avx2_sums.h"
#include "kernels.h"

/* A gap spreads the four widened rows evenly over the sets of the cache, a quarter of
 * a way (4 KB) apart. With rows 32 bytes off a multiple of 4 KB, products of 8 and 32
 * rows at 2048 inputs ran at 54..64 and 72 billion a second; so at 66 and 75. */
enum { CHUNK_BYTES = 2048, CODES_CHUNK = 2048 };
enum { WIDE_LENGTH = CODES_CHUNK + 544 };

/* Widens a chunk of a weight row of `length` bytes. */
LANES_INLINE void widen_chunk_int4(const uint8_t *w, int64_t width, int64_t length,
                                   int16_t *wide) {
  for (int64_t k = 0; k < width; k += ROW) {
    fetch_next_rows(w + k / 2, length);
    _mm256_store_si256((__m256i *)(wide + k), codes_int4(w, k));
    _mm256_store_si256((__m256i *)(wide + k + 16), codes_int4(w, k + 16));
  }
}

LANES_INLINE void widen_chunk_float16(const uint16_t *w, int64_t width, int64_t length,
                                      float *wide) {
  (void)length;
  for (int64_t k = 0; k < width; k += LANES)
    _mm256_store_ps(wide + k, get_float16(w + k));
}

/* Sums of two rows, or of one, against four weight rows over one chunk.
 *
 * The loop of two rows is written in assembly: it starts as many instructions as the
 * CPU can take, so that the copies and spills which compilers add to it cost a third
 * of its speed. Per 32 bytes of each row: two loads of inputs, four of weights, eight
 * products and sums. Meanwhile it asks for as many bytes from `ahead` on as a row of
 * inputs has: the next group of weights comes in while there is little else to load. */
#define INTEGER_COLUMN(n, at) \
  "vmovdqu " at "(%[w" #n "],%[k]), %[v]\n\t" \
  "vpmaddwd %[v], %[x0], %[t]\n\t" \
  "vpmaddwd %[v], %[x1], %[v]\n\t" \
  "vpaddd %[t], %[a" #n "], %[a" #n "]\n\t" \
  "vpaddd %[v], %[b" #n "], %[b" #n "]\n\t"
#define FLOAT_COLUMN(n, at) \
  "vmovups " at "(%[w" #n "],%[k]), %[v]\n\t" \
  "vfmadd231ps %[v], %[x0], %[a" #n "]\n\t" \
  "vfmadd231ps %[v], %[x1], %[b" #n "]\n\t"
#define STEP(column, at) \
  "vmovups " at "(%[x],%[k]), %[x0]\n\t" \
  "vmovups " at "(%[next],%[k]), %[x1]\n\t" \
  column(0, at) column(1, at) column(2, at) column(3, at)

#define BLOCK(name, element, output, vector, zero, lanes, get, column, add_product, \
              four, put) \
  LANES_INLINE void name##_two(const element *const w[COLUMNS], const element *x, \
                               product_shape s, int64_t width, int64_t left, \
                               bool first, const void *ahead, output *y) { \
    vector a0 = zero, a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0; \
    vector x0, x1, v, t; \
    int64_t k = 0, bytes = width * (int64_t)sizeof(element); /* a multiple of 64 */ \
    __asm__ volatile( \
        ".p2align 4\n1:\n\t" \
        "prefetcht0 (%[ahead],%[k])\n\t" STEP(column, "") STEP(column, "32") \
        "add $64, %[k]\n\t" \
        "cmp %[bytes], %[k]\n\t" \
        "jl 1b" \
        : [a0] "+x"(a0), [a1] "+x"(a1), [a2] "+x"(a2), [a3] "+x"(a3), \
          [b0] "+x"(b0), [b1] "+x"(b1), [b2] "+x"(b2), [b3] "+x"(b3), \
          [x0] "=&x"(x0), [x1] "=&x"(x1), [v] "=&x"(v), [t] "=&x"(t), [k] "+&r"(k) \
        : [x] "r"(x), [next] "r"(x + s.x_stride), [w0] "r"(w[0]), [w1] "r"(w[1]), \
          [w2] "r"(w[2]), [w3] "r"(w[3]), [bytes] "r"(bytes), [ahead] "r"(ahead) \
        : "memory", "cc"); \
    put(y, left, first, four(a0, a1, a2, a3)); \
    put(y + s.y_stride, left, first, four(b0, b1, b2, b3)); \
  } \
  LANES_INLINE void name##_one(const element *const w[COLUMNS], const element *x, \
                               int64_t width, int64_t left, bool first, output *y) { \
    const element *w0 = w[0], *w1 = w[1], *w2 = w[2], *w3 = w[3]; \
    vector a0 = zero, a1 = a0, a2 = a0, a3 = a0; \
    for (int64_t k = 0; k < width; k += lanes) { \
      vector a = get(x + k); \
      a0 = add_product(a0, get(w0 + k), a), a1 = add_product(a1, get(w1 + k), a); \
      a2 = add_product(a2, get(w2 + k), a), a3 = add_product(a3, get(w3 + k), a); \
    } \
    put(y, left, first, four(a0, a1, a2, a3)); \
  }

LANES_INLINE __m256 fused_add(__m256 sum, __m256 a, __m256 b) {
  return _mm256_fmadd_ps(a, b, sum);
}

BLOCK(block_integer, int16_t, int32_t, __m256i, _mm256_setzero_si256(), 16, load_codes,
      INTEGER_COLUMN, multiply_add, four_sums, put_sums)
BLOCK(block_float, float, float, __m256, _mm256_setzero_ps(), LANES, get_float32,
      FLOAT_COLUMN, fused_add, four_float_sums, put_float_sums)

/* The first two rows of inputs against four int8 rows, which are widened to `wide` on
 * the way: the CPU's stores are idle otherwise. */
#define WIDENING_COLUMN(n, at, wide_at) \
  "vpmovsxbw " at "(%[w" #n "],%[k]), %%ymm14\n\t" \
  "vmovdqa %%ymm14, %c[row]*" #n "+" wide_at "(%[wide],%[k],2)\n\t" \
  "vpmaddwd %%ymm14, %%ymm12, %%ymm15\n\t" \
  "vpmaddwd %%ymm14, %%ymm13, %%ymm14\n\t" \
  "vpaddd %%ymm15, %[a" #n "], %[a" #n "]\n\t" \
  "vpaddd %%ymm14, %[b" #n "], %[b" #n "]\n\t"
#define WIDENING_STEP(at, wide_at) \
  "vmovups " wide_at "(%[x],%[k],2), %%ymm12\n\t" \
  "vmovups " wide_at "(%[next],%[k],2), %%ymm13\n\t" \
  WIDENING_COLUMN(0, at, wide_at) WIDENING_COLUMN(1, at, wide_at) \
  WIDENING_COLUMN(2, at, wide_at) WIDENING_COLUMN(3, at, wide_at)

LANES_INLINE void widening_two(const int8_t *const w[COLUMNS],
                               int16_t wide[COLUMNS][WIDE_LENGTH], const int16_t *x,
                               product_shape s, int64_t width, int64_t left, bool first,
                               int32_t *y) {
  __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0;
  __m256i b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  int64_t k = 0;
  __asm__ volatile(
      ".p2align 4\n1:\n\t"
      WIDENING_STEP("0", "0") WIDENING_STEP("16", "32")
      "add $32, %[k]\n\t"
      "cmp %[width], %[k]\n\t"
      "jl 1b"
      : [a0] "+x"(a0), [a1] "+x"(a1), [a2] "+x"(a2), [a3] "+x"(a3), [b0] "+x"(b0),
        [b1] "+x"(b1), [b2] "+x"(b2), [b3] "+x"(b3), [k] "+&r"(k)
      : [x] "r"(x), [next] "r"(x + s.x_stride), [w0] "r"(w[0]), [w1] "r"(w[1]),
        [w2] "r"(w[2]), [w3] "r"(w[3]), [wide] "r"(wide), [width] "r"(width),
        [row] "i"(sizeof *wide)
      : "memory", "cc", "ymm12", "ymm13", "ymm14", "ymm15");
  put_sums(y, left, first, four_sums(a0, a1, a2, a3));
  put_sums(y + s.y_stride, left, first, four_sums(b0, b1, b2, b3));
}

static void rows_int8(const int8_t *weights, const int16_t *x, product_shape s,
                      int32_t *y) {
  _Alignas(32) int16_t wide[COLUMNS][WIDE_LENGTH];
  const int16_t *w[COLUMNS] = {wide[0], wide[1], wide[2], wide[3]};
  for (int64_t k = 0; k < s.inputs; k += CODES_CHUNK)
    for (int64_t n = 0; n < s.outputs; n += COLUMNS) {
      int64_t width = s.inputs - k < CODES_CHUNK ? s.inputs - k : CODES_CHUNK;
      int64_t left = s.outputs - n;
      const int8_t *group = weights + n * s.inputs, *source[COLUMNS];
      for (int c = 0; c < COLUMNS; c++)
        source[c] = ROW_OF(group, c, left, s.inputs) + k;
      widening_two(source, wide, x + k, s, width, left, k == 0, y + n);
      const int8_t *next = group + COLUMNS * s.inputs;
      int64_t m = 2;
      /* Two loops ask for the whole group: codes are half as wide as those of x. */
      for (; m + 2 <= s.rows; m += 2)
        block_integer_two(w, x + m * s.x_stride + k, s, width, left, k == 0,
                          next + (m & 2) * width, y + m * s.y_stride + n);
      if (m < s.rows)
        block_integer_one(w, x + m * s.x_stride + k, width, left, k == 0,
                          y + m * s.y_stride + n);
    }
}

/* All rows of inputs against four weight rows, a chunk of K at a time. `WIDE` makes
 * w[c] point to the chunk of weight row c that starts at k; `ahead` is what rows m and
 * m + 1 ask for meanwhile, the inputs themselves if `WIDE` has asked already. */
#define PRODUCT_OF_ROWS(name, weight, input, output, block, ahead, WIDE) \
  static void name(const weight *weights, const input *x, product_shape s, \
                   output *y) { \
    _Alignas(32) input buffer[COLUMNS][CHUNK_BYTES / sizeof(input)]; \
    const int64_t chunk = CHUNK_BYTES / sizeof(input); \
    (void)buffer; \
    for (int64_t k = 0; k < s.inputs; k += chunk) { \
      int64_t width = s.inputs - k < chunk ? s.inputs - k : chunk; \
      for (int64_t n = 0; n < s.outputs; n += COLUMNS) { \
        int64_t left = s.outputs - n, m = 0; \
        const input *w[COLUMNS]; \
        for (int c = 0; c < COLUMNS; c++) { WIDE } \
        for (; m + 2 <= s.rows; m += 2) \
          block##_two(w, x + m * s.x_stride + k, s, width, left, k == 0, ahead, \
                      y + m * s.y_stride + n); \
        if (m < s.rows) \
          block##_one(w, x + m * s.x_stride + k, width, left, k == 0, \
                      y + m * s.y_stride + n); \
      } \
    } \
  }
#define WIDEN(widen, length, start) \
  widen(ROW_OF(weights + n * (length), c, left, length) + (start), width, length, \
        buffer[c]); \
  w[c] = buffer[c];
PRODUCT_OF_ROWS(rows_int4, uint8_t, int16_t, int32_t, block_integer, x,
                WIDEN(widen_chunk_int4, s.inputs / 2, k / 2))
PRODUCT_OF_ROWS(rows_float16, uint16_t, float, float, block_float, x,
                WIDEN(widen_chunk_float16, s.inputs, k))
PRODUCT_OF_ROWS(rows_float32, float, float, float, block_float,
                w[m / 2 % COLUMNS] + COLUMNS * s.inputs,
                w[c] = ROW_OF(weights + n * s.inputs, c, left, s.inputs) + k;)

#endif
