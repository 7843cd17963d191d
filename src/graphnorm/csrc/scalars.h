/* The four element types a tensor may have, and vectors of the two types they are computed in.
 *
 * Vectors are 32 bytes by GCC's and clang's vector extension: one instruction with AVX, two with SSE or NEON.
 */
#pragma once
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { VECTOR_BYTES = 32 };
typedef float float_vector __attribute__((vector_size(VECTOR_BYTES)));
typedef double double_vector __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t float_mask __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t double_mask __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t word_vector __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t short_vector __attribute__((vector_size(VECTOR_BYTES / 2)));

typedef uint16_t bfloat16; /* the upper half of a float */

#if defined(__FLT16_MAX__)
#define HAVE_FLOAT16 1
typedef _Float16 float16;
typedef _Float16 half_vector __attribute__((vector_size(VECTOR_BYTES / 2)));
#else
#define HAVE_FLOAT16 0
#endif

/* A loop over the vectors of a strip, of which there are `vectors`: a constant, at most 8. */
#define EACH(v) _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++)

/* memcpy of a whole vector compiles to one unaligned load or store. */
#define LOAD_WHOLE(type, from) ({ type v_; memcpy(&v_, (from), sizeof v_); v_; })
#define STORE_WHOLE(to, v) do { __typeof__(v) v_ = (v); memcpy((to), &v_, sizeof v_); } while (0)
