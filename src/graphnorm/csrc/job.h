/* One call of the standardize kernels: its arrays and how its segments are shared out among threads. */
#pragma once
#include <stdint.h>

enum { WIDE = 8 }; /* vectors to a strip */

enum { CACHED_ELEMENTS = 1 << 15 }; /* of one segment: its inputs and its output stay in the second-level cache */

enum { LIVE = 0, DETACHED = 1, GIVEN = 2 }; /* where statistics come from, as in ops/standardize */

typedef struct {
  int64_t members, rows, channels, segments; /* x is (members, rows, channels); segments are per member */
  const void *x, *residual, *dy;
  void *out;          /* y forward, dx backward */
  const int64_t *ptr; /* (members or 1, segments + 1); NULL: one segment of all rows */
  int64_t ptr_stride; /* segments + 1, or 0 where members share it */
  const int64_t *order; /* (members or 1, rows): the row at each position; NULL: positions are rows */
  int64_t order_stride;
  const void *weight, *bias, *mean_scale; /* (members, channels) each, or NULL for 1, 0, 1 */
  double *mean;                           /* (members, segments, channels) */
  void *var;                              /* likewise, in the type computed in */
  void *dparams[3];                       /* (members, channels) each: of weight, bias, mean_scale; NULL: unwanted */
  double eps;
  int64_t relu, statistics, threads;
  int64_t stream; /* whether the output goes past the caches */
  /* filled in by the drivers */
  void *partial;        /* gradients of the parameters per share; or sums per block of a long segment */
  int64_t long_segment; /* the one being worked on by all threads */
  double *long_dparams; /* and where its gradients of the parameters go */
  int failed;           /* out of memory */
} job;

typedef struct {
  int64_t member, first, last; /* positions [first, last) of the member */
} span;

static inline span span_of(const job *w, int64_t segment) {
  span s = {segment / w->segments, 0, w->rows};
  if (w->ptr) {
    const int64_t *p = w->ptr + s.member * w->ptr_stride + segment % w->segments;
    s.first = p[0] < 0 ? 0 : p[0] > w->rows ? w->rows : p[0];
    s.last = p[1] < s.first ? s.first : p[1] > w->rows ? w->rows : p[1];
  }
  return s;
}

static inline const int64_t *order_of(const job *w, int64_t member) {
  return w->order ? w->order + member * w->order_stride : 0;
}

/* The first segment whose rows start at or after `position`, counted over all members. */
static inline int64_t segment_at(const job *w, int64_t position) {
  int64_t low = 0, high = w->members * w->segments;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    span s = span_of(w, middle);
    if (s.member * w->rows + s.first >= position) high = middle;
    else low = middle + 1;
  }
  return low;
}

/* Segments [*begin, *end) of one share: about equally many rows each. */
static inline void share_bounds(const job *w, int64_t share, int64_t shares, int64_t *begin, int64_t *end) {
  int64_t total = w->members * w->rows;
  *begin = share == 0 ? 0 : segment_at(w, total / shares * share);
  *end = share == shares - 1 ? w->members * w->segments : segment_at(w, total / shares * (share + 1));
}

/* A segment is long when it would keep one thread busy after all others are done; all threads share it then. */
static inline int is_long(const job *w, span s) {
  int64_t n = s.last - s.first;
  return w->threads > 1 && n * w->channels >= (1 << 17) && n * 2 * w->threads > w->members * w->rows;
}

static inline int64_t block_rows(const job *w) {
  int64_t rows = 32768 / w->channels; /* 128 KiB of float: stays in the second-level cache */
  return rows < 8 ? 8 : rows > 128 ? 128 : rows; /* a running sum of more rows would lose digits */
}

static inline int64_t blocks_of(const job *w, span s) {
  return (s.last - s.first + block_rows(w) - 1) / block_rows(w);
}

static inline span block_of(const job *w, span s, int64_t block) {
  int64_t rows = block_rows(w), first = s.first + block * rows;
  span b = {s.member, first, first + rows < s.last ? first + rows : s.last};
  return b;
}

static inline span share_of(span s, int64_t share, int64_t shares) {
  int64_t n = s.last - s.first;
  span part = {s.member, s.first + n * share / shares, s.first + n * (share + 1) / shares};
  return part;
}
