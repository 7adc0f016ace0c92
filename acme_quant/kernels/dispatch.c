/* Which kernels this CPU can run. */
#include <string.h>

#include "kernels.h"

int kernels_supported(const kernel_table *tables[MAX_ISAS]) {
  int count = 0;
  tables[count++] = &kernels_portable;
#ifdef HAVE_AVX2
  __builtin_cpu_init();
  /* crc32c uses SSE4.2, which comes with every AVX2 CPU. The name "f16c" is not
   * known to every compiler's __builtin_cpu_supports; CPUs with AVX2 and FMA have
   * it. */
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    tables[count++] = &kernels_avx2;
#endif
  return count;
}

const kernel_table *kernels_find(const char *isa) {
  const kernel_table *tables[MAX_ISAS];
  int count = kernels_supported(tables);
  if (isa == NULL || *isa == '\0') return tables[count - 1];
  for (int i = 0; i < count; i++)
    if (strcmp(tables[i]->isa, isa) == 0) return tables[i];
  return NULL;
}
