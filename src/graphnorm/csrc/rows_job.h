/* One call of the kernels that standardize every row by itself: its arrays and how its rows are shared out. */
#pragma once
#include <stdint.h>

enum { SUMMED_ROWS = 64 }; /* a running sum over more rows would lose digits: it goes on in double */

typedef struct {
  int64_t members, rows, channels;
  const void *x, *residual, *dy; /* (members, rows, channels) each; dy is NULL forward, residual may be */
  void *out;                     /* y forward, dx backward */
  const void *weight, *bias;     /* (members, channels) each in the type computed in, or NULL for 1 and 0 */
  void *dweight, *dbias;         /* likewise */
  double eps;
  int64_t relu, threads;
  int64_t stream; /* whether the output goes past the caches */
  /* filled in by the drivers */
  double *partial; /* (shares, members, 2, channels): shares of dweight and dbias */
  int failed;      /* out of memory */
} row_job;
