/* Integer products of many long rows, with half the multiplications.
 *
 * Winograd 1968, "A new algorithm for inner product":
 *   x1 w1 + x2 w2 = (x1 + w2) (x2 + w1) - x1 x2 - w1 w2
 * and the last two are sums over one row each, of inputs or of weights. Modulo 2**32
 * nothing is lost. Two additions stand for a multiplication: as many instructions,
 * but additions run in all four of the CPU's vector units and vpmaddwd in two, from
 * which additions keep it at times. The loop alone does 28 products a cycle, that of
 * avx2_rows.h 25.6; products of 32 rows at 2048 inputs ran at 79 billion a second
 * against 75. Codes are paired with those 16 further on. A row of inputs goes with the
 * one half of all rows further on, so that each half is read as one long stream.
 */
#ifndef ACME_QUANT_AVX2_PAIRS_H
#define ACME_QUANT_AVX2_PAIRS_H

#include "avx2_rows.h"

/* The sums of the weights' own products pay from so many inputs and rows on; measured.
 * Those of more rows of inputs have no place. */
enum { PAIRS_INPUTS = 512, PAIRS_ROWS = 16, PAIRS_MOST_ROWS = 256 };

LANES_INLINE bool pairs_pay(product_shape s) {
  return s.inputs >= PAIRS_INPUTS && s.rows >= PAIRS_ROWS &&
         s.rows <= PAIRS_MOST_ROWS;
}

LANES_INLINE int64_t half_rows(product_shape s) { return s.rows / 2; }

/* Two rows' next 32 codes, in ymm8..11, against those of a row of widened weights. Half
 * of these are loaded twice, by the additions: the CPU starts as many instructions as
 * it can, and has loads to spare. */
#define PAIR_COLUMN(n) \
  "vmovdqa %c[row]*" #n "+32(%[wide],%[k]), %%ymm13\n\t" \
  "vpaddw %%ymm13, %%ymm8, %%ymm14\n\t" \
  "vpaddw %c[row]*" #n "(%[wide],%[k]), %%ymm9, %%ymm15\n\t" \
  "vpmaddwd %%ymm14, %%ymm15, %%ymm14\n\t" \
  "vpaddd %%ymm14, %[a" #n "], %[a" #n "]\n\t" \
  "vpaddw %%ymm13, %%ymm10, %%ymm13\n\t" \
  "vpaddw %c[row]*" #n "(%[wide],%[k]), %%ymm11, %%ymm12\n\t" \
  "vpmaddwd %%ymm12, %%ymm13, %%ymm12\n\t" \
  "vpaddd %%ymm12, %[b" #n "], %[b" #n "]\n\t"

/* Stores a row's sums over a chunk, less those of its own products (which the first
 * chunk has) and of the weights'. */
LANES_INLINE void put_pairs(int32_t *y, int64_t left, bool first, __m128i sums,
                            int32_t own_x, __m128i own_w) {
  if (first) own_w = _mm_add_epi32(own_w, _mm_set1_epi32(own_x));
  put_sums(y, left, first, _mm_sub_epi32(sums, own_w));
}

/* A row of inputs and the one half of all further on, of which `own_x` and `y` are. */
LANES_INLINE void pairs_two(int16_t wide[COLUMNS][WIDE_LENGTH], const int16_t *x,
                            product_shape s, int64_t width, int64_t left, bool first,
                            const int32_t *own_x, __m128i own_w, int32_t *y) {
  __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0;
  __m256i b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  int64_t k = 0, bytes = width * (int64_t)sizeof *x; /* a multiple of 64 */
  __asm__ volatile(
      ".p2align 4\n1:\n\t"
      "vmovdqu (%[x],%[k]), %%ymm8\n\t"
      "vmovdqu 32(%[x],%[k]), %%ymm9\n\t"
      "vmovdqu (%[next],%[k]), %%ymm10\n\t"
      "vmovdqu 32(%[next],%[k]), %%ymm11\n\t"
      PAIR_COLUMN(0) PAIR_COLUMN(1) PAIR_COLUMN(2) PAIR_COLUMN(3)
      "add $64, %[k]\n\t"
      "cmp %[bytes], %[k]\n\t"
      "jl 1b"
      : [a0] "+x"(a0), [a1] "+x"(a1), [a2] "+x"(a2), [a3] "+x"(a3), [b0] "+x"(b0),
        [b1] "+x"(b1), [b2] "+x"(b2), [b3] "+x"(b3), [k] "+&r"(k)
      : [x] "r"(x), [next] "r"(x + half_rows(s) * s.x_stride), [wide] "r"(wide),
        [row] "i"(sizeof *wide), [bytes] "r"(bytes)
      : "memory", "cc", "ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14",
        "ymm15");
  int64_t half = half_rows(s);
  put_pairs(y, left, first, four_sums(a0, a1, a2, a3), own_x[0], own_w);
  put_pairs(y + half * s.y_stride, left, first, four_sums(b0, b1, b2, b3), own_x[half],
            own_w);
}

/* The same of the first rows of both halves, on the way to widening a row of weights;
 * the sums of the latter's own products go to the third register. */
#define WIDENING_PAIR_COLUMN(n, a, b, own) \
  "vpmovsxbw (%[w" #n "],%[k]), %%ymm12\n\t" \
  "vpmovsxbw 16(%[w" #n "],%[k]), %%ymm13\n\t" \
  "vmovdqa %%ymm12, %c[row]*" #n "(%[wide],%[k],2)\n\t" \
  "vmovdqa %%ymm13, %c[row]*" #n "+32(%[wide],%[k],2)\n\t" \
  "vpaddw (%[x],%[k],2), %%ymm13, %%ymm14\n\t" \
  "vpaddw 32(%[x],%[k],2), %%ymm12, %%ymm15\n\t" \
  "vpmaddwd %%ymm14, %%ymm15, %%ymm14\n\t" \
  "vpmaddwd %%ymm12, %%ymm13, %%ymm15\n\t" \
  "vpaddd %%ymm14, %%ymm" #a ", %%ymm" #a "\n\t" \
  "vpaddd %%ymm15, %%ymm" #own ", %%ymm" #own "\n\t" \
  "vpaddw (%[next],%[k],2), %%ymm13, %%ymm13\n\t" \
  "vpaddw 32(%[next],%[k],2), %%ymm12, %%ymm12\n\t" \
  "vpmaddwd %%ymm12, %%ymm13, %%ymm12\n\t" \
  "vpaddd %%ymm12, %%ymm" #b ", %%ymm" #b "\n\t"

/* An asm statement has too few operands for twelve sums. */
#define EACH_SUM(DO) \
  DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define CLEAR_SUM(n) "vpxor %%xmm" #n ", %%xmm" #n ", %%xmm" #n "\n\t"
#define STORE_SUM(n) "vmovdqa %%ymm" #n ", 32*" #n "(%[sums])\n\t"

/* Gives the four sums of the weights' own products. */
LANES_INLINE __m128i widening_pairs(const int8_t *const w[COLUMNS],
                                    int16_t wide[COLUMNS][WIDE_LENGTH],
                                    const int16_t *x, product_shape s, int64_t width,
                                    int64_t left, bool first, const int32_t *own_x,
                                    int32_t *y) {
  __m256i sums[3][COLUMNS];
  int64_t k = 0;
  __asm__ volatile(
      EACH_SUM(CLEAR_SUM)
      ".p2align 4\n1:\n\t"
      WIDENING_PAIR_COLUMN(0, 0, 4, 8) WIDENING_PAIR_COLUMN(1, 1, 5, 9)
      WIDENING_PAIR_COLUMN(2, 2, 6, 10) WIDENING_PAIR_COLUMN(3, 3, 7, 11)
      "add $32, %[k]\n\t"
      "cmp %[width], %[k]\n\t"
      "jl 1b\n\t"
      EACH_SUM(STORE_SUM)
      : [k] "+&r"(k)
      : [x] "r"(x), [next] "r"(x + half_rows(s) * s.x_stride), [w0] "r"(w[0]),
        [w1] "r"(w[1]), [w2] "r"(w[2]), [w3] "r"(w[3]), [wide] "r"(wide),
        [width] "r"(width), [row] "i"(sizeof *wide), [sums] "r"(sums)
      : "memory", "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7",
        "ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15");
  __m128i four[3];
  int64_t half = half_rows(s);
  for (int i = 0; i < 3; i++)
    four[i] = four_sums(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
  put_pairs(y, left, first, four[0], own_x[0], four[2]);
  put_pairs(y + half * s.y_stride, left, first, four[1], own_x[half], four[2]);
  return four[2];
}

/* The sum of a row's own products. */
LANES_INLINE int32_t own_products(const int16_t *x, int64_t inputs) {
  __m256i none = _mm256_setzero_si256(), own = none;
  for (int64_t k = 0; k < inputs; k += ROW)
    own = multiply_add(own, load_codes(x + k), load_codes(x + k + ROW / 2));
  return _mm_cvtsi128_si32(four_sums(own, none, none, none));
}

/* Asks for lines start .. start + count of the next four weight rows, a part of them
 * before each pair of rows: all at once they would keep the loops above waiting. */
LANES_INLINE void fetch_part(const int8_t *const w[COLUMNS], int64_t inputs,
                             int64_t start, int64_t count) {
  for (int64_t i = start; i < start + count; i++)
    for (int c = 0; c < COLUMNS; c++)
      _mm_prefetch((const char *)(w[c] + COLUMNS * inputs + i * LINE), _MM_HINT_T1);
}

static void pairs_int8(const int8_t *weights, const int16_t *x, product_shape s,
                       int32_t *y) {
  _Alignas(32) int16_t wide[COLUMNS][WIDE_LENGTH];
  const int16_t *w[COLUMNS] = {wide[0], wide[1], wide[2], wide[3]};
  int64_t half = half_rows(s), chunk = s.inputs < CODES_CHUNK ? s.inputs : CODES_CHUNK;
  int64_t lines = chunk / LINE / (half - 1) + 1; /* to ask for at a time */
  int32_t own_x[PAIRS_MOST_ROWS];
  for (int64_t m = 0; m < 2 * half; m++)
    own_x[m] = own_products(x + m * s.x_stride, s.inputs);
  for (int64_t k = 0; k < s.inputs; k += CODES_CHUNK)
    for (int64_t n = 0; n < s.outputs; n += COLUMNS) {
      int64_t width = s.inputs - k < CODES_CHUNK ? s.inputs - k : CODES_CHUNK;
      int64_t left = s.outputs - n;
      const int8_t *source[COLUMNS];
      for (int c = 0; c < COLUMNS; c++)
        source[c] = ROW_OF(weights + n * s.inputs, c, left, s.inputs) + k;
      __m128i own_w = widening_pairs(source, wide, x + k, s, width, left, k == 0, own_x,
                                     y + n);
      for (int64_t m = 1; m < half; m++) {
        fetch_part(source, s.inputs, (m - 1) * lines, lines);
        pairs_two(wide, x + m * s.x_stride + k, s, width, left, k == 0, own_x + m,
                  own_w, y + m * s.y_stride + n);
      }
      if (2 * half < s.rows)
        block_integer_one(w, x + 2 * half * s.x_stride + k, width, left, k == 0,
                          y + 2 * half * s.y_stride + n);
    }
}

#endif
