/* The contract between the engine and its kernels.
 *
 * KERNELS is the one list: the dispatch tables (portable.c, avx2.c), the names the
 * tests go through and the benchmarks are made from it.
 *
 * Letters: M rows of a batch, K inputs, N outputs, Kp = K rounded up to ROW. Every
 * pointer may be aligned to its element only. Weight rows are padded with zeros to
 * Kp, and so are input rows.
 *
 * Bit rule: all kernels but product_float32 and product_float16 give the same bits
 * in every instruction set. Sums of floats run in eight lanes, in one fixed order,
 * and nothing may be contracted to a fused multiply-add.
 */
#ifndef ACME_QUANT_KERNELS_H
#define ACME_QUANT_KERNELS_H

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if FLT_EVAL_METHOD != 0
#error "floats must be computed in their own precision (on x86: -mfpmath=sse)"
#endif

enum { ROW = 32 };

/* The largest code of an input: it and a weight's add up to an int16 (avx2_pairs.h). */
enum { LARGEST_CODE = INT16_MAX - 127 };

#define NAMED_FORMATS(NAME) NAME(float32) NAME(float16) NAME(int8) NAME(int4)
#define NAMED_ACTIVATIONS(NAME) \
  NAME(identity) NAME(tanh) NAME(relu) NAME(elu) NAME(selu) NAME(sigmoid) \
  NAME(softplus) NAME(erf)

#define FORMAT_ID(name) FORMAT_##name,
#define ACTIVATION_ID(name) ACTIVATION_##name,
enum { NAMED_FORMATS(FORMAT_ID) FORMATS };
enum { NAMED_ACTIVATIONS(ACTIVATION_ID) ACTIVATIONS };

/* y[M, N] = x[M, Kp] W[N, Kp]^T; the strides are in elements. */
typedef struct {
  int64_t rows, outputs, inputs; /* M, N, Kp */
  int64_t x_stride, y_stride;
} product_shape;

/* What an affine map of a row is made of; a step of 0 broadcasts one number, a
 * null pointer leaves the part out. */
typedef struct {
  const float *scale, *bias;
  int64_t scale_step, bias_step;
} row_parameters;

/* The limits of a row, by the same rules. */
typedef struct {
  const float *low, *high;
  int64_t low_step, high_step;
} row_bounds;

/* A quantized row's sums -> floats:
 *   y = float(sum - zero_point * input_sum) * (input_scale * scale) + bias */
typedef struct {
  const float *scale, *bias;
  const int32_t *zero_point;
  float input_scale;
  int32_t input_sum;
} dequantization;

/* Codes of a weight matrix: clip(rint(w * inverse_scale) + zero_point). */
typedef struct {
  const float *inverse_scale;
  const int32_t *zero_point; /* may be null; within +-2**20 */
  int32_t code_min, code_max;
} column_codes;

#define KERNELS(KERNEL) \
  /* Quantizes a row to codes int16 [Kp] and gives its scale and their sum. */ \
  KERNEL(float, quantize_row, \
         (const float *x, int64_t width, int32_t largest_code, int16_t *codes, \
          int32_t *sum)) \
  /* Exact sums; int4 codes are as `pack_int4` leaves them. */ \
  KERNEL(void, product_int8, \
         (const int8_t *w, const int16_t *x, product_shape s, int32_t *sums)) \
  KERNEL(void, product_int4, \
         (const uint8_t *w, const int16_t *x, product_shape s, int32_t *sums)) \
  KERNEL(void, product_float32, \
         (const float *w, const float *x, product_shape s, float *y)) \
  KERNEL(void, product_float16, \
         (const uint16_t *w, const float *x, product_shape s, float *y)) \
  /* One weight row [Kp] in float32, (code - zero_point) * scale. */ \
  KERNEL(void, widen_int8, \
         (const int8_t *w, int64_t width, int32_t zero_point, float scale, \
          float *wide)) \
  KERNEL(void, widen_int4, \
         (const uint8_t *w, int64_t width, int32_t zero_point, float scale, \
          float *wide)) \
  KERNEL(void, dequantize_row, \
         (const int32_t *sums, int64_t width, dequantization d, float *y)) \
  /* Copies a row; false if a number is not finite. */ \
  KERNEL(bool, copy_finite_row, (const float *x, int64_t width, float *y)) \
  KERNEL(void, activate_row, (float *y, int64_t width, int32_t activation)) \
  KERNEL(void, layer_norm_row, \
         (const float *x, int64_t width, float epsilon, row_parameters p, float *y)) \
  KERNEL(void, affine_row, \
         (const float *x, int64_t width, row_parameters p, float *y)) \
  /* min(max(x, low), high) */ \
  KERNEL(void, clip_row, (const float *x, int64_t width, row_bounds b, float *y)) \
  /* A step of 0 broadcasts a value of width 1. */ \
  KERNEL(void, add_rows, \
         (const float *a, int64_t a_step, const float *b, int64_t b_step, \
          int64_t width, float *y)) \
  KERNEL(void, subtract_rows, \
         (const float *a, int64_t a_step, const float *b, int64_t b_step, \
          int64_t width, float *y)) \
  KERNEL(void, multiply_rows, \
         (const float *a, int64_t a_step, const float *b, int64_t b_step, \
          int64_t width, float *y)) \
  KERNEL(void, maximum_rows, \
         (const float *a, int64_t a_step, const float *b, int64_t b_step, \
          int64_t width, float *y)) \
  KERNEL(void, minimum_rows, \
         (const float *a, int64_t a_step, const float *b, int64_t b_step, \
          int64_t width, float *y)) \
  /* exp(x - max x), divided by their sum. */ \
  KERNEL(void, softmax_row, (const float *x, int64_t width, float *y)) \
  KERNEL(float, mean_row, (const float *x, int64_t width)) \
  /* The first largest. */ \
  KERNEL(float, argmax_row, (const float *x, int64_t width)) \
  /* CRC-32C (Castagnoli), of RFC 3720; `crc` is that of the bytes before. */ \
  KERNEL(uint32_t, crc32c, (uint32_t crc, const uint8_t *bytes, int64_t length)) \
  /* Weight matrices as TensorFlow has them, float32 [K, N]; false if a number is \
   * not finite. */ \
  KERNEL(bool, column_range, \
         (const float *w, int64_t inputs, int64_t outputs, float *low, float *high)) \
  /* [K, N] -> [N, Kp], rows padded with zeros. */ \
  KERNEL(void, quantize_columns, \
         (const float *w, int64_t inputs, int64_t outputs, column_codes c, \
          int8_t *codes)) \
  KERNEL(void, transpose_float32, \
         (const float *w, int64_t inputs, int64_t outputs, float *rows)) \
  KERNEL(void, transpose_float16, \
         (const float *w, int64_t inputs, int64_t outputs, uint16_t *rows)) \
  /* In each block of 32 codes byte j holds code j + 8 in its low and code j + 16, \
   * also plus 8, in its high half. */ \
  KERNEL(void, pack_int4, (const int8_t *codes, int64_t count, uint8_t *packed))

#define KERNEL_FIELD(type, name, arguments) type(*name) arguments;
typedef struct {
  const char *isa;
  KERNELS(KERNEL_FIELD)
} kernel_table;

#define KERNEL_ENTRY(type, name, arguments) .name = name,

extern const kernel_table kernels_portable;
#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_AVX2 1
extern const kernel_table kernels_avx2;
#endif

/* The tables this CPU can run, worst first; returns their number. */
enum { MAX_ISAS = 2 };
int kernels_supported(const kernel_table *tables[MAX_ISAS]);

/* The table of that name; null if it is not supported here. An empty or null name
 * is the best one. */
const kernel_table *kernels_find(const char *isa);

static inline int64_t padded(int64_t width) { return (width + ROW - 1) / ROW * ROW; }

#endif
