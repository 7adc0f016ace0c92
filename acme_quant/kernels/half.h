/* IEEE 754 binary16 <-> binary32 by their bits, for CPUs without F16C. */
#ifndef ACME_QUANT_HALF_H
#define ACME_QUANT_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16;
  uint32_t magnitude = half & 0x7fff, bits;
  if (magnitude >= 0x7c00) { /* Inf, NaN */
    bits = 0x7f800000 | (magnitude << 13);
  } else if (magnitude >= 0x0400) {
    bits = (magnitude << 13) + ((127u - 15) << 23);
  } else { /* subnormal: an exact multiple of 2**-24 */
    float value = (float)magnitude * 5.9604644775390625e-8f;
    memcpy(&bits, &value, sizeof bits);
  }
  bits |= sign;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Rounds half to even. */
static inline uint16_t float_to_half(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00 | (uint16_t)(bits >> 13 & 0x3ff);
  if (bits >= 0x477ff000) return sign | 0x7c00; /* 65520 and more */
  if (bits < 0x38800000) { /* below 2**-14: the float adder rounds at 2**-24 */
    float shifted;
    memcpy(&shifted, &bits, sizeof shifted);
    shifted += 0.5f;
    memcpy(&bits, &shifted, sizeof bits);
    return sign | (uint16_t)(bits - 0x3f000000);
  }
  uint32_t rounding = 0xfff + (bits >> 13 & 1);
  return sign | (uint16_t)((bits + rounding - ((127u - 15) << 23)) >> 13);
}

#endif
