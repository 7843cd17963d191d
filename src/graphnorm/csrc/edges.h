/* One call of the aggregate kernels: its arrays and how its rows are shared out among threads. */
#pragma once
#include <stdint.h>

enum { FORWARD = 0, BACKWARD = 1, OF_EDGES = 2 }; /* y; dx, over the edges reversed; da */

typedef struct {
  const void *at; /* (members or 1, count) int64, or int32 where narrow; NULL: absent */
  int64_t stride; /* from one member to the next, 0 where they share it */
  int64_t narrow;
} indices;

typedef struct {
  int64_t members, rows, edges, channels;
  const void *values;      /* (members, rows, channels): x forward, dy backward; NULL: only features of edges count */
  const void *edge_values; /* (members, edges, channels): features of edges */
  const void *x;           /* backward: x itself, for relu and dw */
  void *out;
  indices rowptr, col, edge_of;
  indices degree;    /* backward, mean: rowptr of the edges ahead */
  const void *scale; /* (members or 1, rows), in the type computed in */
  int64_t scale_stride;
  const void *self_weight; /* (members), in the type computed in; NULL: `constant` in its place */
  double constant;
  int64_t relu, mean, direction, threads;
  double *dw; /* (members); NULL: not wanted */
  /* filled in by the drivers */
  double *partial_dw;   /* (shares, members) */
  void *partial;        /* sums over parts of a long row */
  int64_t long_rows;    /* how many were left for all threads to share */
  int64_t long_row;     /* the one being worked on, counted over all members */
  int failed;           /* out of memory */
} edge_job;

static inline int64_t index_at(const indices *array, int64_t member, int64_t i) {
  int64_t at = member * array->stride + i;
  return array->narrow ? ((const int32_t *)array->at)[at] : ((const int64_t *)array->at)[at];
}

typedef struct {
  int64_t first, last;
} edge_range;

/* The edges of a row, kept inside the member whatever rowptr says. */
static inline edge_range edges_of(const edge_job *w, int64_t member, int64_t row) {
  int64_t first = index_at(&w->rowptr, member, row), last = index_at(&w->rowptr, member, row + 1);
  edge_range r;
  r.first = first < 0 ? 0 : first > w->edges ? w->edges : first;
  r.last = last < r.first ? r.first : last > w->edges ? w->edges : last;
  return r;
}

static inline int64_t neighbour(const edge_job *w, int64_t member, int64_t edge) {
  int64_t c = index_at(&w->col, member, edge);
  return c < 0 ? 0 : c >= w->rows ? w->rows - 1 : c;
}

static inline int64_t feature_of(const edge_job *w, int64_t member, int64_t edge) {
  return w->edge_of.at ? index_at(&w->edge_of, member, edge) : edge;
}

/* The last row that begins at or before the edge. */
static inline int64_t row_of_edge(const edge_job *w, int64_t member, int64_t edge) {
  int64_t low = 0, high = w->rows;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (index_at(&w->rowptr, member, middle) <= edge) low = middle;
    else high = middle;
  }
  return low;
}

/* Work is counted in rows and edges together: the first row, over all members, that has `work` of it before it. */
static inline int64_t row_after(const edge_job *w, int64_t work) {
  int64_t low = 0, high = w->members * w->rows;
  while (low < high) {
    int64_t middle = low + (high - low) / 2, member = middle / w->rows, row = middle % w->rows;
    if (member * (w->rows + w->edges) + row + edges_of(w, member, row).first >= work) high = middle;
    else low = middle + 1;
  }
  return low;
}

static inline void share_of_rows(const edge_job *w, int64_t share, int64_t shares, int64_t *begin, int64_t *end) {
  int64_t total = w->members * (w->rows + w->edges);
  *begin = share == 0 ? 0 : row_after(w, total / shares * share);
  *end = share == shares - 1 ? w->members * w->rows : row_after(w, total / shares * (share + 1));
}

/* More shares than threads: threads that are done early take another. */
static inline int64_t shares_of(const edge_job *w) { return w->threads > 1 ? 4 * w->threads : 1; }

/* A row is long when it would keep one thread busy after all others are done; all threads share it then. */
static inline int is_long_row(const edge_job *w, edge_range r) {
  int64_t n = r.last - r.first;
  return w->threads > 1 && n >= 4096 && n * 4 * w->threads > w->members * (w->rows + w->edges);
}
