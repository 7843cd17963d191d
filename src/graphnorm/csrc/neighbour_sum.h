/* Sums over neighbours, forward and backward, for one element type.
 *
 * Included once per type, after vectors.h. The mathematics and the symbols are in ops/neighbour_sum/reference.py. A row is worked through in strips of 8, 4 or 1 vectors of channels, whose sums stay in
 * registers over all its edges; the last strip is moved left to be whole.
 */

enum { NAME(BLOCK) = 128 }; /* a running sum of more edges would lose digits */

INLINE A NAME(scale_of)(const neighbour_sum_job *w, int64_t member, int64_t row) {
  return w->scale ? ((const A *)w->scale)[member * w->scale_stride + row] : (A)1;
}

INLINE A NAME(self_weight_of)(const neighbour_sum_job *w, int64_t member) {
  return w->self_weight ? ((const A *)w->self_weight)[member] : (A)w->constant;
}

/* The factor of the values that a neighbour sends. */
INLINE A NAME(sent)(const neighbour_sum_job *w, int64_t member, int64_t row) {
  A factor = NAME(scale_of)(w, member, row);
  if (w->degree.at) {
    int64_t n = index_at(&w->degree, member, row + 1) - index_at(&w->degree, member, row);
    factor /= (A)(n < 1 ? 1 : n);
  }
  return factor;
}

/* ---- sums over the edges of a row -------------------------------------------------------------------- */

/* The kind of edges, decided once per call to keep the loop over edges free of it. */
enum { NAME(ANY), NAME(ROWS_ALONE), NAME(SCALED_ROWS) };

INLINE int NAME(kind_of_edges)(const neighbour_sum_job *w) {
  if (w->relu || (w->values && w->edge_values)) return NAME(ANY);
  return w->scale || w->degree.at ? NAME(SCALED_ROWS) : NAME(ROWS_ALONE);
}

/* Adds edges [begin, end) to channels [at, at + vectors * LANES) of a row. */
INLINE void NAME(add_edges)(const neighbour_sum_job *w, int64_t member, int64_t row, int64_t begin, int64_t end,
                            int64_t at, const int vectors, const int64_t lanes, const int kind, V *sum) {
  const int64_t C = w->channels;
  const T *values = w->values ? (const T *)w->values + member * w->rows * C + at : 0;
  const T *features = w->edge_values ? (const T *)w->edge_values + member * w->edges * C + at : 0;
  if (kind != NAME(ANY)) {
    for (int64_t e = begin; e < end; e++) {
      const int64_t c = values ? neighbour(w, member, e) : feature_of(w, member, e);
      const T *here = (values ? values : features) + c * C;
      const A factor = kind == NAME(SCALED_ROWS) ? NAME(sent)(w, member, c) : (A)1;
      EACH(v) {
        V value = NAME(load_some)(here + v * NAME(LANES), lanes);
        sum[v] += kind == NAME(SCALED_ROWS) ? value * factor : value;
      }
    }
    return;
  }
  const T *x_row = (const T *)w->x + (w->x ? (member * w->rows + row) * C + at : 0);
  const int relu = w->relu != 0, ahead = w->direction == FORWARD;
  for (int64_t e = begin; e < end; e++) {
    const int64_t c = values ? neighbour(w, member, e) : 0;
    const T *value = values ? values + c * C : 0, *feature = features ? features + feature_of(w, member, e) * C : 0;
    const A factor = NAME(sent)(w, member, c);
    EACH(v) {
      V here = value ? NAME(load_some)(value + v * NAME(LANES), lanes) : (V){0};
      V own = feature ? NAME(load_some)(feature + v * NAME(LANES), lanes) : (V){0};
      if (ahead) {
        here += own;
        if (relu) here = NAME(zero_where)(here < 0, here);
      } else if (relu) {
        here = NAME(zero_where)(NAME(load_some)(x_row + v * NAME(LANES), lanes) + own <= 0, here);
      }
      sum[v] += here * factor;
    }
  }
}

/* The sum over a range of edges: in blocks, so that no running sum gets long. */
INLINE void NAME(sum_edges)(const neighbour_sum_job *w, int64_t member, int64_t row, edge_range range, int64_t at,
                            const int vectors, const int64_t lanes, const int kind, V *total) {
  EACH(v) total[v] = (V){0};
  for (int64_t begin = range.first; begin < range.last; begin += NAME(BLOCK)) {
    const int64_t end = begin + NAME(BLOCK) < range.last ? begin + NAME(BLOCK) : range.last;
    V sum[8];
    EACH(v) sum[v] = (V){0};
    NAME(add_edges)(w, member, row, begin, end, at, vectors, lanes, kind, sum);
    EACH(v) total[v] += sum[v];
  }
}

/* The row's own factors and its own part. */
INLINE void NAME(finish_row)(const neighbour_sum_job *w, int64_t member, int64_t row, int64_t count, int64_t at,
                             const int vectors, const int64_t lanes, const V *total) {
  const int64_t from = (member * w->rows + row) * w->channels + at;
  const A s = NAME(scale_of)(w, member, row), self = w->values ? NAME(self_weight_of)(w, member) * s * s : (A)0;
  const A factor = w->mean && w->direction == FORWARD ? s / (A)(count < 1 ? 1 : count) : s;
  EACH(v) {
    V y = total[v] * factor;
    if (self != 0) y += self * NAME(load_some)((const T *)w->values + from + v * NAME(LANES), lanes);
    NAME(store_some)((T *)w->out + from + v * NAME(LANES), y, lanes, 0);
  }
}

typedef struct {
  edge_range range; /* edges to add up */
  int64_t count;    /* edges of the whole row */
  A *sums;          /* NULL: finish the row; or where the sums go, (channels) */
} NAME(row_task);

INLINE void NAME(row_strip)(const neighbour_sum_job *w, int64_t member, int64_t row, const NAME(row_task) *task,
                            int64_t at, const int vectors, const int64_t lanes, const int kind) {
  V total[8];
  NAME(sum_edges)(w, member, row, task->range, at, vectors, lanes, kind, total);
  if (!task->sums) {
    NAME(finish_row)(w, member, row, task->count, at, vectors, lanes, total);
    return;
  }
  for (int v = 0; v < vectors; v++)
    for (int64_t l = 0; l < lanes; l++) task->sums[at + v * NAME(LANES) + l] = total[v][l];
}

INLINE void NAME(row_strips)(const neighbour_sum_job *w, int64_t member, int64_t row, const NAME(row_task) *task,
                             const int kind) {
  const int64_t C = w->channels, step = NAME(LANES);
  if (C < step) {
    NAME(row_strip)(w, member, row, task, 0, 1, C, kind);
    return;
  }
  int64_t at = 0;
  for (; at + 8 * step <= C; at += 8 * step) NAME(row_strip)(w, member, row, task, at, 8, step, kind);
  if (at + 4 * step <= C) NAME(row_strip)(w, member, row, task, at, 4, step, kind), at += 4 * step;
  for (; at < C; at += step) NAME(row_strip)(w, member, row, task, at + step > C ? C - step : at, 1, step, kind);
}

static void NAME(whole_row)(const neighbour_sum_job *w, int64_t member, int64_t row, const NAME(row_task) *task) {
  switch (NAME(kind_of_edges)(w)) {
  case NAME(ROWS_ALONE): NAME(row_strips)(w, member, row, task, NAME(ROWS_ALONE)); break;
  case NAME(SCALED_ROWS): NAME(row_strips)(w, member, row, task, NAME(SCALED_ROWS)); break;
  default: NAME(row_strips)(w, member, row, task, NAME(ANY));
  }
}

/* ---- gradients of self weight and of edges ------------------------------------------------------------- */

/* s² <x, dy> of a row: what it adds to dw. */
INLINE double NAME(own_product)(const neighbour_sum_job *w, int64_t member, int64_t row) {
  const int64_t C = w->channels, from = (member * w->rows + row) * C;
  const T *x = (const T *)w->x + from, *dy = (const T *)w->values + from;
  V sum = {0};
  for (int64_t at = 0; at < C; at += NAME(LANES)) {
    const int64_t lanes = C - at < NAME(LANES) ? C - at : NAME(LANES);
    sum += NAME(load_some)(x + at, lanes) * NAME(load_some)(dy + at, lanes);
  }
  double product = 0, s = NAME(scale_of)(w, member, row);
  for (int l = 0; l < NAME(LANES); l++) product += sum[l];
  return product * s * s;
}

/* Edges [begin, end) of a row. */
static void NAME(gradients_of_edges)(const neighbour_sum_job *w, int64_t member, int64_t row, edge_range range,
                                     int64_t begin, int64_t end) {
  const int64_t C = w->channels, step = NAME(LANES);
  const T *dy = (const T *)w->values + (member * w->rows + row) * C;
  A own = NAME(scale_of)(w, member, row);
  if (w->mean) own /= (A)(range.last - range.first);
  T *first = 0; /* where all edges of a row have the same gradient it is computed once */
  for (int64_t e = begin; e < end; e++) {
    const int64_t to = (member * w->edges + feature_of(w, member, e)) * C;
    if (!w->relu && !w->scale) {
      if (first) {
        memcpy((T *)w->out + to, first, (size_t)C * sizeof(T));
        continue;
      }
      first = (T *)w->out + to;
    }
    const int64_t c = w->col.at ? neighbour(w, member, e) : 0;
    const A factor = w->scale ? own * NAME(scale_of)(w, member, c) : own;
    const T *x = w->x ? (const T *)w->x + (member * w->rows + c) * C : 0;
    for (int64_t next = 0; next < C; next += step) {
      const int64_t at = C < step ? 0 : next + step > C ? C - step : next, lanes = C < step ? C : step;
      V value = NAME(load_some)(dy + at, lanes) * factor;
      if (w->relu) {
        V before = NAME(load_some)((const T *)w->edge_values + to + at, lanes);
        if (x) before += NAME(load_some)(x + at, lanes);
        value = NAME(zero_where)(before <= 0, value);
      }
      NAME(store_some)((T *)w->out + to + at, value, lanes, 0);
    }
  }
}

/* Each share has equally many edges, padding included, and goes through their rows; edges of no row get zeros. */
static void NAME(edges_share)(void *task, int64_t share, int64_t shares) {
  const neighbour_sum_job *w = (const neighbour_sum_job *)task;
  const int64_t total = w->members * w->edges, start = total * share / shares, stop = total * (share + 1) / shares;
  for (int64_t k = start, row = 0; k < stop;) {
    const int64_t member = k / w->edges, edge = k % w->edges;
    if (k == start || edge == 0) row = row_of_edge(w, member, edge);
    while (row + 1 < w->rows && edges_of(w, member, row).last <= edge) row++;
    const int64_t left = stop - k < w->edges - edge ? stop - k : w->edges - edge;
    const edge_range range = edges_of(w, member, row);
    int64_t end = edge + 1;
    if (range.first <= edge && edge < range.last) {
      end = range.last - edge < left ? range.last : edge + left;
      NAME(gradients_of_edges)(w, member, row, range, edge, end);
    } else {
      const int64_t to = (member * w->edges + feature_of(w, member, edge)) * w->channels;
      memset((T *)w->out + to, 0, (size_t)w->channels * sizeof(T));
    }
    k += end - edge;
  }
}

/* ---- rows of several groups of edges, and sharing out --------------------------------------------------------- */

/* Adds up the sums of a row's groups, (groups, channels), and finishes the row. */
static void NAME(join_groups)(const neighbour_sum_job *w, int64_t member, int64_t row, edge_range all, A *sums) {
  const int64_t C = w->channels, groups = groups_of(all);
  for (int64_t j = 0; j < C; j++) {
    double total = 0;
    for (int64_t group = 0; group < groups; group++) total += sums[group * C + j];
    sums[j] = (A)total;
  }
  for (int64_t at = 0; at < C; at += NAME(LANES)) {
    const int64_t lanes = C - at < NAME(LANES) ? C - at : NAME(LANES);
    V total = {0};
    for (int64_t l = 0; l < lanes; l++) total[l] = sums[at + l];
    NAME(finish_row)(w, member, row, all.last - all.first, at, 1, lanes, &total);
  }
}

static void NAME(sum_group)(const neighbour_sum_job *w, int64_t member, int64_t row, edge_range all, int64_t group,
                            A *sums) {
  const NAME(row_task) task = {group_of(all, group), all.last - all.first, sums + group * w->channels};
  NAME(whole_row)(w, member, row, &task);
}

static void NAME(row_of_groups)(neighbour_sum_job *w, int64_t member, int64_t row, edge_range all) {
  A *sums = malloc((size_t)(groups_of(all) * w->channels) * sizeof(A));
  if (!sums) { w->failed = 1; return; }
  for (int64_t group = 0; group < groups_of(all); group++) NAME(sum_group)(w, member, row, all, group, sums);
  NAME(join_groups)(w, member, row, all, sums);
  free(sums);
}

static void NAME(neighbour_sum_share)(void *task, int64_t share, int64_t shares) {
  neighbour_sum_job *w = (neighbour_sum_job *)task;
  int64_t begin, end;
  share_of_rows(w, share, shares, &begin, &end);
  for (int64_t k = begin; k < end; k++) {
    const int64_t member = k / w->rows, row = k % w->rows;
    const edge_range range = edges_of(w, member, row);
    if (w->dw) w->row_dw[k] = NAME(own_product)(w, member, row);
    if (range.last - range.first <= GROUP_EDGES) {
      const NAME(row_task) whole = {range, range.last - range.first, 0};
      NAME(whole_row)(w, member, row, &whole);
    } else if (is_long_row(w, range)) {
      __atomic_fetch_add(&w->long_rows, 1, __ATOMIC_RELAXED);
    } else {
      NAME(row_of_groups)(w, member, row, range);
    }
  }
}

static void NAME(long_row_share)(void *task, int64_t group, int64_t groups) {
  neighbour_sum_job *w = (neighbour_sum_job *)task;
  const int64_t member = w->long_row / w->rows, row = w->long_row % w->rows;
  (void)groups;
  NAME(sum_group)(w, member, row, edges_of(w, member, row), group, (A *)w->partial);
}

/* In order of the rows, four at a time. */
INLINE double NAME(sum_of_rows)(const double *values, int64_t rows) {
  double_vector sum = {0};
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) sum += LOAD_WHOLE(double_vector, values + r);
  for (; r < rows; r++) sum[r % 4] += values[r];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void NAME(neighbour_sum)(neighbour_sum_job *w) {
  const int64_t shares = shares_of(w);
  if (w->direction == EDGE_GRADIENT) {
    run_shares(NAME(edges_share), w, shares, w->threads);
    return;
  }
  if (w->dw) {
    w->row_dw = malloc((size_t)(w->members * w->rows) * sizeof(double));
    if (!w->row_dw) { w->failed = 1; return; }
  }
  run_shares(NAME(neighbour_sum_share), w, shares, w->threads);
  for (int64_t m = 0; m < w->members && w->dw; m++) w->dw[m] = NAME(sum_of_rows)(w->row_dw + m * w->rows, w->rows);
  free(w->row_dw);
  for (int64_t k = 0; k < w->members * w->rows && w->long_rows; k++) {
    const edge_range all = edges_of(w, k / w->rows, k % w->rows);
    if (!is_long_row(w, all)) continue;
    w->long_row = k;
    w->partial = malloc((size_t)(groups_of(all) * w->channels) * sizeof(A));
    if (!w->partial) { w->failed = 1; return; }
    run_shares(NAME(long_row_share), w, groups_of(all), w->threads);
    NAME(join_groups)(w, k / w->rows, k % w->rows, all, (A *)w->partial);
    free(w->partial);
  }
}
