/* The four element types a tensor may have, and the type each is computed in. */
#pragma once
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* One binary for every x86-64 machine: the loops are compiled three times and chosen at load time. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define DISPATCHED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DISPATCHED
#endif

typedef struct {
  uint16_t bits;
} bfloat16;

INLINE float bfloat16_to_float(bfloat16 value) {
  uint32_t wide = (uint32_t)value.bits << 16;
  float out;
  memcpy(&out, &wide, sizeof out);
  return out;
}

/* Round to nearest, ties to even; a NaN stays a (quiet) NaN. */
INLINE bfloat16 float_to_bfloat16(float value) {
  uint32_t wide;
  memcpy(&wide, &value, sizeof wide);
  uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;
  uint32_t quiet_nan = (wide >> 16) | 0x40u;
  bfloat16 out = {(uint16_t)(value == value ? rounded : quiet_nan)};
  return out;
}

#if defined(__FLT16_MAX__)
#define HAVE_FLOAT16 1
typedef _Float16 float16;
#else
#define HAVE_FLOAT16 0
#endif
