/* Standardize every row by itself, across its channels, forward and backward, for one element type.
 *
 * Included once per type with T, A, V, M, NAME and ROOT as in standardize.h, between aggregate.h, whose loads and stores
 * it uses, and standardize.h. The mathematics and the symbols are in ops/rows/reference.py.
 *
 * A row is read from memory once and stays in registers, or, where it is wide, in the first-level cache. Rows that are no
 * whole number of vectors go by way of a copy that is filled up with zeros.
 */

#define EACH_OF_ROW(v) _Pragma("GCC unroll 8") for (int64_t v = 0; v < vectors; v++)

/* What a thread has to itself; `vectors` vectors each. */
typedef struct {
  V *values;       /* of a row: x about its rough mean, later x̂ */
  V *gradients;    /* of a row: γ dz */
  V *gamma, *beta; /* of the member */
  V *sum_w, *sum_b;
  T *copies; /* (3, vectors): of rows of x, of dy or the residual, and of the output; NULL: rows are whole vectors */
} NAME(row_room);

/* The sum of all lanes. */
INLINE A NAME(across)(V v) {
  typedef A half __attribute__((vector_size(VECTOR_BYTES / 2)));
  half h = LOAD_WHOLE(half, &v) + LOAD_WHOLE(half, (const char *)&v + sizeof(half));
  A even = h[0], odd = h[1];
  for (size_t l = 2; l < sizeof(half) / sizeof(A); l += 2) even += h[l], odd += h[l + 1];
  return even + odd;
}

INLINE A NAME(root_of)(A value) { return sizeof(A) == sizeof(float) ? (A)sqrtf((float)value) : (A)sqrt(value); }

/* A row to read from, and one to write to. */
INLINE const T *NAME(row_from)(const row_job *w, const NAME(row_room) *room, const void *array, int64_t row, int copy,
                               const int64_t vectors) {
  const T *from = (const T *)array + row * w->channels;
  if (!room->copies) return from;
  return memcpy(room->copies + copy * vectors * NAME(STEP), from, (size_t)w->channels * sizeof(T));
}

INLINE T *NAME(row_to)(const row_job *w, const NAME(row_room) *room, int64_t row, const int64_t vectors) {
  return room->copies ? room->copies + 2 * vectors * NAME(STEP) : (T *)w->out + row * w->channels;
}

INLINE void NAME(row_done)(const row_job *w, const NAME(row_room) *room, int64_t row, const T *written) {
  if (room->copies) memcpy((T *)w->out + row * w->channels, written, (size_t)w->channels * sizeof(T));
}

INLINE void NAME(store_past)(T *to, V value, const int64_t stream) {
  if (!stream || ((uintptr_t)to & 15)) {
    NAME(store)(to, value);
    return;
  }
  T whole[NAME(STEP)];
  NAME(store)(whole, value);
  ISA(stream)(to, whole, sizeof whole);
}

/* values = x - (a rough mean), and *shift and *r of  x̂ = (values - shift) r: exact to rounding, however large the mean.
 * Lanes behind the last channel stay 0. */
INLINE void NAME(centre_row)(const row_job *w, const T *x, const int64_t vectors, V *values, A *shift, A *r) {
  const A per_channel = (A)1 / (A)w->channels;
  V total = {0}, moved = {0}, square = {0};
  EACH_OF_ROW(v) {
    values[v] = NAME(load)(x + v * NAME(STEP));
    total += values[v];
  }
  const A rough = NAME(across)(total) * per_channel;
  EACH_OF_ROW(v) values[v] -= rough;
  for (int64_t j = w->channels; j < vectors * NAME(STEP); j++) ((A *)values)[j] = 0;
  EACH_OF_ROW(v) {
    moved += values[v];
    square += values[v] * values[v];
  }
  *shift = NAME(across)(moved) * per_channel;
  const A var = NAME(across)(square) * per_channel - *shift * *shift;
  *r = 1 / NAME(root_of)((var < 0 ? 0 : var) + (A)w->eps);
}

INLINE V NAME(clip)(V value, V z) { return (V)((M)value & ~(M)(z < 0)); }

INLINE void NAME(forward_row)(const row_job *w, const NAME(row_room) *room, int64_t row, const int64_t vectors,
                              const int relu) {
  A shift, r;
  NAME(centre_row)(w, NAME(row_from)(w, room, w->x, row, 0, vectors), vectors, room->values, &shift, &r);
  const T *residual = w->residual ? NAME(row_from)(w, room, w->residual, row, 1, vectors) : 0;
  T *y = NAME(row_to)(w, room, row, vectors);
  EACH_OF_ROW(v) {
    V z = room->gamma[v] * ((room->values[v] - shift) * r) + room->beta[v];
    if (relu) z = NAME(clip)(z, z);
    if (residual) z += NAME(load)(residual + v * NAME(STEP));
    NAME(store_past)(y + v * NAME(STEP), z, w->stream);
  }
  NAME(row_done)(w, room, row, y);
}

INLINE void NAME(backward_row)(const row_job *w, const NAME(row_room) *room, int64_t row, const int64_t vectors,
                               const int relu) {
  const A per_channel = (A)1 / (A)w->channels;
  A shift, r;
  NAME(centre_row)(w, NAME(row_from)(w, room, w->x, row, 0, vectors), vectors, room->values, &shift, &r);
  const T *dy = NAME(row_from)(w, room, w->dy, row, 1, vectors);
  T *dx = NAME(row_to)(w, room, row, vectors);
  V straight = {0}, along = {0};
  EACH_OF_ROW(v) {
    V hat = (room->values[v] - shift) * r, dz = NAME(load)(dy + v * NAME(STEP));
    if (relu) dz = NAME(clip)(dz, room->gamma[v] * hat + room->beta[v]);
    V g = room->gamma[v] * dz;
    room->values[v] = hat, room->gradients[v] = g;
    straight += g;
    along += g * hat;
    room->sum_w[v] += dz * hat;
    room->sum_b[v] += dz;
  }
  const A p = NAME(across)(straight) * per_channel, q = NAME(across)(along) * per_channel;
  EACH_OF_ROW(v) {
    V gradient = r * ((room->gradients[v] - p) - room->values[v] * q);
    NAME(store_past)(dx + v * NAME(STEP), gradient, w->stream);
  }
  NAME(row_done)(w, room, row, dx);
}

/* A member's parameter, or its neutral value, filled up to whole vectors. */
INLINE void NAME(copy_parameter)(const void *from, int64_t member, int64_t channels, int64_t vectors, A otherwise, V *to) {
  for (int64_t v = 0; v < vectors; v++) to[v] = (V){0} + (from ? 0 : otherwise);
  if (from) memcpy(to, (const A *)from + member * channels, (size_t)channels * sizeof(A));
}

INLINE void NAME(flush_sums)(const row_job *w, const NAME(row_room) *room, int64_t vectors, double *to) {
  const A *sum_w = (const A *)room->sum_w, *sum_b = (const A *)room->sum_b;
  for (int64_t j = 0; j < w->channels; j++) to[j] += sum_w[j], to[w->channels + j] += sum_b[j];
  for (int64_t v = 0; v < vectors; v++) room->sum_w[v] = room->sum_b[v] = (V){0};
}

/* Rows [begin, end), counted over all members. */
INLINE void NAME(rows_of_share)(const row_job *w, const NAME(row_room) *room, int64_t begin, int64_t end,
                                int64_t share, const int64_t vectors, const int relu) {
  const int64_t C = w->channels;
  for (int64_t k = begin; k < end;) {
    const int64_t member = k / w->rows, left = (member + 1) * w->rows - k, stop = left < end - k ? k + left : end;
    NAME(copy_parameter)(w->weight, member, C, vectors, 1, room->gamma);
    NAME(copy_parameter)(w->bias, member, C, vectors, 0, room->beta);
    if (!w->dy)
      for (; k < stop; k++) NAME(forward_row)(w, room, k, vectors, relu);
    while (k < stop) {
      const int64_t pause = k + SUMMED_ROWS < stop ? k + SUMMED_ROWS : stop;
      for (; k < pause; k++) NAME(backward_row)(w, room, k, vectors, relu);
      NAME(flush_sums)(w, room, vectors, w->partial + (share * w->members + member) * 2 * C);
    }
  }
  ISA(finish_streaming)();
}

static void NAME(rows_share)(void *task, int64_t share, int64_t shares) {
  row_job *w = (row_job *)task;
  const int64_t total = w->members * w->rows, begin = total * share / shares, end = total * (share + 1) / shares;
  const int64_t vectors = (w->channels + NAME(STEP) - 1) / NAME(STEP), relu = w->relu != 0;
  V *room = aligned_alloc(sizeof(V), (size_t)(9 * vectors) * sizeof(V));
  if (!room) { w->failed = 1; return; }
  memset(room, 0, (size_t)(9 * vectors) * sizeof(V));
  NAME(row_room) far = {room, room + vectors, room + 2 * vectors, room + 3 * vectors, room + 4 * vectors,
                        room + 5 * vectors, w->channels % NAME(STEP) ? (T *)(room + 6 * vectors) : 0};
  if (w->channels == 8 * NAME(STEP)) { /* the width of the paper's models, in float: a row in registers */
    V values[8], gradients[8];
    NAME(row_room) near = {values, gradients, far.gamma, far.beta, far.sum_w, far.sum_b, 0};
    if (relu) NAME(rows_of_share)(w, &near, begin, end, share, 8, 1);
    else NAME(rows_of_share)(w, &near, begin, end, share, 8, 0);
  } else {
    NAME(rows_of_share)(w, &far, begin, end, share, vectors, relu);
  }
  free(room);
}

static void NAME(rows)(row_job *w) {
  const int64_t C = w->channels, size = 2 * w->members * C;
  if (w->dy) {
    w->partial = calloc((size_t)(w->threads * size), sizeof(double));
    if (!w->partial) { w->failed = 1; return; }
  }
  run_shares(NAME(rows_share), w, w->threads, w->threads);
  if (!w->dy) return;
  for (int64_t share = 1; share < w->threads; share++)
    for (int64_t j = 0; j < size; j++) w->partial[j] += w->partial[share * size + j];
  for (int64_t m = 0; m < w->members; m++)
    for (int64_t j = 0; j < C; j++) {
      ((A *)w->dweight)[m * C + j] = (A)w->partial[2 * m * C + j];
      ((A *)w->dbias)[m * C + j] = (A)w->partial[(2 * m + 1) * C + j];
    }
  free(w->partial);
}

#undef EACH_OF_ROW
