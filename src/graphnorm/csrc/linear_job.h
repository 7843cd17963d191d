/* One call of the stacked linear kernels: its arrays and how its rows are shared out among threads. */
#pragma once
#include <stdint.h>

enum { LINEAR_WIDEST = 128 }; /* padded columns */

typedef struct {
  int64_t members, rows, inner, outer;
  int64_t padded;      /* columns of `packed`, or of a part of dW: a multiple of 16 */
  int64_t parts;       /* runs that each member's rows are cut into */
  int64_t threads;
  const float *x;      /* (members, rows, inner) */
  int64_t x_stride;    /* from one member to the next, 0 where they share it */
  const float *packed; /* (members, inner, padded) */
  const float *bias;   /* (members, padded), or NULL */
  const float *g;      /* (members, rows, outer) */
  float *out;          /* (members, rows, outer) */
  float *sums;         /* (members, parts, outer * padded + outer): parts of dW and of db */
} linear_job;
