/* A policy as a list of operations over a payload: what it is, and running it. */
#ifndef ACME_QUANT_ENGINE_H
#define ACME_QUANT_ENGINE_H

#include "kernels.h"

#define NAMED_KINDS(NAME) \
  NAME(linear) NAME(conv2d) NAME(layer_norm) NAME(unary) NAME(affine) NAME(clip) \
  NAME(add) NAME(subtract) NAME(multiply) NAME(mean) NAME(argmax) NAME(copy)
#define KIND_ID(name) KIND_##name,
enum { NAMED_KINDS(KIND_ID) KINDS };

/* The operation record. Value 0 is the observation row; -1 is no value, no tensor.
 * `inputs` and `outputs` are K and N of linear and conv2d; `inputs` is the number of
 * columns of a copy; the other kinds work on whole rows and do not read them. */
#define OP_FIELDS(FIELD) \
  FIELD(int32_t, kind) FIELD(int32_t, activation) \
  FIELD(int32_t, input) FIELD(int32_t, other) FIELD(int32_t, output) \
  FIELD(int32_t, weight) FIELD(int32_t, scale) FIELD(int32_t, zero_point) \
  FIELD(int32_t, bias) \
  FIELD(int32_t, format) FIELD(int32_t, inputs) FIELD(int32_t, outputs) \
  FIELD(int32_t, activation_max) \
  FIELD(int32_t, input_offset) FIELD(int32_t, output_offset) \
  FIELD(int32_t, height) FIELD(int32_t, width) FIELD(int32_t, channels) \
  FIELD(int32_t, kernel_height) FIELD(int32_t, kernel_width) \
  FIELD(int32_t, stride_height) FIELD(int32_t, stride_width) \
  FIELD(int32_t, pad_top) FIELD(int32_t, pad_left) \
  FIELD(int32_t, out_height) FIELD(int32_t, out_width) \
  FIELD(float, epsilon)

#define OP_FIELD(type, name) type name;
typedef struct {
  OP_FIELDS(OP_FIELD)
} op_record;

typedef struct {
  int64_t offset, bytes;
} tensor_record;

/* The whole of a policy but its weights. */
typedef struct {
  const op_record *ops;
  int64_t op_count;
  const tensor_record *tensors;
  int64_t tensor_count;
  const int32_t *value_widths;
  int64_t value_count;
  int64_t payload_bytes;
} layout;

enum { MESSAGE_SIZE = 256 };
typedef struct {
  char text[MESSAGE_SIZE];
} message;

/* Checks everything `engine_run` relies on: ids, widths, sizes, that each value is
 * written once, wholly and before it is read, and that no sum can overflow. False
 * with one sentence in `error`. */
bool layout_check(const layout *l, message *error);

/* Rows that run through all operations together: enough to use a weight often while
 * it is in a register, few enough for their values to stay in the cache. */
enum { BLOCK_ROWS = 128 };

typedef struct engine engine;
typedef enum { ENGINE_DONE, ENGINE_NOT_FINITE, ENGINE_NO_MEMORY } engine_status;

/* A copy of a checked layout; null if there is no memory. */
engine *engine_new(const layout *l, const kernel_table *kernels);
void engine_free(engine *e);

/* observations float32 [rows, W0] -> out float32 [rows, last width]. Uses the
 * engine's scratch memory: one caller at a time. On ENGINE_NOT_FINITE `*bad_row`
 * is the row. */
engine_status engine_run(engine *e, const uint8_t *payload, const float *observations,
                         int64_t rows, float *out, int64_t *bad_row);

const layout *engine_layout(const engine *e);
const kernel_table *engine_kernels(const engine *e);
int32_t engine_output_width(const engine *e);
int64_t engine_scratch_bytes(const engine *e);
/* Multiplications for one row. */
int64_t engine_work(const engine *e);

/* Positions a linear (one) or conv2d operation applies its weights to. */
static inline int64_t op_positions(const op_record *op) {
  return op->kind == KIND_conv2d ? (int64_t)op->out_height * op->out_width : 1;
}

static inline bool op_is_product(const op_record *op) {
  return op->kind == KIND_linear || op->kind == KIND_conv2d;
}

/* Reads two values. */
static inline bool op_is_pair(const op_record *op) {
  return op->kind == KIND_add || op->kind == KIND_subtract || op->kind == KIND_multiply;
}

static inline bool op_is_integer(const op_record *op) {
  return op->format == FORMAT_int8 || op->format == FORMAT_int4;
}

#endif
