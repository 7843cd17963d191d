/* Products of many rows with a small matrix each, in float, for one instruction set.
 *
 * product: out = x·W (+ b), W being packed as (inner, padded) with the columns padded by zeros to whole tiles.
 * gradient: dW = gᵀ·x and db, the sums of g.
 *
 * Both keep a tile of BLOCK rows by two vectors of columns in registers over the whole inner dimension: for 6 rows, twelve
 * sums and eight loads for twelve multiply-adds, which is as many as the units take. Vectors are as wide as registers: every
 * element is a sum of its own, in order, so the bits do not depend on that. The packed matrix (16 kB at 64 × 64) stays in
 * the first cache; rows are streamed.
 */

typedef float ISA(tile_vector) __attribute__((vector_size(TILE_BYTES)));

enum { ISA(STEP) = TILE_BYTES / sizeof(float), ISA(BLOCK) = TILE_ROWS, ISA(COLUMNS) = 2 * ISA(STEP) };

INLINE ISA(tile_vector) ISA(load_tile)(const float *from) { return LOAD_WHOLE(ISA(tile_vector), from); }
INLINE void ISA(store_tile)(float *to, ISA(tile_vector) v) { STORE_WHOLE(to, v); }

#ifndef EACH_ROW
#define EACH_ROW(r) _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)

/* The call with what is left after the whole blocks as a constant, which keeps its sums in registers too. */
#define REST_CASE(n, call) case n: { enum { left = n }; call; break; }
#define REST(count, call) \
  switch (count) { \
    REST_CASE(1, call) REST_CASE(2, call) REST_CASE(3, call) REST_CASE(4, call) \
    REST_CASE(5, call) REST_CASE(6, call) REST_CASE(7, call) \
  }

#endif

/* `rows` rows (a constant at every call) by COLUMNS columns from `at` on; `wanted` of these exist. */
INLINE void ISA(product_tile)(const linear_job *w, const float *x, const float *packed, const float *bias, float *out,
                              int64_t at, const int rows) {
  ISA(tile_vector) a[8], b[8];
  ISA(tile_vector) first = {0}, second = {0};
  if (bias) first = ISA(load_tile)(bias + at), second = ISA(load_tile)(bias + at + ISA(STEP));
  EACH_ROW(r) a[r] = first, b[r] = second;
  const float *row = packed + at;
  for (int64_t k = 0; k < w->inner; k++, row += w->padded) {
    first = ISA(load_tile)(row), second = ISA(load_tile)(row + ISA(STEP));
    EACH_ROW(r) {
      const float value = x[r * w->inner + k];
      a[r] += first * value, b[r] += second * value;
    }
  }
  const int64_t wanted = w->outer - at;
  EACH_ROW(r) {
    float *to = out + r * w->outer + at;
    if (wanted >= ISA(COLUMNS)) {
      ISA(store_tile)(to, a[r]), ISA(store_tile)(to + ISA(STEP), b[r]);
    } else {
      float whole[ISA(COLUMNS)];
      ISA(store_tile)(whole, a[r]), ISA(store_tile)(whole + ISA(STEP), b[r]);
      memcpy(to, whole, wanted * sizeof(float));
    }
  }
}

/* The rows of one share: a run of one member's. */
static void ISA(product_share)(void *task, int64_t share, int64_t shares) {
  const linear_job *w = (const linear_job *)task;
  const int64_t member = share / w->parts, part = share % w->parts;
  const int64_t begin = w->rows * part / w->parts, end = w->rows * (part + 1) / w->parts;
  const float *x = w->x + member * w->x_stride, *packed = w->packed + member * w->inner * w->padded;
  const float *bias = w->bias ? w->bias + member * w->padded : 0;
  float *out = w->out + member * w->rows * w->outer;
  int64_t i = begin;
  for (; i + ISA(BLOCK) <= end; i += ISA(BLOCK))
    for (int64_t at = 0; at < w->outer; at += ISA(COLUMNS))
      ISA(product_tile)(w, x + i * w->inner, packed, bias, out + i * w->outer, at, ISA(BLOCK));
  for (int64_t at = 0; at < w->outer; at += ISA(COLUMNS))
    REST(end - i, ISA(product_tile)(w, x + i * w->inner, packed, bias, out + i * w->outer, at, left))
}

/* gᵀ·x of `count` rows for a tile of dW: `rows` of its rows (a constant at every call) by COLUMNS. x and g are packed
 * panels: COLUMNS and BLOCK values to a row. The sums go on from those at `from` (NULL: from 0); at `to` they are stored,
 * or added to what is there. */
INLINE void ISA(gradient_tile)(const float *g, const float *x, const float *from, float *to, const int add,
                               int64_t count, int64_t width, const int rows) {
  ISA(tile_vector) a[8], b[8];
  EACH_ROW(r) a[r] = b[r] = (ISA(tile_vector)){0};
  if (from) EACH_ROW(r) a[r] = ISA(load_tile)(from + r * width), b[r] = ISA(load_tile)(from + r * width + ISA(STEP));
  for (int64_t i = 0; i < count; i++, x += ISA(COLUMNS), g += ISA(BLOCK)) {
    const ISA(tile_vector) first = ISA(load_tile)(x), second = ISA(load_tile)(x + ISA(STEP));
    EACH_ROW(r) {
      const float value = g[r];
      a[r] += first * value, b[r] += second * value;
    }
  }
  if (add) EACH_ROW(r) a[r] += ISA(load_tile)(to + r * width), b[r] += ISA(load_tile)(to + r * width + ISA(STEP));
  EACH_ROW(r) ISA(store_tile)(to + r * width, a[r]), ISA(store_tile)(to + r * width + ISA(STEP), b[r]);
}

/* `count` rows of `width` values as panels of `columns` (a constant at every call) each, `apart` rows long; what the last
 * lacks is left as it was. Rows are read in the order they lie in, and asked for ahead of time: `left` exist from here
 * on. */
INLINE void ISA(pack_panels)(const float *from, float *to, int64_t count, int64_t left, int64_t width,
                             const int64_t apart, const int columns) {
  enum { AHEAD = 24, LINE = 16 };
  for (int64_t i = 0; i < count; i++, from += width) {
    for (int64_t at = 0; at < width && i + AHEAD < left; at += LINE) __builtin_prefetch(from + AHEAD * width + at);
    int64_t at = 0;
    for (; at + columns <= width; at += columns)
      memcpy(to + at * apart + i * columns, from + at, columns * sizeof(float));
    for (int64_t c = at; c < width; c++) to[at * apart + i * columns + c - at] = from[c];
  }
}

/* db += the sum of `count` rows of g, for `vectors` (a constant at every call) vectors of columns. */
INLINE void ISA(add_columns)(const float *g, float *db, int64_t count, int64_t width, const int vectors) {
  enum { STEP = sizeof(float_vector) / sizeof(float) };
  float_vector sum[8];
  EACH(v) sum[v] = ISA(load_float32)(db + v * STEP);
  for (int64_t i = 0; i < count; i++)
    EACH(v) sum[v] += ISA(load_float32)(g + i * width + v * STEP);
  EACH(v) ISA(store_float32)(db + v * STEP, sum[v]);
}

INLINE void ISA(add_rows)(const float *g, float *db, int64_t count, int64_t width) {
  enum { STEP = sizeof(float_vector) / sizeof(float) };
  int64_t o = 0;
  for (; o + 8 * STEP <= width; o += 8 * STEP) ISA(add_columns)(g + o, db + o, count, width, 8);
  for (; o + STEP <= width; o += STEP) ISA(add_columns)(g + o, db + o, count, width, 1);
  for (; o < width; o++)
    for (int64_t i = 0; i < count; i++) db[o] += g[i * width + o];
}

/* The sums over one block of a member's rows for dW, (outer, padded), and behind it db, (outer): stored at `total`, or
 * added to what is there. `room` is for the sums while they grow; where nothing is to be added it may be `total`.
 *
 * Rows go through in chunks, packed into panels: one of x stays in the first cache, all of them in the second. */
static void ISA(gradient_block)(const linear_job *w, int64_t member, int64_t block, float *room, float *total,
                                const int add) {
  enum { CHUNK = 128 };
  const int64_t begin = block * LINEAR_BLOCK, width = w->padded, outer = w->outer;
  const int64_t end = begin + LINEAR_BLOCK < w->rows ? begin + LINEAR_BLOCK : w->rows;
  const float *g = w->g + member * w->rows * outer, *x = w->x + member * w->x_stride;
  float db[LINEAR_WIDEST] = {0}, *total_db = total + outer * width;
  float g_panels[CHUNK * (LINEAR_WIDEST + ISA(BLOCK))], x_panels[CHUNK * LINEAR_WIDEST];
  if (begin >= end) memset(total, 0, outer * width * sizeof(float)); /* no rows at all */
  const int64_t whole = w->inner / ISA(COLUMNS) * ISA(COLUMNS);
  if (whole < w->inner) memset(x_panels + whole * CHUNK, 0, CHUNK * ISA(COLUMNS) * sizeof(float));
  for (int64_t i = begin; i < end; i += CHUNK) {
    const int64_t count = end - i < CHUNK ? end - i : CHUNK;
    const int last = i + CHUNK >= end;
    const float *from = i == begin ? 0 : room;
    float *to = last ? total : room;
    ISA(pack_panels)(g + i * outer, g_panels, count, end - i, outer, CHUNK, ISA(BLOCK));
    ISA(pack_panels)(x + i * w->inner, x_panels, count, end - i, w->inner, CHUNK, ISA(COLUMNS));
    ISA(add_rows)(g + i * outer, db, count, outer);
    for (int64_t at = 0; at < w->inner; at += ISA(COLUMNS)) {
      const float *panel = x_panels + at * CHUNK;
      int64_t o = 0;
#define TILE(height) \
  ISA(gradient_tile)(g_panels + o * CHUNK, panel, from ? from + o * width + at : 0, to + o * width + at, last && add, \
                     count, width, height)
      for (; o + ISA(BLOCK) <= outer; o += ISA(BLOCK)) TILE(ISA(BLOCK));
      REST(outer - o, TILE(left))
#undef TILE
    }
  }
  for (int64_t o = 0; o < outer; o++) total_db[o] = add ? total_db[o] + db[o] : db[o];
}

/* A member's gradients are the sums of its blocks, added up in order, whichever thread has them. So they depend neither
 * on the number of threads nor on that of members. */
static void ISA(gradient_of_member)(void *task, int64_t member, int64_t members) {
  const linear_job *w = (const linear_job *)task;
  float *total = w->sums + member * w->outer * (w->padded + 1), room[LINEAR_WIDEST * LINEAR_WIDEST];
  (void)members;
  ISA(gradient_block)(w, member, 0, total, total, 0);
  for (int64_t b = 1; b < linear_blocks(w); b++) ISA(gradient_block)(w, member, b, room, total, 1);
}

static void ISA(gradient_of_block)(void *task, int64_t share, int64_t shares) {
  const linear_job *w = (const linear_job *)task;
  const int64_t blocks = linear_blocks(w);
  float *sums = w->block_sums + share * w->outer * (w->padded + 1);
  (void)shares;
  ISA(gradient_block)(w, share / blocks, share % blocks, sums, sums, 0);
}

static void ISA(linear_gradient)(linear_job *w) {
  enum { STEP = sizeof(float_vector) / sizeof(float) };
  const int64_t size = w->outer * (w->padded + 1), blocks = linear_blocks(w);
  if (!w->block_sums) {
    run_shares(ISA(gradient_of_member), w, w->members, w->threads);
    return;
  }
  run_shares(ISA(gradient_of_block), w, w->members * blocks, w->threads);
  for (int64_t m = 0; m < w->members; m++) {
    const float *from = w->block_sums + m * blocks * size;
    float *to = w->sums + m * size;
    memcpy(to, from, (size_t)size * sizeof(float));
    for (int64_t b = 1; b < blocks; b++) {
      from += size;
      int64_t i = 0;
      for (; i + STEP <= size; i += STEP)
        ISA(store_float32)(to + i, ISA(load_float32)(to + i) + ISA(load_float32)(from + i));
      for (; i < size; i++) to[i] += from[i];
    }
  }
}

static void ISA(linear_product)(linear_job *w) { run_shares(ISA(product_share), w, w->members * w->parts, w->threads); }
