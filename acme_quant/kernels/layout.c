/* The checks of a policy's layout: the engine trusts what passes here. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout.h"

/* Bounds that keep all products of sizes within int64, and memory sane. */
#define MAX_COUNT 65536
#define MAX_WIDTH (1 << 24)
#define MAX_TOTAL_WIDTH (1 << 26)
#define MAX_EXTENT 65536

typedef struct {
  const layout *l;
  const op_record *op;
  int64_t index;
  int32_t *written; /* columns of each value written so far, from the left */
  message *error;
} check;

#define KIND_NAME(name) #name,
const char *const kind_names[KINDS + 1] = {NAMED_KINDS(KIND_NAME) NULL};

static bool refuse(message *error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, MESSAGE_SIZE, format, arguments);
  va_end(arguments);
  return false;
}

/* Requires low <= value <= high. */
static bool within(const check *c, const char *what, int64_t value, int64_t low,
                   int64_t high) {
  if (value >= low && value <= high) return true;
  return refuse(c->error,
                "operation %lld (%s): expected %s between %lld and %lld, got %lld",
                (long long)c->index, kind_names[c->op->kind], what, (long long)low,
                (long long)high, (long long)value);
}

static bool equal(const check *c, const char *what, int64_t value, int64_t expected) {
  if (value == expected) return true;
  return refuse(c->error, "operation %lld (%s): expected %s %lld, got %lld",
                (long long)c->index, kind_names[c->op->kind], what,
                (long long)expected, (long long)value);
}

static int32_t width_of(const check *c, int32_t value) {
  return c->l->value_widths[value];
}

static bool readable(const check *c, const char *what, int32_t value) {
  if (!within(c, what, value, 0, c->l->value_count - 1)) return false;
  if (c->written[value] == width_of(c, value)) return true;
  return refuse(c->error,
                "operation %lld (%s): expected %s to be written before, but value %d "
                "has %d of its %d columns",
                (long long)c->index, kind_names[c->op->kind], what, value,
                c->written[value], width_of(c, value));
}

/* Marks columns of the output as written; they come from the left, without a gap. */
static bool writable(const check *c, int64_t start, int64_t width) {
  int32_t output = c->op->output;
  if (!within(c, "output", output, 1, c->l->value_count - 1)) return false;
  if (!equal(c, "output_offset", start, c->written[output])) return false;
  if (!within(c, "output columns", start + width, 1, width_of(c, output))) return false;
  c->written[output] += (int32_t)width;
  return true;
}

static bool writes_all(const check *c, int64_t width) {
  if (!within(c, "output", c->op->output, 1, c->l->value_count - 1)) return false;
  return equal(c, "output width", width_of(c, c->op->output), width) &&
         equal(c, "output_offset", c->op->output_offset, 0) && writable(c, 0, width);
}

/* A tensor of `count` elements (or of one, if `or_one`); -1 may stand for none. */
static bool tensor_holds(const check *c, const char *what, int32_t tensor,
                         int64_t count, int64_t element_bytes, bool or_one,
                         bool or_none) {
  if (tensor == -1 && or_none) return true;
  if (!within(c, what, tensor, 0, c->l->tensor_count - 1)) return false;
  int64_t bytes = c->l->tensors[tensor].bytes;
  if (or_one && bytes == element_bytes) return true;
  return equal(c, what, bytes, count * element_bytes);
}

static bool check_weight(const check *c) {
  const op_record *op = c->op;
  int64_t row = padded(op->inputs);
  int64_t bytes[FORMATS] = {4 * row, 2 * row, row, row / 2};
  return tensor_holds(c, "weight bytes", op->weight, (int64_t)op->outputs,
                      bytes[op->format], false, false) &&
         tensor_holds(c, "bias bytes", op->bias, op->outputs, 4, false, true);
}

/* |code - zero point| times |activation| summed K times must stay in int32. int4
 * codes are summed as code + 8. */
static bool check_sums(const check *c) {
  const op_record *op = c->op;
  int64_t largest = op->format == FORMAT_int8 ? 127 : 15;
  if (op->zero_point >= 0) largest *= 2;
  int64_t limit = INT32_MAX / (largest * op->inputs);
  return within(c, "activation_max", op->activation_max, 0,
                limit < LARGEST_CODE ? limit : LARGEST_CODE);
}

static bool check_product(const check *c) {
  const op_record *op = c->op;
  if (!within(c, "format", op->format, 0, FORMATS - 1) ||
      !within(c, "inputs", op->inputs, 1, MAX_WIDTH) ||
      !within(c, "outputs", op->outputs, 1, MAX_WIDTH) || !check_weight(c))
    return false;
  if (op_is_integer(op))
    return tensor_holds(c, "scale bytes", op->scale, op->outputs, 4, false, false) &&
           tensor_holds(c, "zero_point bytes", op->zero_point, op->outputs, 4, false,
                        true) &&
           check_sums(c);
  return equal(c, "scale", op->scale, -1) &&
         equal(c, "zero_point", op->zero_point, -1) &&
         equal(c, "activation_max", op->activation_max, 0);
}

static bool check_linear(const check *c) {
  const op_record *op = c->op;
  return equal(c, "inputs", op->inputs, width_of(c, op->input)) && check_product(c) &&
         writes_all(c, op->outputs);
}

/* Sizes of a window and its image. */
static bool check_window(const check *c) {
  const op_record *op = c->op;
  const struct {
    const char *what;
    int32_t value, low;
  } extents[] = {{"height", op->height, 1},
                 {"width", op->width, 1},
                 {"channels", op->channels, 1},
                 {"kernel_height", op->kernel_height, 1},
                 {"kernel_width", op->kernel_width, 1},
                 {"stride_height", op->stride_height, 1},
                 {"stride_width", op->stride_width, 1},
                 {"pad_top", op->pad_top, 0},
                 {"pad_left", op->pad_left, 0},
                 {"out_height", op->out_height, 1},
                 {"out_width", op->out_width, 1}};
  for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
    if (!within(c, extents[i].what, extents[i].value, extents[i].low, MAX_EXTENT))
      return false;
  int64_t image = (int64_t)op->height * op->width * op->channels;
  return equal(c, "input width", width_of(c, op->input), image);
}

static bool check_conv2d(const check *c) {
  const op_record *op = c->op;
  if (!check_window(c)) return false;
  int64_t patch = (int64_t)op->kernel_height * op->kernel_width * op->channels;
  return equal(c, "inputs", op->inputs, patch) && check_product(c) &&
         writes_all(c, op_positions(op) * op->outputs);
}

/* The kinds with parameters of the row's width, or of one number. */
static bool check_parameters(const check *c, bool or_one) {
  int32_t width = width_of(c, c->op->input);
  return tensor_holds(c, "scale bytes", c->op->scale, width, 4, or_one, true) &&
         tensor_holds(c, "bias bytes", c->op->bias, width, 4, or_one, true) &&
         writes_all(c, width);
}

static bool check_pair(const check *c) {
  if (!readable(c, "other", c->op->other)) return false;
  int32_t a = width_of(c, c->op->input), b = width_of(c, c->op->other);
  int32_t width = a == 1 ? b : a;
  if (b != 1 && !equal(c, "width of other", b, width)) return false;
  return writes_all(c, width);
}

static bool check_copy(const check *c) {
  const op_record *op = c->op;
  int32_t width = width_of(c, op->input);
  return within(c, "input_offset", op->input_offset, 0, width - 1) &&
         within(c, "inputs", op->inputs, 1, width - op->input_offset) &&
         writable(c, op->output_offset, op->inputs);
}

/* The parts of a record that the kind does not read are left out: whoever reports on a
 * policy reads them as they are. */
static bool check_unread(const check *c) {
  const op_record *op = c->op;
  bool map = op->kind == KIND_layer_norm || op->kind == KIND_affine ||
             op->kind == KIND_clip;
  if (op_is_product(op)) return true;
  return equal(c, "format", op->format, 0) && equal(c, "weight", op->weight, -1) &&
         equal(c, "zero_point", op->zero_point, -1) &&
         (map || (equal(c, "scale", op->scale, -1) && equal(c, "bias", op->bias, -1)));
}

static bool check_op(const check *c) {
  const op_record *op = c->op;
  if (op->kind < 0 || op->kind >= KINDS)
    return refuse(c->error, "operation %lld: expected a kind below %d, got %d",
                  (long long)c->index, KINDS, op->kind);
  if (!within(c, "activation", op->activation, 0, ACTIVATIONS - 1) ||
      !readable(c, "input", op->input) || !check_unread(c))
    return false;
  if (op->kind != KIND_copy && !equal(c, "input_offset", op->input_offset, 0))
    return false;
  switch (op->kind) {
    case KIND_linear: return check_linear(c);
    case KIND_conv2d: return check_conv2d(c);
    case KIND_layer_norm:
      if (!(op->epsilon >= 0 && op->epsilon <= FLT_MAX))
        return refuse(c->error,
                      "operation %lld (layer_norm): expected a finite epsilon of at "
                      "least 0, got %g",
                      (long long)c->index, (double)op->epsilon);
      return check_parameters(c, false);
    case KIND_affine:
    case KIND_clip: return check_parameters(c, true);
    case KIND_add:
    case KIND_subtract:
    case KIND_multiply:
    case KIND_maximum:
    case KIND_minimum: return check_pair(c);
    case KIND_max_pool:
      return check_window(c) && writes_all(c, op_positions(op) * op->channels);
    case KIND_mean:
    case KIND_argmax: return writes_all(c, 1);
    case KIND_copy: return check_copy(c);
    default: return writes_all(c, width_of(c, op->input)); /* unary, softmax */
  }
}

/* All elements of 4 bytes stand at multiples of 4, so that C may read them. */
static bool check_tensors(const layout *l, message *error) {
  for (int64_t t = 0; t < l->tensor_count; t++) {
    tensor_record r = l->tensors[t];
    if (r.offset < 0 || r.bytes < 0 || r.offset % 4 != 0 ||
        r.offset > l->payload_bytes || r.bytes > l->payload_bytes - r.offset)
      return refuse(error,
                    "tensor %lld: expected it within the payload's %lld bytes at a "
                    "multiple of 4, got offset %lld and %lld bytes",
                    (long long)t, (long long)l->payload_bytes, (long long)r.offset,
                    (long long)r.bytes);
  }
  return true;
}

static bool check_values(const layout *l, message *error) {
  int64_t total = 0;
  for (int64_t v = 0; v < l->value_count; v++) {
    if (l->value_widths[v] < 1 || l->value_widths[v] > MAX_WIDTH)
      return refuse(error, "value %lld: expected a width between 1 and %d, got %d",
                    (long long)v, MAX_WIDTH, l->value_widths[v]);
    total += l->value_widths[v];
  }
  if (total <= MAX_TOTAL_WIDTH) return true;
  return refuse(error, "expected values of at most %d numbers a row, got %lld",
                MAX_TOTAL_WIDTH, (long long)total);
}

static bool check_counts(const layout *l, message *error) {
  const struct {
    const char *what;
    int64_t value, low;
  } counts[] = {{"operations", l->op_count, 1},
                {"tensors", l->tensor_count, 0},
                {"values", l->value_count, 2}};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    if (counts[i].value < counts[i].low || counts[i].value > MAX_COUNT)
      return refuse(error, "expected between %lld and %d %s, got %lld",
                    (long long)counts[i].low, MAX_COUNT, counts[i].what,
                    (long long)counts[i].value);
  if (l->payload_bytes >= 0) return true;
  return refuse(error, "expected payload_bytes of at least 0, got %lld",
                (long long)l->payload_bytes);
}

bool layout_check(const layout *l, message *error) {
  if (!check_counts(l, error) || !check_values(l, error) || !check_tensors(l, error))
    return false;
  check c = {.l = l, .error = error};
  c.written = calloc((size_t)l->value_count, sizeof *c.written);
  if (c.written == NULL) return refuse(error, "no memory for the layout's check");
  c.written[0] = l->value_widths[0];
  bool good = true;
  for (c.index = 0; good && c.index < l->op_count; c.index++) {
    c.op = &l->ops[c.index];
    good = check_op(&c);
  }
  c.index = l->op_count - 1;
  good = good && readable(&c, "the result", c.op->output);
  free(c.written);
  return good;
}
