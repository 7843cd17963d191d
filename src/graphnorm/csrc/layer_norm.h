/* Standardize every row by itself, across its channels, forward and backward, for one element type.
 *
 * Included once per type, after vectors.h. The mathematics and the symbols are in ops/layer_norm.py.
 *
 * A row is worked through in pairs of vectors, and each of the two has separate running sums. A row is read from memory
 * once and stays in registers, or, where it is wide, in the first-level cache. Where the channels do not fill the last
 * pair, that pair is copied and filled up with zeros.
 */

enum { NAME(PAIR) = 2 * NAME(LANES), NAME(NEAR) = 4 }; /* pairs of a row that fits the registers: 64 of float */

#define EACH_PAIR(p) _Pragma("GCC unroll 4") for (int64_t p = 0; p < pairs; p++)

/* The memory of one thread; pairs of vectors each. */
typedef struct {
  V *values;       /* of a row: x about its rough mean, later x̂ */
  V *gradients;    /* of a row: γ dz */
  V *gamma, *beta; /* of the member */
  V *sum_w, *sum_b;
  double *chunk_sums; /* (2, channels) */
} NAME(row_room);

/* How a row is cut: the last pair begins at channel `at` and has `rest` channels, which are all of it or fewer. */
typedef struct {
  int64_t at, rest;
  M keep[2]; /* its lanes that are channels */
  V floor;   /* below this z is clipped: 0, or without relu -inf */
} NAME(row_cut);

/* The sum of all lanes. */
INLINE A NAME(across)(V v) {
  typedef A half __attribute__((vector_size(VECTOR_BYTES / 2)));
  half h = LOAD_WHOLE(half, &v) + LOAD_WHOLE(half, (const char *)&v + sizeof(half));
  A even = h[0], odd = h[1];
  for (size_t l = 2; l < sizeof(half) / sizeof(A); l += 2) even += h[l], odd += h[l + 1];
  return even + odd;
}

INLINE A NAME(root_of)(A value) { return sizeof(A) == sizeof(float) ? (A)sqrtf((float)value) : (A)sqrt(value); }

/* Where the last pair of a row is read: in place, or in `copy`. */
INLINE const T *NAME(last_pair)(const T *row, const NAME(row_cut) *cut, const int whole, T *copy) {
  if (whole) return row + cut->at;
  for (int64_t l = 0; l < NAME(PAIR); l++) copy[l] = 0;
  return memcpy(copy, row + cut->at, (size_t)cut->rest * sizeof(T));
}

/* values = x - (a rough mean), and *shift and *r of  x̂ = (values - shift) r: exact to rounding, however large the mean.
 * Lanes that are no channels stay 0. */
INLINE void NAME(centre_row)(const layer_norm_job *w, const T *x, const NAME(row_cut) *cut, const int64_t pairs,
                             const int whole, A per_channel, V *values, A *shift, A *r) {
  T copy[NAME(PAIR)];
  const T *last = NAME(last_pair)(x, cut, whole, copy);
  V total[2] = {{0}, {0}}, moved[2] = {{0}, {0}}, square[2] = {{0}, {0}};
  EACH_PAIR(p) {
    const T *from = p == pairs - 1 ? last : x + p * NAME(PAIR);
    total[0] += values[2 * p] = NAME(load)(from);
    total[1] += values[2 * p + 1] = NAME(load)(from + NAME(LANES));
  }
  const A rough = NAME(across)(total[0] + total[1]) * per_channel;
  EACH_PAIR(p) {
    V d0 = values[2 * p] - rough, d1 = values[2 * p + 1] - rough;
    if (!whole && p == pairs - 1) d0 = (V)((M)d0 & cut->keep[0]), d1 = (V)((M)d1 & cut->keep[1]);
    values[2 * p] = d0, values[2 * p + 1] = d1;
    moved[0] += d0, square[0] += d0 * d0;
    moved[1] += d1, square[1] += d1 * d1;
  }
  *shift = NAME(across)(moved[0] + moved[1]) * per_channel;
  const A var = NAME(across)(square[0] + square[1]) * per_channel - *shift * *shift;
  *r = 1 / NAME(root_of)((var > 0 ? var : 0) + (A)w->eps);
}

INLINE void NAME(forward_row)(const layer_norm_job *w, const NAME(row_room) *room, const NAME(row_cut) *cut,
                              int64_t begin, const int64_t pairs, const int whole, const int stream, A per_channel) {
  A shift, r;
  NAME(centre_row)(w, (const T *)w->x + begin, cut, pairs, whole, per_channel, room->values, &shift, &r);
  T copy[NAME(PAIR)], written[NAME(PAIR)], *y = (T *)w->out + begin, *last = whole ? y + cut->at : written;
  const T *residual = w->residual ? (const T *)w->residual + begin : 0;
  const T *last_residual = residual ? NAME(last_pair)(residual, cut, whole, copy) : 0;
  EACH_PAIR(p) {
    const T *add = !residual || p == pairs - 1 ? last_residual : residual + p * NAME(PAIR);
    T *to = p == pairs - 1 ? last : y + p * NAME(PAIR);
    _Pragma("GCC unroll 2") for (int64_t h = 0; h < 2; h++) {
      const int64_t v = 2 * p + h;
      V z = room->gamma[v] * ((room->values[v] - shift) * r) + room->beta[v];
      z = NAME(zero_where)(z < cut->floor, z);
      if (residual) z += NAME(load)(add + h * NAME(LANES));
      NAME(store_whole)(to + h * NAME(LANES), z, stream);
    }
  }
  if (!whole) memcpy(y + cut->at, written, (size_t)cut->rest * sizeof(T));
}

INLINE void NAME(backward_row)(const layer_norm_job *w, const NAME(row_room) *room, const NAME(row_cut) *cut,
                               int64_t begin, const int64_t pairs, const int whole, const int stream, A per_channel) {
  A shift, r;
  NAME(centre_row)(w, (const T *)w->x + begin, cut, pairs, whole, per_channel, room->values, &shift, &r);
  T copy[NAME(PAIR)], written[NAME(PAIR)], *dx = (T *)w->out + begin, *last = whole ? dx + cut->at : written;
  const T *dy = (const T *)w->dy + begin, *last_dy = NAME(last_pair)(dy, cut, whole, copy);
  V straight[2] = {{0}, {0}}, along[2] = {{0}, {0}};
  EACH_PAIR(p) {
    const T *from = p == pairs - 1 ? last_dy : dy + p * NAME(PAIR);
    _Pragma("GCC unroll 2") for (int64_t h = 0; h < 2; h++) {
      const int64_t v = 2 * p + h;
      V hat = (room->values[v] - shift) * r, dz = NAME(load)(from + h * NAME(LANES));
      dz = NAME(zero_where)(room->gamma[v] * hat + room->beta[v] < cut->floor, dz);
      V g = room->gamma[v] * dz;
      room->values[v] = hat, room->gradients[v] = g;
      straight[h] += g, along[h] += g * hat;
      room->sum_w[v] += dz * hat, room->sum_b[v] += dz;
    }
  }
  const A mean = NAME(across)(straight[0] + straight[1]) * per_channel;
  const A slope = NAME(across)(along[0] + along[1]) * per_channel;
  EACH_PAIR(p) {
    T *to = p == pairs - 1 ? last : dx + p * NAME(PAIR);
    _Pragma("GCC unroll 2") for (int64_t h = 0; h < 2; h++) {
      const int64_t v = 2 * p + h;
      V gradient = r * ((room->gradients[v] - mean) - room->values[v] * slope);
      NAME(store_whole)(to + h * NAME(LANES), gradient, stream);
    }
  }
  if (!whole) memcpy(dx + cut->at, written, (size_t)cut->rest * sizeof(T));
}

/* A member's parameter, or its neutral value, filled up to whole pairs. */
INLINE void NAME(copy_parameter)(const void *from, int64_t member, int64_t channels, int64_t pairs, A otherwise, V *to) {
  for (int64_t v = 0; v < 2 * pairs; v++) to[v] = (V){0} + (from ? 0 : otherwise);
  if (from) memcpy(to, (const A *)from + member * channels, (size_t)channels * sizeof(A));
}

INLINE void NAME(flush_sum)(V *sum, int64_t pairs, int64_t channels, double *to) {
  const A *lanes = (const A *)sum;
  int64_t j = 0;
  for (; j + NAME(LANES) <= channels; j += NAME(LANES))
    STORE_WHOLE(to + j, LOAD_WHOLE(NAME(doubles), to + j) + __builtin_convertvector(sum[j / NAME(LANES)], NAME(doubles)));
  for (; j < channels; j++) to[j] += lanes[j];
  for (int64_t v = 0; v < 2 * pairs; v++) sum[v] = (V){0};
}

INLINE void NAME(flush_sums)(const layer_norm_job *w, const NAME(row_room) *room, int64_t pairs, double *to) {
  NAME(flush_sum)(room->sum_w, pairs, w->channels, to);
  NAME(flush_sum)(room->sum_b, pairs, w->channels, to + w->channels);
}

INLINE void NAME(copy_parameters)(const layer_norm_job *w, const NAME(row_room) *room, int64_t member, int64_t pairs) {
  NAME(copy_parameter)(w->weight, member, w->channels, pairs, 1, room->gamma);
  NAME(copy_parameter)(w->bias, member, w->channels, pairs, 0, room->beta);
}

/* Forward: this share's rows, counted over all members. */
INLINE void NAME(forward_rows)(const layer_norm_job *w, const NAME(row_room) *room, const NAME(row_cut) *cut,
                               int64_t share, int64_t shares, const int64_t pairs, const int whole, const int stream) {
  const int64_t C = w->channels, total = w->members * w->rows, end = total * (share + 1) / shares;
  for (int64_t k = total * share / shares; k < end;) {
    const int64_t member = k / w->rows, left = (member + 1) * w->rows - k, stop = left < end - k ? k + left : end;
    NAME(copy_parameters)(w, room, member, pairs);
    for (; k < stop; k++) NAME(forward_row)(w, room, cut, k * C, pairs, whole, stream, (A)1 / (A)C);
  }
}

/* Backward: this share's chunks, counted over all members; where members are not cut, all chunks of its members. */
INLINE void NAME(backward_rows)(const layer_norm_job *w, const NAME(row_room) *room, const NAME(row_cut) *cut,
                                int64_t share, int64_t shares, const int64_t pairs, const int whole, const int stream) {
  const int64_t C = w->channels, chunks = layer_norm_chunks(w), step = w->cut_members ? 1 : chunks;
  const int64_t steps = w->members * chunks / step;
  const int64_t begin = steps * share / shares * step, end = steps * (share + 1) / shares * step;
  const A per_channel = (A)1 / (A)C;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    const int64_t member = chunk / chunks, in_member = chunk % chunks, stop = (member + 1) * w->rows;
    int64_t k = member * w->rows + in_member * CHUNK_ROWS;
    const int64_t last = k + CHUNK_ROWS < stop ? k + CHUNK_ROWS : stop;
    double *sums = w->cut_members ? w->partial + chunk * 2 * C : room->chunk_sums;
    if (chunk == begin || in_member == 0) NAME(copy_parameters)(w, room, member, pairs);
    while (k < last) {
      const int64_t pause = k + SUMMED_ROWS < last ? k + SUMMED_ROWS : last;
      for (; k < pause; k++) NAME(backward_row)(w, room, cut, k * C, pairs, whole, stream, per_channel);
      NAME(flush_sums)(w, room, pairs, sums);
    }
    if (w->cut_members) continue;
    ISA(add_doubles)(w->partial + member * 2 * C, sums, 2 * C);
    memset(sums, 0, (size_t)(2 * C) * sizeof(double));
  }
}

INLINE void NAME(rows_of_share)(const layer_norm_job *w, const NAME(row_room) *room, const NAME(row_cut) *cut,
                                int64_t share, int64_t shares, const int64_t pairs, const int whole,
                                const int stream) {
  if (w->dy) NAME(backward_rows)(w, room, cut, share, shares, pairs, whole, stream);
  else NAME(forward_rows)(w, room, cut, share, shares, pairs, whole, stream);
  ISA(finish_streaming)();
}

static void NAME(layer_norm_share)(void *task, int64_t share, int64_t shares) {
  layer_norm_job *w = (layer_norm_job *)task;
  const int64_t pairs = (w->channels + NAME(PAIR) - 1) / NAME(PAIR);
  NAME(row_cut) cut = {.at = (pairs - 1) * NAME(PAIR), .rest = w->channels - (pairs - 1) * NAME(PAIR)};
  for (int64_t l = 0; l < NAME(LANES); l++)
    cut.keep[0][l] = l < cut.rest ? -1 : 0, cut.keep[1][l] = NAME(LANES) + l < cut.rest ? -1 : 0;
  cut.floor = (V){0} - (w->relu ? 0 : (A)INFINITY);
  const size_t size = (size_t)(12 * pairs) * sizeof(V) + (size_t)(2 * pairs * NAME(PAIR)) * sizeof(double);
  V *memory = aligned_alloc(sizeof(V), size);
  if (!memory) { w->failed = 1; return; }
  memset(memory, 0, size);
  NAME(row_room) room = {memory, memory + 2 * pairs, memory + 4 * pairs, memory + 6 * pairs, memory + 8 * pairs,
                         memory + 10 * pairs, (double *)(memory + 12 * pairs)};
  const int whole = cut.rest == NAME(PAIR);
  if (whole && pairs == NAME(NEAR)) {
    V values[2 * NAME(NEAR)], gradients[2 * NAME(NEAR)];
    room.values = values, room.gradients = gradients;
    cut.at = (NAME(NEAR) - 1) * NAME(PAIR);
    if (w->stream) NAME(rows_of_share)(w, &room, &cut, share, shares, NAME(NEAR), 1, 1);
    else NAME(rows_of_share)(w, &room, &cut, share, shares, NAME(NEAR), 1, 0);
  } else {
    NAME(rows_of_share)(w, &room, &cut, share, shares, pairs, whole, w->stream != 0);
  }
  free(memory);
}

static void NAME(layer_norm)(layer_norm_job *w) {
  const int64_t C = w->channels;
  if ((uintptr_t)w->out & 15) w->stream = 0;
  w->cut_members = w->members % w->threads != 0 && w->members < 16 * w->threads; /* whole ones would not be shared evenly */
  const int64_t parts = w->cut_members ? layer_norm_chunks(w) : 1;
  if (w->dy) {
    w->partial = calloc((size_t)(w->members * parts * 2 * C), sizeof(double));
    if (!w->partial) { w->failed = 1; return; }
  }
  run_shares(NAME(layer_norm_share), w, w->threads, w->threads);
  if (!w->dy) return;
  for (int64_t m = 0; m < w->members; m++) {
    double *total = w->partial + m * parts * 2 * C;
    for (int64_t part = 1; part < parts; part++) ISA(add_doubles)(total, total + part * 2 * C, 2 * C);
    for (int64_t j = 0; j < C; j++) {
      ((A *)w->dweight)[m * C + j] = (A)total[j];
      ((A *)w->dbias)[m * C + j] = (A)total[C + j];
    }
  }
  free(w->partial);
}

#undef EACH_PAIR
