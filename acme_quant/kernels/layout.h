/* The format of a policy: its operations' records, and their check. */
#ifndef ACME_QUANT_LAYOUT_H
#define ACME_QUANT_LAYOUT_H

#include "kernels.h"

#define NAMED_KINDS(NAME) \
  NAME(linear) NAME(conv2d) NAME(layer_norm) NAME(unary) NAME(affine) NAME(clip) \
  NAME(add) NAME(subtract) NAME(multiply) NAME(mean) NAME(argmax) NAME(copy) \
  NAME(maximum) NAME(minimum) NAME(softmax) NAME(max_pool)
#define KIND_ID(name) KIND_##name,
enum { NAMED_KINDS(KIND_ID) KINDS };

/* Their names in that order, and a null. */
extern const char *const kind_names[KINDS + 1];

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

/* Slides a window over an image. */
static inline bool op_is_window(const op_record *op) {
  return op->kind == KIND_conv2d || op->kind == KIND_max_pool;
}

/* Positions a linear (one), conv2d or max_pool operation is applied to. */
static inline int64_t op_positions(const op_record *op) {
  return op_is_window(op) ? (int64_t)op->out_height * op->out_width : 1;
}

static inline bool op_is_product(const op_record *op) {
  return op->kind == KIND_linear || op->kind == KIND_conv2d;
}

/* Reads two values. */
static inline bool op_is_pair(const op_record *op) {
  return op->kind == KIND_add || op->kind == KIND_subtract ||
         op->kind == KIND_multiply || op->kind == KIND_maximum ||
         op->kind == KIND_minimum;
}

static inline bool op_is_integer(const op_record *op) {
  return op->format == FORMAT_int8 || op->format == FORMAT_int4;
}

#endif
