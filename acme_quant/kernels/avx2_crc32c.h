/* CRC-32C by the SSE4.2 instruction. It takes three cycles and can start each cycle,
 * so that three thirds of the bytes are summed side by side and then joined. */
#ifndef ACME_QUANT_AVX2_CRC32C_H
#define ACME_QUANT_AVX2_CRC32C_H

#include "kernels.h"
#include "portable.h"

enum { CRC_STREAMS_FROM = 4096 };

/* a b modulo the polynomial; bit 31 is x**0. */
static uint32_t crc_product(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a; a <<= 1) {
    if (a & 0x80000000u) product ^= b;
    b = b >> 1 ^ (b & 1 ? CRC32C : 0);
  }
  return product;
}

/* x**(8 count) modulo the polynomial: what `count` bytes more do to a CRC. */
static uint32_t crc_shift(int64_t count) {
  uint32_t shift = 0x80000000u, power = 0x00800000u; /* x**0, x**8 */
  for (; count; count >>= 1) {
    if (count & 1) shift = crc_product(power, shift);
    power = crc_product(power, power);
  }
  return shift;
}

static uint64_t load_u64(const uint8_t *bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  return word;
}

/* Three thirds of `third` bytes each, a multiple of 8. */
static uint64_t crc_of_thirds(uint64_t crc, const uint8_t *bytes, int64_t third) {
  uint64_t second = 0, last = 0;
  for (int64_t i = 0; i < third; i += 8) {
    crc = _mm_crc32_u64(crc, load_u64(bytes + i));
    second = _mm_crc32_u64(second, load_u64(bytes + third + i));
    last = _mm_crc32_u64(last, load_u64(bytes + 2 * third + i));
  }
  uint32_t shift = crc_shift(third);
  crc = second ^ crc_product(shift, (uint32_t)crc);
  return last ^ crc_product(shift, (uint32_t)crc);
}

static uint32_t crc32c(uint32_t start, const uint8_t *bytes, int64_t length) {
  uint64_t crc = ~start;
  if (length >= CRC_STREAMS_FROM) {
    int64_t third = length / 24 * 8;
    crc = crc_of_thirds(crc, bytes, third);
    bytes += 3 * third;
    length -= 3 * third;
  }
  for (; length >= 8; length -= 8, bytes += 8)
    crc = _mm_crc32_u64(crc, load_u64(bytes));
  for (; length > 0; length--) crc = _mm_crc32_u8((uint32_t)crc, *bytes++);
  return ~(uint32_t)crc;
}

#endif
