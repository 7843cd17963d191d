/* Everything that is compiled for one instruction set: included once per set, with ISA(f) = f with the set's suffix.
 *
 * It stands between a pair of target pragmas, because vector code is lowered to instructions function by function,
 * before inlining: a helper outside of them would bring its plain SSE form along.
 */

INLINE float_vector ISA(load_float32)(const float *from) { return LOAD_WHOLE(float_vector, from); }
INLINE void ISA(store_float32)(float *to, float_vector v) { STORE_WHOLE(to, v); }
INLINE double_vector ISA(load_float64)(const double *from) { return LOAD_WHOLE(double_vector, from); }
INLINE void ISA(store_float64)(double *to, double_vector v) { STORE_WHOLE(to, v); }

INLINE float_vector ISA(load_bfloat16)(const bfloat16 *from) {
  return (float_vector)(__builtin_convertvector(LOAD_WHOLE(short_vector, from), word_vector) << 16);
}

/* Round to nearest, ties to even; a NaN stays a (quiet) NaN. */
INLINE void ISA(store_bfloat16)(bfloat16 *to, float_vector v) {
  word_vector bits = (word_vector)v, nan = (word_vector)(v != v);
  word_vector rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, quiet = (bits >> 16) | 0x40u;
  STORE_WHOLE(to, __builtin_convertvector((rounded & ~nan) | (quiet & nan), short_vector));
}

/* Store past the caches: an output larger than they are would be read in only to be overwritten. `to` and `bytes` are
 * multiples of 16. */
INLINE void ISA(stream)(void *to, const void *from, size_t bytes) {
#ifdef __SSE2__
  typedef long long chunk __attribute__((vector_size(16)));
  for (size_t at = 0; at < bytes; at += sizeof(chunk))
    __builtin_ia32_movntdq((chunk *)((char *)to + at), LOAD_WHOLE(chunk, (const char *)from + at));
#else
  memcpy(to, from, bytes);
#endif
}

/* Streamed stores are seen by other threads only after this. */
INLINE void ISA(finish_streaming)(void) {
#ifdef __SSE2__
  __builtin_ia32_sfence();
#endif
}

#ifdef __AVX__
INLINE float_vector ISA(root_float)(float_vector v) { return __builtin_ia32_sqrtps256(v); }
INLINE double_vector ISA(root_double)(double_vector v) { return __builtin_ia32_sqrtpd256(v); }
#else
INLINE float_vector ISA(root_float)(float_vector v) {
  for (size_t l = 0; l < sizeof v / sizeof(float); l++) v[l] = sqrtf(v[l]);
  return v;
}
INLINE double_vector ISA(root_double)(double_vector v) {
  for (size_t l = 0; l < sizeof v / sizeof(double); l++) v[l] = sqrt(v[l]);
  return v;
}
#endif

INLINE void ISA(add_doubles)(double *to, const double *from, int64_t count) {
  enum { STEP = sizeof(double_vector) / sizeof(double) };
  int64_t j = 0;
  for (; j + STEP <= count; j += STEP)
    STORE_WHOLE(to + j, LOAD_WHOLE(double_vector, to + j) + LOAD_WHOLE(double_vector, from + j));
  for (; j < count; j++) to[j] += from[j];
}

#include "linear.h"
#include "adam.h"

#define T float
#define A float
#define V float_vector
#define M float_mask
#define NAME(f) ISA(f##_float32)
#define SPLIT 1
#define ROOT ISA(root_float)
#include "vectors.h"
#include "neighbour_sum.h"
#include "layer_norm.h"
#include "standardize.h"

#define T double
#define A double
#define V double_vector
#define M double_mask
#define NAME(f) ISA(f##_float64)
#define SPLIT 0
#define ROOT ISA(root_double)
#include "vectors.h"
#include "neighbour_sum.h"
#include "layer_norm.h"
#include "standardize.h"

#define T bfloat16
#define A float
#define V float_vector
#define M float_mask
#define NAME(f) ISA(f##_bfloat16)
#define SPLIT 0
#define ROOT ISA(root_float)
#include "vectors.h"
#include "neighbour_sum.h"
#include "layer_norm.h"
#include "standardize.h"

#if HAVE_FLOAT16
INLINE float_vector ISA(load_float16)(const float16 *from) {
  return __builtin_convertvector(LOAD_WHOLE(half_vector, from), float_vector);
}

INLINE void ISA(store_float16)(float16 *to, float_vector v) {
  STORE_WHOLE(to, __builtin_convertvector(v, half_vector));
}

#define T float16
#define A float
#define V float_vector
#define M float_mask
#define NAME(f) ISA(f##_float16)
#define SPLIT 0
#define ROOT ISA(root_float)
#include "vectors.h"
#include "neighbour_sum.h"
#include "layer_norm.h"
#include "standardize.h"

#define ALL_TYPES(f) {ISA(f##_float32), ISA(f##_float64), ISA(f##_bfloat16), ISA(f##_float16)}
#else
#define ALL_TYPES(f) {ISA(f##_float32), ISA(f##_float64), ISA(f##_bfloat16), 0}
#endif

static const standardize_kernel ISA(forward_kernels)[4] = ALL_TYPES(forward);
static const standardize_kernel ISA(backward_kernels)[4] = ALL_TYPES(backward);
static const neighbour_sum_kernel ISA(neighbour_sum_kernels)[4] = ALL_TYPES(neighbour_sum);
static const layer_norm_kernel ISA(layer_norm_kernels)[4] = ALL_TYPES(layer_norm);
#undef ALL_TYPES
