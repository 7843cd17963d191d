/* Standardize rows segment by segment, forward and backward, for one element type.
 *
 * Included once per type with
 *   T        the element type of x, y and their gradients
 *   A        the type it is computed in (float or double)
 *   LOAD(v)  T -> A        STORE(v)  A -> T        NAME(f)  f with the type's suffix
 *
 * The mathematics, the symbols and the reason for this form of the gradient are in
 * ops/standardize/reference.py. Per segment and channel, with centre m (the mean rounded to A) and
 * rest = mean - m, the output is  scale * (x - m) + offset. The inner loops run over channels, so the
 * compiler vectorises them; four rows at a time, so that running sums are loaded and stored once for four.
 */

/* The paper's models are 64 wide: that width gets a copy of the loops with a constant trip count. */
#define FOR_WIDTH(...) \
  if (w->channels == 64) { const int64_t C = 64; __VA_ARGS__; } else { const int64_t C = w->channels; __VA_ARGS__; }

/* What one thread needs besides the tensors: arrays of `channels` numbers. */
typedef struct {
  double *mean, *m2, *block_mean, *block_m2;
  A *pivot, *sum, *square, *centre, *scale, *offset, *slope, *constant;
  void *memory;
} NAME(space);

static int NAME(space_open)(NAME(space) *s, int64_t C) {
  const int64_t wide = (C + 15) / 16 * 16;
  s->memory = malloc((size_t)wide * (4 * sizeof(double) + 8 * sizeof(A)) + 64);
  if (!s->memory) return 0;
  double *d = (double *)(((uintptr_t)s->memory + 63) & ~(uintptr_t)63);
  s->mean = d, s->m2 = d + wide, s->block_mean = d + 2 * wide, s->block_m2 = d + 3 * wide;
  A *a = (A *)(d + 4 * wide);
  s->pivot = a, s->sum = a + wide, s->square = a + 2 * wide, s->centre = a + 3 * wide;
  s->scale = a + 4 * wide, s->offset = a + 5 * wide, s->slope = a + 6 * wide, s->constant = a + 7 * wide;
  return 1;
}

#define ROW(base, i) ((base) + (order ? order[i] : (i)) * C)

/* ---- statistics ------------------------------------------------------------------------------------- */

/* sum += Σ (x - pivot), square += Σ (x - pivot)² over positions [first, last). */
INLINE void NAME(add_moments)(const T *x, const int64_t *order, int64_t first, int64_t last, const int64_t C,
                              const A *restrict pivot, A *restrict sum, A *restrict square) {
  int64_t i = first;
  for (; i + 4 <= last; i += 4) {
    const T *restrict x0 = ROW(x, i), *restrict x1 = ROW(x, i + 1);
    const T *restrict x2 = ROW(x, i + 2), *restrict x3 = ROW(x, i + 3);
    for (int64_t j = 0; j < C; j++) {
      A k = pivot[j], d0 = LOAD(x0[j]) - k, d1 = LOAD(x1[j]) - k, d2 = LOAD(x2[j]) - k, d3 = LOAD(x3[j]) - k;
      sum[j] += (d0 + d1) + (d2 + d3);
      square[j] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  }
  for (; i < last; i++) {
    const T *restrict x0 = ROW(x, i);
    for (int64_t j = 0; j < C; j++) {
      A d = LOAD(x0[j]) - pivot[j];
      sum[j] += d;
      square[j] += d * d;
    }
  }
}

/* mean and m2 = Σ (x - mean)² of one block (n > 0), in one pass about a pivot: the mean of its first rows. Where
 * the pivot turns out more than four standard deviations off, the pass is repeated about the mean it found. */
INLINE void NAME(block_moments)(const T *x, const int64_t *order, int64_t first, int64_t last, const int64_t C,
                                double *restrict mean, A *restrict m2, A *restrict pivot, A *restrict sum) {
  const int64_t n = last - first, head = n < 8 ? n : 8;
  const A per_row = (A)1 / (A)n, per_head = (A)1 / (A)head;
  const T *restrict x0 = ROW(x, first);
  for (int64_t j = 0; j < C; j++) pivot[j] = LOAD(x0[j]), sum[j] = 0;
  for (int64_t i = first + 1; i < first + head; i++) {
    const T *restrict xi = ROW(x, i);
    for (int64_t j = 0; j < C; j++) sum[j] += LOAD(xi[j]) - pivot[j];
  }
  for (int64_t j = 0; j < C; j++) pivot[j] += sum[j] * per_head;
  for (int attempt = 0; attempt < 2; attempt++) {
    for (int64_t j = 0; j < C; j++) sum[j] = m2[j] = 0;
    NAME(add_moments)(x, order, first, last, C, pivot, sum, m2);
    int cancelled = 0;
    for (int64_t j = 0; j < C; j++) {
      A shift = sum[j] * per_row, centred = m2[j] - shift * sum[j];
      mean[j] = (double)pivot[j] + (double)shift;
      cancelled |= m2[j] > 16 * centred;
      m2[j] = centred < 0 ? 0 : centred;
    }
    if (!cancelled || n <= 16) break;
    for (int64_t j = 0; j < C; j++) pivot[j] = (A)mean[j];
  }
}

/* Join a block (mean_b, m2_b; n_b rows) to (mean, m2; n rows). */
INLINE void NAME(join)(int64_t C, int64_t n, double *restrict mean, double *restrict m2, int64_t n_b,
                       const double *restrict mean_b, const double *restrict m2_b) {
  const double share = (double)n_b / (double)(n + n_b), weight = (double)n * share;
  for (int64_t j = 0; j < C; j++) {
    double gap = mean_b[j] - mean[j];
    mean[j] += gap * share;
    m2[j] += m2_b[j] + gap * gap * weight;
  }
}

/* mean and m2 of the positions of s, in double, block by block. */
INLINE void NAME(moments)(const job *w, span s, const int64_t C, NAME(space) *t) {
  const T *x = (const T *)w->x + s.member * w->rows * C;
  const int64_t *order = order_of(w, s.member), blocks = blocks_of(w, s);
  for (int64_t b = 0; b < blocks; b++) {
    span part = block_of(w, s, b);
    double *mean = b ? t->block_mean : t->mean, *m2 = b ? t->block_m2 : t->m2;
    NAME(block_moments)(x, order, part.first, part.last, C, mean, t->square, t->pivot, t->sum);
    for (int64_t j = 0; j < C; j++) m2[j] = (double)t->square[j];
    if (b) NAME(join)(C, part.first - s.first, t->mean, t->m2, part.last - part.first, mean, m2);
  }
}

/* ---- from statistics to the two coefficients of a row ------------------------------------------------- */

INLINE A NAME(parameter)(const void *p, int64_t at, A otherwise) { return p ? ((const A *)p)[at] : otherwise; }

/* centre, scale, offset of the forward pass from a segment's mean and variance. */
INLINE void NAME(coefficients)(const job *w, int64_t member, const int64_t C, const double *restrict mean,
                               const A *restrict var, A *restrict centre, A *restrict scale, A *restrict offset) {
  const int64_t at = member * C;
  const A eps = (A)w->eps;
  for (int64_t j = 0; j < C; j++) {
    A m = (A)mean[j], rest = (A)(mean[j] - (double)m);
    A kept = (1 - NAME(parameter)(w->mean_scale, at + j, 1)) * (A)mean[j];
    A a = NAME(parameter)(w->weight, at + j, 1) / NAME(root)(var[j] + kept * kept + eps);
    centre[j] = m;
    scale[j] = a;
    offset[j] = NAME(parameter)(w->bias, at + j, 0) + a * (kept - rest);
  }
}

/* ---- forward ------------------------------------------------------------------------------------------ */

INLINE void NAME(apply)(const job *w, span s, const int64_t C, const A *restrict centre, const A *restrict scale,
                        const A *restrict offset) {
  const int64_t base = s.member * w->rows * C, *order = order_of(w, s.member);
  const T *x = (const T *)w->x + base, *residual = w->residual ? (const T *)w->residual + base : 0;
  T *y = (T *)w->out + base;
  for (int64_t i = s.first; i < s.last; i++) {
    const T *restrict xi = ROW(x, i);
    T *restrict yi = ROW(y, i);
    if (!w->relu && !residual) {
      for (int64_t j = 0; j < C; j++) yi[j] = STORE(scale[j] * (LOAD(xi[j]) - centre[j]) + offset[j]);
    } else {
      const T *restrict ri = residual ? ROW(residual, i) : xi;
      const A keep_negative = w->relu ? 0 : 1, add = residual ? 1 : 0;
      for (int64_t j = 0; j < C; j++) {
        A z = scale[j] * (LOAD(xi[j]) - centre[j]) + offset[j];
        z = z < 0 ? z * keep_negative : z;
        yi[j] = STORE(add ? z + LOAD(ri[j]) : z);
      }
    }
  }
}

/* Rows of the member that belong to no segment get zero; the owner of the first and last segment sees to them. */
INLINE void NAME(clear_outside)(const job *w, int64_t segment, span s, const int64_t C) {
  const int64_t *order = order_of(w, s.member), g = segment % w->segments;
  T *out = (T *)w->out + s.member * w->rows * C;
  if (g == 0)
    for (int64_t i = 0; i < s.first; i++) memset(ROW(out, i), 0, (size_t)C * sizeof(T));
  if (g == w->segments - 1)
    for (int64_t i = s.last; i < w->rows; i++) memset(ROW(out, i), 0, (size_t)C * sizeof(T));
}

INLINE void NAME(store_statistics)(const job *w, int64_t segment, const int64_t C, int64_t n, const double *mean,
                                   const double *m2) {
  double *restrict mean_out = w->mean + segment * C;
  A *restrict var_out = (A *)w->var + segment * C;
  for (int64_t j = 0; j < C; j++) mean_out[j] = n ? mean[j] : 0, var_out[j] = n ? (A)(m2[j] / (double)n) : 0;
}

INLINE void NAME(forward_segments)(job *w, int64_t begin, int64_t end, const int64_t C, NAME(space) *t) {
  for (int64_t k = begin; k < end; k++) {
    span s = span_of(w, k);
    NAME(clear_outside)(w, k, s, C);
    if (is_long(w, s)) continue;
    if (w->statistics != GIVEN) {
      NAME(moments)(w, s, C, t);
      NAME(store_statistics)(w, k, C, s.last - s.first, t->mean, t->m2);
    }
    NAME(coefficients)(w, s.member, C, w->mean + k * C, (A *)w->var + k * C, t->centre, t->scale, t->offset);
    NAME(apply)(w, s, C, t->centre, t->scale, t->offset);
  }
}

DISPATCHED static void NAME(forward_share)(void *task, int64_t share, int64_t shares) {
  job *w = (job *)task;
  NAME(space) t;
  if (!NAME(space_open)(&t, w->channels)) { w->failed = 1; return; }
  int64_t begin, end;
  share_bounds(w, share, shares, &begin, &end);
  FOR_WIDTH(NAME(forward_segments)(w, begin, end, C, &t))
  free(t.memory);
}

/* A long segment, first pass: the statistics of each of this share's blocks. */
DISPATCHED static void NAME(long_moments_share)(void *task, int64_t share, int64_t shares) {
  job *w = (job *)task;
  span s = span_of(w, w->long_segment);
  int64_t blocks = blocks_of(w, s), width = w->channels;
  const T *x = (const T *)w->x + s.member * w->rows * width;
  NAME(space) t;
  if (!NAME(space_open)(&t, width)) { w->failed = 1; return; }
  for (int64_t b = blocks * share / shares; b < blocks * (share + 1) / shares; b++) {
    span part = block_of(w, s, b);
    double *mean = (double *)w->partial + 2 * b * width, *m2 = mean + width;
    FOR_WIDTH(NAME(block_moments)(x, order_of(w, s.member), part.first, part.last, C, mean, t.square, t.pivot, t.sum))
    for (int64_t j = 0; j < width; j++) m2[j] = (double)t.square[j];
  }
  free(t.memory);
}

/* A long segment, second pass: this share's rows of the output. */
DISPATCHED static void NAME(long_apply_share)(void *task, int64_t share, int64_t shares) {
  job *w = (job *)task;
  span s = span_of(w, w->long_segment), part = s;
  NAME(space) t;
  if (!NAME(space_open)(&t, w->channels)) { w->failed = 1; return; }
  int64_t n = s.last - s.first;
  part.first = s.first + n * share / shares, part.last = s.first + n * (share + 1) / shares;
  FOR_WIDTH(NAME(coefficients)(w, s.member, C, w->mean + w->long_segment * C, (A *)w->var + w->long_segment * C,
                               t.centre, t.scale, t.offset);
            NAME(apply)(w, part, C, t.centre, t.scale, t.offset))
  free(t.memory);
}

static void NAME(forward_long)(job *w, int64_t segment) {
  span s = span_of(w, segment);
  int64_t blocks = blocks_of(w, s), C = w->channels;
  w->long_segment = segment;
  if (w->statistics != GIVEN) {
    double *partial = malloc((size_t)(2 * blocks * C) * sizeof(double));
    if (!partial) { w->failed = 1; return; }
    w->partial = partial;
    run_shares(NAME(long_moments_share), w, w->shares, w->threads);
    for (int64_t b = 1; b < blocks && !w->failed; b++) {
      span part = block_of(w, s, b);
      const double *mean_b = partial + 2 * b * C;
      NAME(join)(C, part.first - s.first, partial, partial + C, part.last - part.first, mean_b, mean_b + C);
    }
    NAME(store_statistics)(w, segment, C, s.last - s.first, partial, partial + C);
    free(partial);
  }
  if (!w->failed) run_shares(NAME(long_apply_share), w, w->shares, w->threads);
}

static void NAME(forward)(job *w) {
  run_shares(NAME(forward_share), w, w->shares, w->threads);
  for (int64_t k = 0; k < w->members * w->segments && w->threads > 1 && !w->failed; k++)
    if (is_long(w, span_of(w, k))) NAME(forward_long)(w, k);
}

/* ---- backward ----------------------------------------------------------------------------------------- */

/* The gradient before the activation: dy where the output was not clipped. */
INLINE A NAME(unclipped)(int64_t relu, A dy, A d, A scale, A offset) {
  return relu && scale * d + offset <= 0 ? 0 : dy;
}

/* p += Σ dy, q += Σ dy (x - centre) over the positions of s. */
INLINE void NAME(add_gradient_sums)(const job *w, span s, const int64_t C, const int64_t relu, const A *restrict centre,
                                    const A *restrict scale, const A *restrict offset, A *restrict p, A *restrict q) {
  const int64_t base = s.member * w->rows * C, *order = order_of(w, s.member);
  const T *x = (const T *)w->x + base, *dy = (const T *)w->dy + base;
  int64_t i = s.first;
  for (; i + 4 <= s.last; i += 4) {
    const T *restrict x0 = ROW(x, i), *restrict x1 = ROW(x, i + 1);
    const T *restrict x2 = ROW(x, i + 2), *restrict x3 = ROW(x, i + 3);
    const T *restrict g0 = ROW(dy, i), *restrict g1 = ROW(dy, i + 1);
    const T *restrict g2 = ROW(dy, i + 2), *restrict g3 = ROW(dy, i + 3);
    for (int64_t j = 0; j < C; j++) {
      A m = centre[j], d0 = LOAD(x0[j]) - m, d1 = LOAD(x1[j]) - m, d2 = LOAD(x2[j]) - m, d3 = LOAD(x3[j]) - m;
      A h0 = NAME(unclipped)(relu, LOAD(g0[j]), d0, scale[j], offset[j]);
      A h1 = NAME(unclipped)(relu, LOAD(g1[j]), d1, scale[j], offset[j]);
      A h2 = NAME(unclipped)(relu, LOAD(g2[j]), d2, scale[j], offset[j]);
      A h3 = NAME(unclipped)(relu, LOAD(g3[j]), d3, scale[j], offset[j]);
      p[j] += (h0 + h1) + (h2 + h3);
      q[j] += (h0 * d0 + h1 * d1) + (h2 * d2 + h3 * d3);
    }
  }
  for (; i < s.last; i++) {
    const T *restrict x0 = ROW(x, i), *restrict g0 = ROW(dy, i);
    for (int64_t j = 0; j < C; j++) {
      A d = LOAD(x0[j]) - centre[j], h = NAME(unclipped)(relu, LOAD(g0[j]), d, scale[j], offset[j]);
      p[j] += h;
      q[j] += h * d;
    }
  }
}

INLINE void NAME(gradient_sums)(const job *w, span s, const int64_t C, NAME(space) *t, A *p, A *q) {
  for (int64_t j = 0; j < C; j++) p[j] = q[j] = 0;
  if (w->relu) NAME(add_gradient_sums)(w, s, C, 1, t->centre, t->scale, t->offset, p, q);
  else NAME(add_gradient_sums)(w, s, C, 0, t->centre, t->scale, t->offset, p, q);
}

/* From the sums P = Σ dy and Q = Σ dy (x - centre) of a segment of n rows: what it adds to the gradients of the
 * parameters, and  slope, constant  of  dx = scale * (dy - slope * (x - centre) + constant). */
INLINE void NAME(gradient_coefficients)(const job *w, int64_t segment, int64_t member, int64_t n, const int64_t C,
                                        const double *restrict P, const double *restrict Q, A *restrict dparams,
                                        A *restrict slope, A *restrict constant) {
  const int64_t at = member * C, plane = w->members * C;
  const double *restrict mean = w->mean + segment * C;
  const A *restrict var = (const A *)w->var + segment * C;
  const A eps = (A)w->eps, per_row = (A)1 / (A)n;
  A *restrict dweight = dparams + at, *restrict dbias = dweight + plane, *restrict dscale = dbias + plane;
  for (int64_t j = 0; j < C; j++) {
    A m = (A)mean[j], rest = (A)(mean[j] - (double)m), mu = (A)mean[j];
    A alpha = NAME(parameter)(w->mean_scale, at + j, 1), kept = (1 - alpha) * mu;
    A r = 1 / NAME(root)(var[j] + kept * kept + eps), weight = NAME(parameter)(w->weight, at + j, 1);
    A sum = (A)P[j], p = sum * per_row, q = (A)(Q[j] - (double)rest * P[j]) * per_row;
    A correlation = q + kept * p, passed = r * r * ((var[j] + eps) * p - kept * q);
    dweight[j] += r * correlation * (A)n;
    dbias[j] += sum;
    if (w->statistics == LIVE) {
      dscale[j] -= mu * (A)n * weight * r * passed;
      slope[j] = r * r * correlation;
      constant[j] = (1 - alpha) * passed - p + slope[j] * rest;
    } else {
      dscale[j] -= mu * weight * r * sum;
      slope[j] = constant[j] = 0;
    }
  }
}

INLINE void NAME(apply_gradient)(const job *w, span s, const int64_t C, const int64_t relu, const A *restrict centre,
                                 const A *restrict scale, const A *restrict offset, const A *restrict slope,
                                 const A *restrict constant) {
  const int64_t base = s.member * w->rows * C, *order = order_of(w, s.member);
  const T *x = (const T *)w->x + base, *dy = (const T *)w->dy + base;
  T *dx = (T *)w->out + base;
  for (int64_t i = s.first; i < s.last; i++) {
    const T *restrict xi = ROW(x, i), *restrict gi = ROW(dy, i);
    T *restrict oi = ROW(dx, i);
    for (int64_t j = 0; j < C; j++) {
      A d = LOAD(xi[j]) - centre[j], h = NAME(unclipped)(relu, LOAD(gi[j]), d, scale[j], offset[j]);
      oi[j] = STORE(scale[j] * ((h + constant[j]) - slope[j] * d));
    }
  }
}

INLINE void NAME(backward_apply)(const job *w, span s, const int64_t C, NAME(space) *t) {
  if (w->relu) NAME(apply_gradient)(w, s, C, 1, t->centre, t->scale, t->offset, t->slope, t->constant);
  else NAME(apply_gradient)(w, s, C, 0, t->centre, t->scale, t->offset, t->slope, t->constant);
}

INLINE void NAME(coefficients_of)(const job *w, int64_t segment, int64_t member, const int64_t C, NAME(space) *t) {
  NAME(coefficients)(w, member, C, w->mean + segment * C, (A *)w->var + segment * C, t->centre, t->scale, t->offset);
}

INLINE void NAME(backward_segments)(job *w, int64_t begin, int64_t end, const int64_t C, A *dparams, NAME(space) *t) {
  double *P = t->block_mean, *Q = t->block_m2;
  for (int64_t k = begin; k < end; k++) {
    span s = span_of(w, k);
    NAME(clear_outside)(w, k, s, C);
    if (is_long(w, s) || s.first == s.last) continue;
    NAME(coefficients_of)(w, k, s.member, C, t);
    for (int64_t b = 0; b < blocks_of(w, s); b++) {
      NAME(gradient_sums)(w, block_of(w, s, b), C, t, t->sum, t->square);
      for (int64_t j = 0; j < C; j++) {
        P[j] = (b ? P[j] : 0) + (double)t->sum[j];
        Q[j] = (b ? Q[j] : 0) + (double)t->square[j];
      }
    }
    NAME(gradient_coefficients)(w, k, s.member, s.last - s.first, C, P, Q, dparams, t->slope, t->constant);
    NAME(backward_apply)(w, s, C, t);
  }
}

DISPATCHED static void NAME(backward_share)(void *task, int64_t share, int64_t shares) {
  job *w = (job *)task;
  NAME(space) t;
  if (!NAME(space_open)(&t, w->channels)) { w->failed = 1; return; }
  A *dparams = (A *)w->partial + 3 * share * w->members * w->channels;
  int64_t begin, end;
  share_bounds(w, share, shares, &begin, &end);
  FOR_WIDTH(NAME(backward_segments)(w, begin, end, C, dparams, &t))
  free(t.memory);
}

/* A long segment, first pass: P and Q of each of this share's blocks. */
DISPATCHED static void NAME(long_sums_share)(void *task, int64_t share, int64_t shares) {
  job *w = (job *)task;
  span s = span_of(w, w->long_segment);
  int64_t blocks = blocks_of(w, s);
  NAME(space) t;
  if (!NAME(space_open)(&t, w->channels)) { w->failed = 1; return; }
  FOR_WIDTH(NAME(coefficients_of)(w, w->long_segment, s.member, C, &t);
            for (int64_t b = blocks * share / shares; b < blocks * (share + 1) / shares; b++) {
              double *P = (double *)w->partial + 2 * b * C;
              NAME(gradient_sums)(w, block_of(w, s, b), C, &t, t.sum, t.square);
              for (int64_t j = 0; j < C; j++) P[j] = (double)t.sum[j], P[C + j] = (double)t.square[j];
            })
  free(t.memory);
}

/* A long segment, second pass: this share's rows of dx, from P and Q summed into the first block. */
DISPATCHED static void NAME(long_gradient_share)(void *task, int64_t share, int64_t shares) {
  job *w = (job *)task;
  span s = span_of(w, w->long_segment), part = s;
  int64_t n = s.last - s.first, plane = w->members * w->channels;
  NAME(space) t;
  A *ignored = calloc((size_t)(3 * plane), sizeof(A));
  if (!ignored || !NAME(space_open)(&t, w->channels)) { w->failed = 1; free(ignored); return; }
  part.first = s.first + n * share / shares, part.last = s.first + n * (share + 1) / shares;
  FOR_WIDTH(const double *P = (const double *)w->partial;
            NAME(coefficients_of)(w, w->long_segment, s.member, C, &t);
            NAME(gradient_coefficients)(w, w->long_segment, s.member, n, C, P, P + C,
                                        share ? ignored : (A *)w->dparams, t.slope, t.constant);
            NAME(backward_apply)(w, part, C, &t))
  free(t.memory);
  free(ignored);
}

static void NAME(backward_long)(job *w, int64_t segment) {
  span s = span_of(w, segment);
  int64_t blocks = blocks_of(w, s), C = w->channels;
  double *partial = malloc((size_t)(2 * blocks * C) * sizeof(double));
  if (!partial) { w->failed = 1; return; }
  w->long_segment = segment;
  w->partial = partial;
  run_shares(NAME(long_sums_share), w, w->shares, w->threads);
  for (int64_t b = 1; b < blocks; b++)
    for (int64_t j = 0; j < 2 * C; j++) partial[j] += partial[2 * b * C + j];
  if (!w->failed) run_shares(NAME(long_gradient_share), w, w->shares, w->threads);
  free(partial);
}

static void NAME(backward)(job *w) {
  int64_t size = 3 * w->members * w->channels;
  A *partial = calloc((size_t)(w->shares * size), sizeof(A)), *dparams = (A *)w->dparams;
  if (!partial) { w->failed = 1; return; }
  w->partial = partial;
  run_shares(NAME(backward_share), w, w->shares, w->threads);
  for (int64_t j = 0; j < size; j++) dparams[j] = partial[j];
  for (int64_t share = 1; share < w->shares; share++)
    for (int64_t j = 0; j < size; j++) dparams[j] += partial[share * size + j];
  free(partial);
  for (int64_t k = 0; k < w->members * w->segments && w->threads > 1 && !w->failed; k++)
    if (is_long(w, span_of(w, k))) NAME(backward_long)(w, k);
}

#undef ROW
#undef FOR_WIDTH
#undef T
#undef A
#undef LOAD
#undef STORE
#undef NAME
