/* What portable.c has beside its kernels. */
#ifndef ACME_QUANT_PORTABLE_H
#define ACME_QUANT_PORTABLE_H

/* The reversed polynomial of CRC-32C. */
#define CRC32C 0x82f63b78u

/* Fills the tables of `crc32c`; once, before the first use of any kernel. */
void portable_prepare(void);

#endif
