#include "kernels.h"
#ifdef HAVE_AVX2
#include <immintrin.h>
#endif
