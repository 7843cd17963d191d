/* One call of each kernel: its arrays, and how its work is divided among threads. */
#pragma once
#include <stdint.h>

/* ---- standardize ---------------------------------------------------------------------------------------------- */

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
  int64_t cut_members;   /* backward: whether threads share members */
  double *small, *large; /* (members, [parts if so,] 3, channels): gradients of the parameters, see `part_rows` */
  void *partial;         /* sums per block of a long segment */
  int64_t long_segment;  /* the one being worked on by all threads */
  double *long_dparams;  /* and where its gradients of the parameters go */
  int failed;            /* out of memory */
  void *coefficients;    /* in place of the rows of `out`, which is NULL then: planes of (segments, C), of A; */
  int64_t coefficient_plane; /* forward mean, scale and offset, backward constant and slope */
} standardize_job;

typedef struct {
  int64_t member, first, last; /* positions [first, last) of the member */
} span;

static inline span span_of(const standardize_job *w, int64_t segment) {
  span s = {segment / w->segments, 0, w->rows};
  if (w->ptr) {
    const int64_t *p = w->ptr + s.member * w->ptr_stride + segment % w->segments;
    s.first = p[0] < 0 ? 0 : p[0] > w->rows ? w->rows : p[0];
    s.last = p[1] < s.first ? s.first : p[1] > w->rows ? w->rows : p[1];
  }
  return s;
}

static inline const int64_t *order_of(const standardize_job *w, int64_t member) {
  return w->order ? w->order + member * w->order_stride : 0;
}

/* The first segment whose rows start at or after `position`, counted over all members. */
static inline int64_t segment_at(const standardize_job *w, int64_t position) {
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
static inline void share_bounds(const standardize_job *w, int64_t share, int64_t shares, int64_t *begin, int64_t *end) {
  int64_t total = w->members * w->rows;
  *begin = share == 0 ? 0 : segment_at(w, total / shares * share);
  *end = share == shares - 1 ? w->members * w->segments : segment_at(w, total / shares * (share + 1));
}

enum { LARGE_ELEMENTS = 1 << 17 };

static inline int is_large(const standardize_job *w, span s) {
  return (s.last - s.first) * w->channels >= LARGE_ELEMENTS;
}

/* A large segment is long when it would keep one thread busy after all others are done; all threads share it then. */
static inline int is_long(const standardize_job *w, span s) {
  return w->threads > 1 && is_large(w, s) && (s.last - s.first) * 2 * w->threads > w->members * w->rows;
}

/* The gradients of the parameters are summed over the segments that begin in the same part of a member's rows, and over
 * the parts in order; large segments are kept apart, and at most one of them begins in a part. So the sums depend
 * neither on the number of threads nor on that of members. */
static inline int64_t part_rows(const standardize_job *w) {
  int64_t rows = LARGE_ELEMENTS / w->channels;
  return rows < 1 ? 1 : rows > 512 ? 512 : rows;
}

static inline int64_t parts_of(const standardize_job *w) { return (w->rows + part_rows(w) - 1) / part_rows(w); }

static inline int64_t block_rows(const standardize_job *w) {
  int64_t rows = 32768 / w->channels; /* 128 KiB of float: stays in the second-level cache */
  return rows < 8 ? 8 : rows > 128 ? 128 : rows; /* a running sum of more rows would lose digits */
}

static inline int64_t blocks_of(const standardize_job *w, span s) {
  return (s.last - s.first + block_rows(w) - 1) / block_rows(w);
}

/* Blocks of a segment whose statistics are taken one after another, each about the mean of the one before. */
enum { BLOCKS_IN_TURN = 4 };

static inline span block_of(const standardize_job *w, span s, int64_t block) {
  int64_t rows = block_rows(w), first = s.first + block * rows;
  span b = {s.member, first, first + rows < s.last ? first + rows : s.last};
  return b;
}

static inline span share_of(span s, int64_t share, int64_t shares) {
  int64_t n = s.last - s.first;
  span part = {s.member, s.first + n * share / shares, s.first + n * (share + 1) / shares};
  return part;
}

/* ---- neighbour_sum -------------------------------------------------------------------------------------------- */

enum { FORWARD = 0, BACKWARD = 1, EDGE_GRADIENT = 2 }; /* y; dx, over the edges reversed; da */

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
  double *row_dw;       /* (members, rows): what each row adds to dw */
  void *partial;        /* (groups, channels): sums over the groups of edges of a long row */
  int64_t long_rows;    /* how many were left for all threads to share */
  int64_t long_row;     /* the one being worked on, counted over all members */
  int failed;           /* out of memory */
} neighbour_sum_job;

static inline int64_t index_at(const indices *array, int64_t member, int64_t i) {
  int64_t at = member * array->stride + i;
  return array->narrow ? ((const int32_t *)array->at)[at] : ((const int64_t *)array->at)[at];
}

typedef struct {
  int64_t first, last;
} edge_range;

/* The edges of a row are summed in groups of so many, and the groups in double, in order: the same whether one thread has
 * the row or all of them. */
enum { GROUP_EDGES = 1024 };

static inline int64_t groups_of(edge_range r) { return (r.last - r.first + GROUP_EDGES - 1) / GROUP_EDGES; }

static inline edge_range group_of(edge_range r, int64_t group) {
  const int64_t first = r.first + group * GROUP_EDGES;
  edge_range part = {first, first + GROUP_EDGES < r.last ? first + GROUP_EDGES : r.last};
  return part;
}

/* The edges of a row, kept inside the member whatever rowptr says. */
static inline edge_range edges_of(const neighbour_sum_job *w, int64_t member, int64_t row) {
  int64_t first = index_at(&w->rowptr, member, row), last = index_at(&w->rowptr, member, row + 1);
  edge_range r;
  r.first = first < 0 ? 0 : first > w->edges ? w->edges : first;
  r.last = last < r.first ? r.first : last > w->edges ? w->edges : last;
  return r;
}

static inline int64_t neighbour(const neighbour_sum_job *w, int64_t member, int64_t edge) {
  int64_t c = index_at(&w->col, member, edge);
  return c < 0 ? 0 : c >= w->rows ? w->rows - 1 : c;
}

static inline int64_t feature_of(const neighbour_sum_job *w, int64_t member, int64_t edge) {
  return w->edge_of.at ? index_at(&w->edge_of, member, edge) : edge;
}

/* The last row that begins at or before the edge. */
static inline int64_t row_of_edge(const neighbour_sum_job *w, int64_t member, int64_t edge) {
  int64_t low = 0, high = w->rows;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (index_at(&w->rowptr, member, middle) <= edge) low = middle;
    else high = middle;
  }
  return low;
}

/* Work is counted in rows and edges together: the first row, over all members, that has `work` of it before it. */
static inline int64_t row_after(const neighbour_sum_job *w, int64_t work) {
  int64_t low = 0, high = w->members * w->rows;
  while (low < high) {
    int64_t middle = low + (high - low) / 2, member = middle / w->rows, row = middle % w->rows;
    if (member * (w->rows + w->edges) + row + edges_of(w, member, row).first >= work) high = middle;
    else low = middle + 1;
  }
  return low;
}

static inline void share_of_rows(const neighbour_sum_job *w, int64_t share, int64_t shares, int64_t *begin,
                                 int64_t *end) {
  int64_t total = w->members * (w->rows + w->edges);
  *begin = share == 0 ? 0 : row_after(w, total / shares * share);
  *end = share == shares - 1 ? w->members * w->rows : row_after(w, total / shares * (share + 1));
}

/* More shares than threads: threads that are done early take another. */
static inline int64_t shares_of(const neighbour_sum_job *w) { return w->threads > 1 ? 4 * w->threads : 1; }

/* A row is long when it would keep one thread busy after all others are done; all threads share it then. */
static inline int is_long_row(const neighbour_sum_job *w, edge_range r) {
  int64_t n = r.last - r.first;
  return w->threads > 1 && n >= 4096 && n * 4 * w->threads > w->members * (w->rows + w->edges);
}

/* ---- layer_norm ----------------------------------------------------------------------------------------------- */

enum { SUMMED_ROWS = 64 }; /* a running sum over more rows would lose digits: it goes on in double */

/* The gradients of the parameters are summed over chunks of a member's rows, and these added up in order: so they depend
 * neither on the number of threads nor on that of members. A multiple of SUMMED_ROWS. */
enum { CHUNK_ROWS = 256 };

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
  int64_t cut_members; /* backward: whether threads share members */
  double *partial;     /* (members, [chunks if so,] 2, channels): dweight and dbias */
  int failed;          /* out of memory */
} layer_norm_job;

static inline int64_t layer_norm_chunks(const layer_norm_job *w) { return (w->rows + CHUNK_ROWS - 1) / CHUNK_ROWS; }

/* ---- linear --------------------------------------------------------------------------------------------------- */

enum { LINEAR_WIDEST = 256 }; /* rows and padded columns of a weight */
enum { LINEAR_BLOCK = 512 };  /* rows of x whose products are summed by themselves */

typedef struct {
  int64_t members, rows, inner, outer;
  int64_t padded;      /* columns of `packed`, or of dW in `sums`: a multiple of 32 */
  int64_t parts;       /* of the product: runs that each member's rows are cut into */
  int64_t threads;
  const float *x;      /* (members, rows, inner) */
  int64_t x_stride;    /* from one member to the next, 0 where they share it */
  const float *packed; /* (members, inner, padded) */
  const float *bias;   /* (members, padded), or NULL */
  const float *g;      /* (members, rows, outer) */
  float *out;          /* (members, rows, outer) */
  float *sums;         /* (members, outer * padded + outer): dW and db */
  float *block_sums;   /* (members, blocks, outer * padded + outer), for blocks as tasks; NULL: members are the tasks */
} linear_job;

static inline int64_t linear_blocks(const linear_job *w) {
  return w->rows > LINEAR_BLOCK ? (w->rows + LINEAR_BLOCK - 1) / LINEAR_BLOCK : 1;
}

/* ---- adam ----------------------------------------------------------------------------------------------------- */

typedef struct {
  int64_t entries;
  float *parameters, *first, *second; /* (entries): changed in place */
  const float *gradient;              /* (entries) */
  const int32_t *owner;               /* (entries): the member of each, in runs */
  const float *rate, *root, *decay;   /* (members) */
  const uint8_t *active;              /* (members): whether it takes the step */
  float first_share, second_share, epsilon; /* 1 - beta1, 1 - beta2 */
} adam_job;
