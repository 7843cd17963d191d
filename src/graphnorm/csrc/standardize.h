/* Standardize rows segment by segment, forward and backward, for one element type.
 *
 * Included once per type, after vectors.h, with
 *   ROOT     the square root of V
 *   SPLIT    whether rows without activation and residual get separate loops
 *
 * The mathematics, the symbols and the reason for this form of the gradient are in
 * ops/standardize/reference.py. Per segment and channel, with centre m (the mean rounded to A) and
 * rest = mean - m, the output is  scale * (x - m) + offset.
 *
 * A segment is worked through in strips: WIDE vectors of neighbouring channels (64 of float: all of the paper's
 * models), over all rows. The sums of a strip stay in registers, and a small graph in the cache between two passes.
 */

enum { NAME(WIDEST) = WIDE * NAME(LANES) };

/* Channels [at, at + vectors * LANES) of segment `index`; `lanes` < LANES only where there are fewer channels than
 * that. The last strip is moved left to be whole: its first `known` channels were done by the strip before. */
typedef struct {
  const standardize_job *w;
  int64_t index, at, known;
  span rows;
  const int64_t *order;
  int64_t base; /* of the member in x */
} NAME(strip);

#define ROW(array, i) ((array) + (order ? order[i] : (i)) * C)

INLINE int NAME(any)(M mask) {
  A lanes = 0;
  for (int l = 0; l < NAME(LANES); l++) lanes += mask[l] != 0;
  return lanes != 0;
}

/* ---- statistics ------------------------------------------------------------------------------------- */

/* A mean as the sum of two A: its rounded value and the rest. With the variance, all that is kept of a segment. */
typedef struct {
  V mean[WIDE], rest[WIDE], var[WIDE];
} NAME(statistics);

INLINE void NAME(set_mean)(NAME(statistics) *t, int v, NAME(doubles) mean) {
  t->mean[v] = __builtin_convertvector(mean, V);
  t->rest[v] = __builtin_convertvector(mean - __builtin_convertvector(t->mean[v], NAME(doubles)), V);
}

INLINE NAME(doubles) NAME(get_mean)(const NAME(statistics) *t, int v) {
  return __builtin_convertvector(t->mean[v], NAME(doubles)) + __builtin_convertvector(t->rest[v], NAME(doubles));
}

/* The mean of a few rows from `first` on: near the mean of what follows, and cheap. */
INLINE void NAME(guess_mean)(const NAME(strip) *s, int64_t first, int64_t last, const int vectors, const int64_t lanes,
                             V *guess) {
  const int64_t C = s->w->channels, *order = s->order, stop = first + 8 < last ? first + 8 : last;
  const T *x = (const T *)s->w->x + s->base + s->at;
  V sum[WIDE];
  EACH(v) guess[v] = NAME(load_some)(ROW(x, first) + v * NAME(LANES), lanes), sum[v] = (V){0};
  for (int64_t i = first + 1; i < stop; i++)
    EACH(v) sum[v] += NAME(load_some)(ROW(x, i) + v * NAME(LANES), lanes) - guess[v];
  EACH(v) guess[v] += sum[v] * ((A)1 / (A)(stop - first));
}

/* Statistics of positions [first, last), not empty, in one pass about a pivot. Where the pivot turns out more than four
 * standard deviations off, the pass is repeated about the mean it found. Rows are added up four at a time: that is
 * quicker, and the fewer additions to a running sum, the fewer of its digits are lost. */
INLINE void NAME(block_statistics)(const NAME(strip) *s, int64_t first, int64_t last, const int vectors,
                                   const int64_t lanes, V *pivot, NAME(statistics) *t) {
  const int64_t C = s->w->channels, *order = s->order, n = last - first;
  const T *x = (const T *)s->w->x + s->base + s->at;
  const A per_row = (A)1 / (A)n;
  V sum[WIDE], square[WIDE];
  for (int attempt = 0; attempt < 2; attempt++) {
    int64_t i = first;
    EACH(v) sum[v] = square[v] = (V){0};
    for (; i + 4 <= last; i += 4) {
      const T *row0 = ROW(x, i), *row1 = ROW(x, i + 1), *row2 = ROW(x, i + 2), *row3 = ROW(x, i + 3);
      EACH(v) {
        V d0 = NAME(load_some)(row0 + v * NAME(LANES), lanes) - pivot[v];
        V d1 = NAME(load_some)(row1 + v * NAME(LANES), lanes) - pivot[v];
        V d2 = NAME(load_some)(row2 + v * NAME(LANES), lanes) - pivot[v];
        V d3 = NAME(load_some)(row3 + v * NAME(LANES), lanes) - pivot[v];
        sum[v] += (d0 + d1) + (d2 + d3);
        square[v] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
      }
    }
    for (; i < last; i++) {
      const T *row = ROW(x, i);
      EACH(v) {
        V d = NAME(load_some)(row + v * NAME(LANES), lanes) - pivot[v];
        sum[v] += d;
        square[v] += d * d;
      }
    }
    M cancelled = {0};
    EACH(v) {
      V shift = sum[v] * per_row, centred = square[v] - shift * sum[v];
      cancelled |= (M)(square[v] > 16 * centred);
      t->var[v] = NAME(zero_where)(centred < 0, centred) * per_row;
      V mean = pivot[v] + shift, back = mean - pivot[v]; /* pivot + shift = mean + rest, exactly */
      t->mean[v] = mean;
      t->rest[v] = (pivot[v] - (mean - back)) + (shift - back);
    }
    EACH(v) pivot[v] = t->mean[v];
    if (n <= 16 || !NAME(any)(cancelled)) return;
  }
}

/* Join a block (mean_b, m2_b; n_b rows) to (mean, m2; n rows). */
INLINE void NAME(join)(int64_t count, int64_t n, double *restrict mean, double *restrict m2, int64_t n_b,
                       const double *restrict mean_b, const double *restrict m2_b) {
  const double share = (double)n_b / (double)(n + n_b), weight = (double)n * share;
  for (int64_t j = 0; j < count; j++) {
    double gap = mean_b[j] - mean[j];
    mean[j] += gap * share;
    m2[j] += m2_b[j] + gap * gap * weight;
  }
}

/* mean and m2 = n var as doubles. */
INLINE void NAME(widen)(const NAME(statistics) *t, int64_t n, const int vectors, double *mean, double *m2) {
  EACH(v) {
    STORE_WHOLE(mean + v * NAME(LANES), NAME(get_mean)(t, v));
    STORE_WHOLE(m2 + v * NAME(LANES), __builtin_convertvector(t->var[v], NAME(doubles)) * (double)n);
  }
}

/* Two numbers per channel of a block, into an array (2, C) of all channels. */
INLINE void NAME(copy_totals)(const NAME(strip) *s, const int vectors, const int64_t lanes, double *totals,
                              const double *first, const double *second) {
  const size_t bytes = (size_t)((vectors - 1) * NAME(LANES) + lanes) * sizeof(double);
  memcpy(totals + s->at, first, bytes);
  memcpy(totals + s->w->channels + s->at, second, bytes);
}

/* Statistics of a strip block by block, so that sums in A stay short; a block begins about the mean of the one before, or
 * every BLOCKS_IN_TURN blocks about a guess, so that threads may begin there. The blocks are joined in double, or their
 * mean and m2 written one by one to `totals`, (blocks, 2, C). */
INLINE void NAME(strip_statistics)(const NAME(strip) *s, const int vectors, const int64_t lanes, NAME(statistics) *t,
                                   double *totals) {
  const int64_t blocks = blocks_of(s->w, s->rows), n = s->rows.last - s->rows.first;
  double mean[NAME(WIDEST)], m2[NAME(WIDEST)], mean_b[NAME(WIDEST)], m2_b[NAME(WIDEST)];
  V pivot[WIDE];
  EACH(v) t->mean[v] = t->rest[v] = t->var[v] = (V){0};
  if (blocks) NAME(guess_mean)(s, s->rows.first, s->rows.last, vectors, lanes, pivot);
  for (int64_t b = 0; b < blocks; b++) {
    span part = block_of(s->w, s->rows, b);
    int64_t before = part.first - s->rows.first, n_b = part.last - part.first;
    if (__builtin_expect(b > 0 && b % BLOCKS_IN_TURN == 0, 0))
      NAME(guess_mean)(s, part.first, s->rows.last, vectors, lanes, pivot);
    NAME(block_statistics)(s, part.first, part.last, vectors, lanes, pivot, t);
    if (blocks == 1 && !totals) return;
    NAME(widen)(t, n_b, vectors, b ? mean_b : mean, b ? m2_b : m2);
    if (totals) NAME(copy_totals)(s, vectors, lanes, totals + 2 * b * s->w->channels, b ? mean_b : mean, b ? m2_b : m2);
    else if (b) NAME(join)(vectors * NAME(LANES), before, mean, m2, n_b, mean_b, m2_b);
  }
  if (totals || !blocks) return;
  EACH(v) {
    NAME(set_mean)(t, v, LOAD_WHOLE(NAME(doubles), mean + v * NAME(LANES)));
    t->var[v] = __builtin_convertvector(LOAD_WHOLE(NAME(doubles), m2 + v * NAME(LANES)) / (double)n, V);
  }
}

INLINE void NAME(store_statistics)(const NAME(strip) *s, const int vectors, const int64_t lanes,
                                   const NAME(statistics) *t) {
  const int64_t stored = s->index * s->w->channels + s->at;
  double *mean_out = s->w->mean + stored;
  A *var_out = (A *)s->w->var + stored;
  EACH(v) {
    const NAME(doubles) mean = NAME(get_mean)(t, v);
    if (lanes == NAME(LANES)) {
      STORE_WHOLE(mean_out + v * NAME(LANES), mean);
      STORE_WHOLE(var_out + v * NAME(LANES), t->var[v]);
    } else {
      for (int64_t l = 0; l < lanes; l++) mean_out[l] = mean[l], var_out[l] = t->var[v][l];
    }
  }
}

INLINE void NAME(read_statistics)(const NAME(strip) *s, const int vectors, const int64_t lanes, NAME(statistics) *t) {
  const int64_t stored = s->index * s->w->channels + s->at;
  const double *mean_in = s->w->mean + stored;
  const A *var_in = (const A *)s->w->var + stored;
  EACH(v) {
    NAME(doubles) mean = {0};
    t->var[v] = (V){0};
    if (lanes == NAME(LANES)) {
      mean = LOAD_WHOLE(NAME(doubles), mean_in + v * NAME(LANES));
      t->var[v] = LOAD_WHOLE(V, var_in + v * NAME(LANES));
    } else {
      for (int64_t l = 0; l < lanes; l++) mean[l] = mean_in[l], t->var[v][l] = var_in[l];
    }
    NAME(set_mean)(t, v, mean);
  }
}

/* ---- from statistics to coefficients ---------------------------------------------------------------------- */

typedef struct {
  V alpha[WIDE], kept[WIDE], r[WIDE], scale[WIDE], offset[WIDE];
} NAME(coefficients);

INLINE V NAME(parameter)(const void *p, int64_t at, A otherwise, const int64_t lanes) {
  V value = (V){0} + otherwise;
  if (p && lanes == NAME(LANES)) return LOAD_WHOLE(V, (const A *)p + at);
  if (p) for (int64_t l = 0; l < lanes; l++) value[l] = ((const A *)p)[at + l];
  return value;
}

INLINE void NAME(find_coefficients)(const NAME(strip) *s, const int vectors, const int64_t lanes,
                                    const NAME(statistics) *t, NAME(coefficients) *c) {
  const standardize_job *w = s->w;
  const A eps = (A)w->eps;
  EACH(v) {
    const int64_t at = s->rows.member * w->channels + s->at + v * NAME(LANES);
    V one = (V){0} + 1;
    c->alpha[v] = NAME(parameter)(w->mean_scale, at, 1, lanes);
    c->kept[v] = (one - c->alpha[v]) * t->mean[v];
    c->r[v] = one / ROOT(t->var[v] + c->kept[v] * c->kept[v] + eps);
    c->scale[v] = NAME(parameter)(w->weight, at, 1, lanes) * c->r[v];
    c->offset[v] = NAME(parameter)(w->bias, at, 0, lanes) + c->scale[v] * (c->kept[v] - t->rest[v]);
  }
}

/* ---- strips ------------------------------------------------------------------------------------------- */

/* Compile `work(strip, vectors, lanes, data)` for the three kinds of strip, and `work_all(job, segment, rows, data)`,
 * which covers all channels of some rows of a segment with them. */
#define SPECIALISED(work, data_type) \
  static __attribute__((noinline)) void NAME(work##_wide)(const NAME(strip) *s, data_type data) { \
    NAME(work)(s, WIDE, NAME(LANES), data); \
  } \
  static __attribute__((noinline)) void NAME(work##_narrow)(const NAME(strip) *s, data_type data) { \
    NAME(work)(s, 1, NAME(LANES), data); \
  } \
  static __attribute__((noinline)) void NAME(work##_partial)(const NAME(strip) *s, data_type data) { \
    NAME(work)(s, 1, s->w->channels, data); \
  } \
  static void NAME(work##_all)(const standardize_job *w, int64_t segment, span rows, data_type data) { \
    const int64_t C = w->channels; \
    NAME(strip) s = {w, segment, 0, 0, rows, order_of(w, rows.member), rows.member * w->rows * C}; \
    for (; s.at < C && C >= NAME(WIDEST); s.at += NAME(WIDEST)) { \
      if (s.at > C - NAME(WIDEST)) s.known = s.at - (C - NAME(WIDEST)), s.at = C - NAME(WIDEST); \
      NAME(work##_wide)(&s, data); \
    } \
    for (; s.at < C && C >= NAME(LANES); s.at += NAME(LANES)) { \
      if (s.at > C - NAME(LANES)) s.known = s.at - (C - NAME(LANES)), s.at = C - NAME(LANES); \
      NAME(work##_narrow)(&s, data); \
    } \
    if (C < NAME(LANES)) NAME(work##_partial)(&s, data); \
  }

/* Where rows are wider than a strip, strips walk through memory with a stride, which neither loads nor stores like when
 * it comes from far away. So the rows of a small segment are brought into the cache beforehand, in the order they lie
 * in: a read of each line of the inputs, and a zero written to each line of the output, which is overwritten later. */
INLINE void NAME(bring)(const standardize_job *w, span rows) {
  const int64_t C = w->channels, first = (rows.member * w->rows + rows.first) * C;
  const int64_t count = (rows.last - rows.first) * C, line = 64 / (int64_t)sizeof(T);
  if (C <= NAME(WIDEST) || w->order || count > CACHED_ELEMENTS || !w->out) return;
  const volatile T *x = (const volatile T *)w->x + first, *dy = (const volatile T *)w->dy + first;
  volatile T *out = (volatile T *)w->out + first;
  for (int64_t at = 0; at < count; at += line) (void)x[at];
  for (int64_t at = 0; at < count && w->dy; at += line) (void)dy[at];
  for (int64_t at = 0; at < count && !w->stream; at += line) out[at] = (T)0;
}

/* ---- forward ------------------------------------------------------------------------------------------ */

INLINE void NAME(apply_rows)(const NAME(strip) *s, const int vectors, const int64_t lanes, const NAME(statistics) *t,
                             const NAME(coefficients) *c, const int relu, const int add) {
  const int64_t C = s->w->channels, *order = s->order, from = s->base + s->at;
  const T *x = (const T *)s->w->x + from, *residual = add ? (const T *)s->w->residual + from : 0;
  T *y = (T *)s->w->out + from;
  const int64_t stream = s->w->stream;
  for (int64_t i = s->rows.first; i < s->rows.last; i++) {
    const T *from_row = ROW(x, i), *residual_row = add ? ROW(residual, i) : 0;
    T *to_row = ROW(y, i);
    EACH(v) {
      V z = c->scale[v] * (NAME(load_some)(from_row + v * NAME(LANES), lanes) - t->mean[v]) + c->offset[v];
      if (relu) z = NAME(zero_where)(z < 0, z);
      if (add) z += NAME(load_some)(residual_row + v * NAME(LANES), lanes);
      NAME(store_some)(to_row + v * NAME(LANES), z, lanes, stream);
    }
  }
}

/* Where another program writes the rows: one of the coefficients that it needs, into `coefficients`. */
INLINE void NAME(store_coefficient)(const NAME(strip) *s, const int vectors, const int64_t lanes, int64_t which,
                                    const V *values) {
  A *to = (A *)s->w->coefficients + which * s->w->coefficient_plane + s->index * s->w->channels + s->at;
  EACH(v) {
    if (lanes == NAME(LANES)) STORE_WHOLE(to + v * NAME(LANES), values[v]);
    else for (int64_t l = 0; l < lanes; l++) to[l] = values[v][l];
  }
}

INLINE void NAME(apply)(const NAME(strip) *s, const int vectors, const int64_t lanes, const NAME(statistics) *t) {
  const int relu = s->w->relu != 0, add = s->w->residual != 0;
  NAME(coefficients) c;
  NAME(find_coefficients)(s, vectors, lanes, t, &c);
  if (s->w->coefficients) {
    NAME(store_coefficient)(s, vectors, lanes, 0, t->mean);
    NAME(store_coefficient)(s, vectors, lanes, 1, c.scale);
    NAME(store_coefficient)(s, vectors, lanes, 2, c.offset);
    return;
  }
  if (SPLIT && !relu && !add) NAME(apply_rows)(s, vectors, lanes, t, &c, 0, 0);
  else NAME(apply_rows)(s, vectors, lanes, t, &c, relu, add);
}

/* All of a strip; or only the mean and m2 of its blocks into `totals`, which is how a long segment begins. */
INLINE void NAME(forward_strip)(const NAME(strip) *s, const int vectors, const int64_t lanes, double *totals) {
  NAME(statistics) t;
  if (s->w->statistics == GIVEN) NAME(read_statistics)(s, vectors, lanes, &t);
  else NAME(strip_statistics)(s, vectors, lanes, &t, totals);
  if (totals) return;
  if (s->w->statistics != GIVEN) NAME(store_statistics)(s, vectors, lanes, &t);
  NAME(apply)(s, vectors, lanes, &t);
}
SPECIALISED(forward_strip, double *)

/* Positions [first, last) belong to no segment: the residual, or zero. */
INLINE void NAME(fill_outside)(const standardize_job *w, int64_t member, int64_t first, int64_t last) {
  const int64_t C = w->channels, *order = order_of(w, member), base = member * w->rows * C;
  T *out = (T *)w->out + base;
  for (int64_t i = first; i < last && w->out; i++) {
    if (w->residual) memcpy(ROW(out, i), ROW((const T *)w->residual + base, i), (size_t)C * sizeof(T));
    else memset(ROW(out, i), 0, (size_t)C * sizeof(T));
  }
}

/* A member's first segment also fills the rows before it, and its last one the rows behind it. */
INLINE void NAME(clear_outside)(const standardize_job *w, int64_t segment, span s) {
  if (segment % w->segments == 0) NAME(fill_outside)(w, s.member, 0, s.first);
  if ((segment + 1) % w->segments == 0) NAME(fill_outside)(w, s.member, s.last, w->rows);
}

static void NAME(forward_share)(void *task, int64_t share, int64_t shares) {
  standardize_job *w = (standardize_job *)task;
  int64_t begin, end;
  share_bounds(w, share, shares, &begin, &end);
  for (int64_t k = begin; k < end; k++) {
    span rows = span_of(w, k);
    NAME(clear_outside)(w, k, rows);
    if (is_long(w, rows)) continue;
    NAME(bring)(w, rows);
    NAME(forward_strip_all)(w, k, rows, 0);
  }
  ISA(finish_streaming)();
}

/* A long segment, first pass: the statistics of this share's blocks. */
static void NAME(long_moments_share)(void *task, int64_t share, int64_t shares) {
  standardize_job *w = (standardize_job *)task;
  span all = span_of(w, w->long_segment);
  int64_t blocks = blocks_of(w, all), turns = (blocks + BLOCKS_IN_TURN - 1) / BLOCKS_IN_TURN;
  int64_t begin = turns * share / shares * BLOCKS_IN_TURN, end = turns * (share + 1) / shares * BLOCKS_IN_TURN;
  if (end > blocks) end = blocks;
  if (begin == end) return;
  span part = {all.member, block_of(w, all, begin).first, block_of(w, all, end - 1).last};
  NAME(forward_strip_all)(w, w->long_segment, part, (double *)w->partial + 2 * begin * w->channels);
}

/* A long segment, second pass: this share's rows of the output, its statistics being known by now. */
static void NAME(long_apply_share)(void *task, int64_t share, int64_t shares) {
  standardize_job known = *(standardize_job *)task;
  known.statistics = GIVEN;
  span part = share_of(span_of(&known, known.long_segment), share, shares);
  if (known.coefficients && share > 0) return;
  NAME(forward_strip_all)(&known, known.long_segment, part, 0);
  ISA(finish_streaming)();
}

static void NAME(forward_long)(standardize_job *w, int64_t segment) {
  span rows = span_of(w, segment);
  int64_t blocks = blocks_of(w, rows), C = w->channels;
  w->long_segment = segment;
  if (w->statistics != GIVEN) {
    double *partial = malloc((size_t)(2 * blocks * C) * sizeof(double));
    if (!partial) { w->failed = 1; return; }
    w->partial = partial;
    run_shares(NAME(long_moments_share), w, w->threads, w->threads);
    for (int64_t b = 1; b < blocks; b++) {
      span part = block_of(w, rows, b);
      const double *mean_b = partial + 2 * b * C;
      NAME(join)(C, part.first - rows.first, partial, partial + C, part.last - part.first, mean_b, mean_b + C);
    }
    for (int64_t j = 0; j < C; j++) {
      const double mean = partial[j], rounded = (double)(A)mean; /* kept as the sum of two A, as of any segment */
      w->mean[segment * C + j] = rounded + (double)(A)(mean - rounded);
      ((A *)w->var)[segment * C + j] = (A)(partial[C + j] / (double)(rows.last - rows.first));
    }
    free(partial);
  }
  run_shares(NAME(long_apply_share), w, w->threads, w->threads);
}

static void NAME(forward)(standardize_job *w) {
  run_shares(NAME(forward_share), w, w->threads, w->threads);
  for (int64_t k = 0; k < w->members * w->segments && w->threads > 1 && !w->failed; k++)
    if (is_long(w, span_of(w, k))) NAME(forward_long)(w, k);
}

/* ---- backward ----------------------------------------------------------------------------------------- */

/* P = Σ dz and Q = Σ dz (x - centre) over positions [first, last), dz being dy where the output was not clipped. */
INLINE void NAME(sum_rows)(const NAME(strip) *s, span rows, const int vectors, const int64_t lanes, const int relu,
                           const NAME(statistics) *t, const NAME(coefficients) *c, V *P, V *Q) {
  const int64_t C = s->w->channels, *order = s->order, from = s->base + s->at;
  const T *x = (const T *)s->w->x + from, *dy = (const T *)s->w->dy + from;
  V p[WIDE], q[WIDE];
  EACH(v) p[v] = q[v] = (V){0};
  for (int64_t i = rows.first; i < rows.last; i++) {
    const T *x_row = ROW(x, i), *dy_row = ROW(dy, i);
    EACH(v) {
      V d = NAME(load_some)(x_row + v * NAME(LANES), lanes) - t->mean[v];
      V dz = NAME(load_some)(dy_row + v * NAME(LANES), lanes);
      if (relu) dz = NAME(zero_where)(c->scale[v] * d + c->offset[v] < 0, dz);
      p[v] += dz;
      q[v] += dz * d;
    }
  }
  EACH(v) P[v] = p[v], Q[v] = q[v];
}

INLINE void NAME(gradient_sums)(const NAME(strip) *s, span rows, const int vectors, const int64_t lanes,
                                const NAME(statistics) *t, const NAME(coefficients) *c, V *P, V *Q) {
  if (SPLIT && !s->w->relu) NAME(sum_rows)(s, rows, vectors, lanes, 0, t, c, P, Q);
  else NAME(sum_rows)(s, rows, vectors, lanes, s->w->relu != 0, t, c, P, Q);
}

/* Sums over blocks are taken in double. */
INLINE void NAME(add_wide)(double *total, const V *sums, const int vectors) {
  EACH(v) {
    double *at = total + v * NAME(LANES);
    STORE_WHOLE(at, LOAD_WHOLE(NAME(doubles), at) + __builtin_convertvector(sums[v], NAME(doubles)));
  }
}

/* The gradients of parameters add up over thousands of segments: in double. */
INLINE void NAME(add_gradient)(double *to, V value, int64_t known, const int64_t lanes) {
  if (lanes == NAME(LANES) && known <= 0)
    STORE_WHOLE(to, LOAD_WHOLE(NAME(doubles), to) + __builtin_convertvector(value, NAME(doubles)));
  else for (int64_t l = known > 0 ? known : 0; l < lanes; l++) to[l] += value[l];
}

INLINE void NAME(gradient_rows)(const NAME(strip) *s, const int vectors, const int64_t lanes, const int relu,
                                const NAME(statistics) *t, const NAME(coefficients) *c, const V *slope,
                                const V *constant) {
  const int64_t C = s->w->channels, *order = s->order, from = s->base + s->at;
  const T *x = (const T *)s->w->x + from, *dy = (const T *)s->w->dy + from;
  T *dx = (T *)s->w->out + from;
  const int64_t stream = s->w->stream;
  for (int64_t i = s->rows.first; i < s->rows.last; i++) {
    const T *x_row = ROW(x, i), *dy_row = ROW(dy, i);
    T *to_row = ROW(dx, i);
    EACH(v) {
      V d = NAME(load_some)(x_row + v * NAME(LANES), lanes) - t->mean[v];
      V dz = NAME(load_some)(dy_row + v * NAME(LANES), lanes);
      if (relu) dz = NAME(zero_where)(c->scale[v] * d + c->offset[v] < 0, dz);
      NAME(store_some)(to_row + v * NAME(LANES), c->scale[v] * ((dz + constant[v]) - slope[v] * d), lanes, stream);
    }
  }
}

/* From P and Q of the whole segment of n rows: what it adds to the gradients of the parameters, (3, C) (unless `dparams`
 * is NULL), and dx of the strip's rows, a part of the segment or all of it. */
INLINE void NAME(gradient)(const NAME(strip) *s, int64_t n, const int vectors, const int64_t lanes,
                           const NAME(statistics) *t, const NAME(coefficients) *c, const V *P, const V *Q,
                           double *dparams) {
  const standardize_job *w = s->w;
  const int64_t plane = w->channels;
  const A eps = (A)w->eps, rows = (A)n, per_row = (A)1 / rows, live = w->statistics == LIVE;
  V slope[WIDE], constant[WIDE];
  EACH(v) {
    V one = (V){0} + 1, r2 = c->r[v] * c->r[v], p = P[v] * per_row, q = (Q[v] - t->rest[v] * P[v]) * per_row;
    V along = q + c->kept[v] * p, through = r2 * ((t->var[v] + eps) * p - c->kept[v] * q);
    slope[v] = live * r2 * along;
    constant[v] = live * ((one - c->alpha[v]) * through - p + slope[v] * t->rest[v]);
    if (!dparams) continue;
    double *to = dparams + s->at + v * NAME(LANES);
    NAME(add_gradient)(to, c->r[v] * along * rows, s->known - v * NAME(LANES), lanes);
    NAME(add_gradient)(to + plane, P[v], s->known - v * NAME(LANES), lanes);
    NAME(add_gradient)(to + 2 * plane, -(t->mean[v] * rows * c->scale[v] * through), s->known - v * NAME(LANES), lanes);
  }
  if (w->coefficients) {
    NAME(store_coefficient)(s, vectors, lanes, 0, constant);
    NAME(store_coefficient)(s, vectors, lanes, 1, slope);
    return;
  }
  if (SPLIT && !w->relu) NAME(gradient_rows)(s, vectors, lanes, 0, t, c, slope, constant);
  else NAME(gradient_rows)(s, vectors, lanes, w->relu != 0, t, c, slope, constant);
}

enum { NAME(WHOLE), NAME(SUMS), NAME(ROWS) };

typedef struct {
  double *dparams;
  double *totals; /* (2, C): P and Q of the segment or block */
  int part;       /* all of the work; or the sums alone, into totals; or the rows alone, from totals */
} NAME(gradient_task);

INLINE void NAME(backward_strip)(const NAME(strip) *s, const int vectors, const int64_t lanes,
                                 const NAME(gradient_task) *task) {
  NAME(statistics) t;
  NAME(coefficients) c;
  V P[WIDE], Q[WIDE];
  NAME(read_statistics)(s, vectors, lanes, &t);
  NAME(find_coefficients)(s, vectors, lanes, &t, &c);
  const int64_t blocks = blocks_of(s->w, s->rows);
  if (blocks == 1 && task->part == NAME(WHOLE)) { /* most graphs: no sums in double */
    NAME(gradient_sums)(s, s->rows, vectors, lanes, &t, &c, P, Q);
    NAME(gradient)(s, s->rows.last - s->rows.first, vectors, lanes, &t, &c, P, Q, task->dparams);
    return;
  }
  double P_total[NAME(WIDEST)], Q_total[NAME(WIDEST)];
  memset(P_total, 0, sizeof P_total), memset(Q_total, 0, sizeof Q_total);
  if (task->part == NAME(ROWS)) {
    const size_t bytes = (size_t)((vectors - 1) * NAME(LANES) + lanes) * sizeof(double);
    memcpy(P_total, task->totals + s->at, bytes);
    memcpy(Q_total, task->totals + s->w->channels + s->at, bytes);
  } else {
    for (int64_t b = 0; b < blocks; b++) {
      NAME(gradient_sums)(s, block_of(s->w, s->rows, b), vectors, lanes, &t, &c, P, Q);
      NAME(add_wide)(P_total, P, vectors);
      NAME(add_wide)(Q_total, Q, vectors);
    }
  }
  if (task->part == NAME(SUMS)) {
    NAME(copy_totals)(s, vectors, lanes, task->totals, P_total, Q_total);
    return;
  }
  EACH(v) {
    P[v] = __builtin_convertvector(LOAD_WHOLE(NAME(doubles), P_total + v * NAME(LANES)), V);
    Q[v] = __builtin_convertvector(LOAD_WHOLE(NAME(doubles), Q_total + v * NAME(LANES)), V);
  }
  span segment = span_of(s->w, s->index);
  NAME(gradient)(s, segment.last - segment.first, vectors, lanes, &t, &c, P, Q, task->dparams);
}
SPECIALISED(backward_strip, const NAME(gradient_task) *)

/* The segments of this share: those of whole members; or, where members are cut, those that begin in some of the parts,
 * counted over all members. */
INLINE void NAME(backward_bounds)(const standardize_job *w, int64_t share, int64_t shares, int64_t *begin, int64_t *end) {
  const int64_t parts = parts_of(w), total = w->cut_members ? w->members * parts : w->members;
  const int64_t first = total * share / shares, last = total * (share + 1) / shares;
  if (!w->cut_members) {
    *begin = first * w->segments, *end = last * w->segments;
    return;
  }
  *begin = first == 0 ? 0 : segment_at(w, first / parts * w->rows + first % parts * part_rows(w));
  *end = last == total ? w->members * w->segments : segment_at(w, last / parts * w->rows + last % parts * part_rows(w));
}

static void NAME(backward_share)(void *task, int64_t share, int64_t shares) {
  standardize_job *w = (standardize_job *)task;
  const int64_t size = 3 * w->channels, parts = w->cut_members ? parts_of(w) : 1;
  double *room = calloc((size_t)size, sizeof(double)), *owner = 0; /* the sums of a part, and where they are added */
  int64_t begin, end, current = -1;
  if (!room) { w->failed = 1; return; }
  NAME(backward_bounds)(w, share, shares, &begin, &end);
  for (int64_t k = begin; k < end; k++) {
    span rows = span_of(w, k);
    NAME(clear_outside)(w, k, rows);
    if (rows.first == rows.last || (w->cut_members && is_long(w, rows))) continue;
    const int64_t part = rows.first / part_rows(w), at = (rows.member * parts + (w->cut_members ? part : 0)) * size;
    NAME(gradient_task) whole = {room, 0, NAME(WHOLE)};
    if (is_large(w, rows)) {
      whole.dparams = w->large + at;
    } else if (current != rows.member * parts_of(w) + part) {
      if (owner) ISA(add_doubles)(owner, room, size), memset(room, 0, (size_t)size * sizeof(double));
      owner = w->small + at, current = rows.member * parts_of(w) + part;
    }
    NAME(bring)(w, rows);
    NAME(backward_strip_all)(w, k, rows, &whole);
  }
  if (owner) ISA(add_doubles)(owner, room, size);
  free(room);
  ISA(finish_streaming)();
}

/* A long segment, first pass: P and Q of this share's blocks. */
static void NAME(long_sums_share)(void *task, int64_t share, int64_t shares) {
  standardize_job *w = (standardize_job *)task;
  span all = span_of(w, w->long_segment);
  int64_t blocks = blocks_of(w, all);
  for (int64_t b = blocks * share / shares; b < blocks * (share + 1) / shares; b++) {
    NAME(gradient_task) sums = {0, (double *)w->partial + 2 * b * w->channels, NAME(SUMS)};
    NAME(backward_strip_all)(w, w->long_segment, block_of(w, all, b), &sums);
  }
}

/* A long segment, second pass: this share's rows of dx, from P and Q summed into the first block. */
static void NAME(long_gradient_share)(void *task, int64_t share, int64_t shares) {
  standardize_job *w = (standardize_job *)task;
  span part = share_of(span_of(w, w->long_segment), share, shares);
  if (w->coefficients && share > 0) return;
  NAME(gradient_task) rows = {share == 0 ? w->long_dparams : 0, (double *)w->partial, NAME(ROWS)};
  NAME(backward_strip_all)(w, w->long_segment, part, &rows);
  ISA(finish_streaming)();
}

static void NAME(backward_long)(standardize_job *w, int64_t segment) {
  int64_t blocks = blocks_of(w, span_of(w, segment)), C = w->channels;
  double *partial = malloc((size_t)(2 * blocks * C) * sizeof(double));
  if (!partial) { w->failed = 1; return; }
  w->long_segment = segment;
  w->partial = partial;
  run_shares(NAME(long_sums_share), w, w->threads, w->threads);
  for (int64_t b = 1; b < blocks; b++)
    for (int64_t j = 0; j < 2 * C; j++) partial[j] += partial[2 * b * C + j];
  run_shares(NAME(long_gradient_share), w, w->threads, w->threads);
  free(partial);
}

static void NAME(backward)(standardize_job *w) {
  const int64_t C = w->channels, size = 3 * C;
  w->cut_members = w->members % w->threads != 0 && w->members < 16 * w->threads; /* whole ones would not be shared evenly */
  const int64_t parts = w->cut_members ? parts_of(w) : 1;
  w->small = calloc((size_t)(2 * w->members * parts * size), sizeof(double));
  if (!w->small) { w->failed = 1; return; }
  w->large = w->small + w->members * parts * size;
  run_shares(NAME(backward_share), w, w->threads, w->threads);
  for (int64_t k = 0; k < w->members * w->segments && w->cut_members && !w->failed; k++) {
    const span rows = span_of(w, k);
    if (!is_long(w, rows)) continue;
    w->long_dparams = w->large + (rows.member * parts + rows.first / part_rows(w)) * size;
    NAME(backward_long)(w, k);
  }
  for (int64_t m = 0; m < w->members; m++) {
    double *small = w->small + m * parts * size, *large = w->large + m * parts * size;
    for (int64_t part = 1; part < parts; part++) {
      ISA(add_doubles)(small, small + part * size, size);
      ISA(add_doubles)(large, large + part * size, size);
    }
    for (int64_t p = 0; p < 3; p++)
      for (int64_t j = 0; j < C && w->dparams[p]; j++)
        ((A *)w->dparams[p])[m * C + j] = (A)(small[p * C + j] + large[p * C + j]);
  }
  free(w->small);
}

#undef ROW
#undef T
#undef A
#undef V
#undef M
#undef ROOT
#undef SPLIT
#undef SPECIALISED
#undef NAME
