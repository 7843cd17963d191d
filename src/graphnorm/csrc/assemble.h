/* From graph ids to one batch: the C twin of data/batching.py, in its words.
 *
 * Graphs lie one after another in the packed arrays, so each of them is copied in whole blocks. Ids, counts and starts
 * were checked by the caller: an id is -1 or a graph, a graph lies within the packed arrays, a batch within its bounds.
 */
#pragma once
#include <stdint.h>
#include <string.h>

enum { SMALL_OUTPUT = 1 << 17 }; /* elements that are written before a second thread has woken up */

/* The range of ids, the largest batch, and whether all batches are of that size without empty places. */
typedef struct {
  int64_t low, high, nodes, edges;
  int full;
} extent;

/* ids is (members, slots); counts is (2, graphs + 1): nodes and edges, looked up only where all ids fit. */
static extent measure(const int64_t *ids, int64_t members, int64_t slots, const int64_t *counts, int64_t graphs) {
  extent e = {-1, -1, 0, 0, 0};
  if (members * slots > 0) e.low = e.high = ids[0];
  for (int64_t i = 1; i < members * slots; i++) {
    if (ids[i] < e.low) e.low = ids[i];
    if (ids[i] > e.high) e.high = ids[i];
  }
  if (e.low < -1 || e.high >= graphs) return e;
  e.full = e.low >= 0;
  for (int64_t m = 0; m < members; m++) {
    int64_t nodes = 0, edges = 0;
    for (int64_t k = 0; k < slots; k++) {
      int64_t id = ids[m * slots + k];
      if (id >= 0) nodes += counts[id], edges += counts[graphs + 1 + id];
    }
    if (m > 0 && (nodes != e.nodes || edges != e.edges)) e.full = 0;
    if (nodes > e.nodes) e.nodes = nodes;
    if (edges > e.edges) e.edges = edges;
  }
  return e;
}

/* One array of features: `bytes` for each node or edge; 0 where there are none. */
typedef struct {
  const char *packed;
  char *out;
  int64_t bytes;
} feature;

static inline void copy_features(const feature *f, int64_t to, int64_t from, int64_t count) {
  if (f->bytes > 0) memcpy(f->out + to * f->bytes, f->packed + from * f->bytes, (size_t)(count * f->bytes));
}

static inline void clear_features(const feature *f, int64_t from, int64_t count) {
  if (f->bytes > 0) memset(f->out + from * f->bytes, 0, (size_t)(count * f->bytes));
}

/* One call of assemble: a stack of batches, each of `slots` graphs in `rows` rows and `edges` edges. */
typedef struct {
  int64_t members, slots, rows, edges;
  const int64_t *ids;                                              /* (members, slots) */
  const int64_t *node_start, *node_count, *edge_start, *edge_count; /* (graphs,) each */
  const int64_t *packed_labels, *packed_rowptr;
  const int32_t *packed_col;
  int64_t *labels, *ptr, *batch, *rowptr, *col; /* as in GraphBatch, with a leading `members` */
  feature of_nodes[2], of_edges[2];
} assembly;

static void assemble_member(void *task, int64_t member, int64_t members) {
  const assembly *w = (const assembly *)task;
  const int64_t *ids = w->ids + member * w->slots;
  int64_t *labels = w->labels + member * w->slots, *ptr = w->ptr + member * (w->slots + 1);
  int64_t *batch = w->batch + member * w->rows, *rowptr = w->rowptr + member * (w->rows + 1);
  int64_t *col = w->col + member * w->edges;
  int64_t row = 0, edge = 0;
  (void)members;

  for (int64_t k = 0; k < w->slots; k++) {
    int64_t id = ids[k];
    ptr[k] = row;
    labels[k] = id < 0 ? -1 : w->packed_labels[id];
    if (id < 0) continue;
    int64_t first_node = w->node_start[id], nodes = w->node_count[id];
    int64_t first_edge = w->edge_start[id], edges = w->edge_count[id];
    const int64_t *from_rowptr = w->packed_rowptr + first_node;
    const int32_t *from_col = w->packed_col + first_edge;
    for (int64_t i = 0; i < nodes; i++) batch[row + i] = k;
    for (int64_t i = 0; i < nodes; i++) rowptr[row + i] = from_rowptr[i] - first_edge + edge;
    for (int64_t i = 0; i < edges; i++) col[edge + i] = from_col[i] + row;
    for (int f = 0; f < 2; f++) {
      copy_features(&w->of_nodes[f], member * w->rows + row, first_node, nodes);
      copy_features(&w->of_edges[f], member * w->edges + edge, first_edge, edges);
    }
    row += nodes, edge += edges;
  }

  ptr[w->slots] = row;
  for (int64_t i = row; i < w->rows; i++) batch[i] = w->slots, rowptr[i] = edge;
  rowptr[w->rows] = edge;
  for (int64_t i = edge; i < w->edges; i++) col[i] = 0;
  for (int f = 0; f < 2; f++) {
    clear_features(&w->of_nodes[f], member * w->rows + row, w->rows - row);
    clear_features(&w->of_edges[f], member * w->edges + edge, w->edges - edge);
  }
}

static void assemble(assembly *w, int64_t threads) {
  int64_t written = w->members * (2 * w->rows + w->edges);
  run_shares(assemble_member, w, w->members, written < SMALL_OUTPUT ? 1 : threads);
}

/* One call of one_hot: (rows, columns) tags to (rows, width) floats with a one for each tag. */
typedef struct {
  const char *tags;
  int64_t tag_bytes, rows, columns; /* 1 byte is unsigned; 2, 4 and 8 are signed */
  const uint8_t *real;              /* (rows,): 0 for rows without ones; NULL: there are none such */
  const int64_t *cardinalities;     /* (columns,), which sum to width */
  int64_t width;
  float *out;
  int64_t wrong; /* a row with a tag that is not below its cardinality; -1 */
} hot;

static inline int64_t tag_at(const hot *w, int64_t i) {
  switch (w->tag_bytes) {
    case 1: return ((const uint8_t *)w->tags)[i];
    case 2: return ((const int16_t *)w->tags)[i];
    case 4: return ((const int32_t *)w->tags)[i];
    default: return ((const int64_t *)w->tags)[i];
  }
}

static void one_hot_share(void *task, int64_t share, int64_t shares) {
  hot *w = (hot *)task;
  int64_t first = w->rows * share / shares, last = w->rows * (share + 1) / shares;
  memset(w->out + first * w->width, 0, (size_t)((last - first) * w->width) * sizeof(float));
  for (int64_t row = first; row < last; row++) {
    if (w->real && !w->real[row]) continue;
    float *out = w->out + row * w->width;
    for (int64_t k = 0; k < w->columns; k++) {
      int64_t tag = tag_at(w, row * w->columns + k);
      if (tag < 0 || tag >= w->cardinalities[k]) {
        __atomic_store_n(&w->wrong, row, __ATOMIC_RELAXED);
        return;
      }
      out[tag] = 1;
      out += w->cardinalities[k];
    }
  }
}

static void one_hot(hot *w, int64_t threads) {
  int64_t shares = w->rows * w->width < SMALL_OUTPUT * 2 ? 1 : threads;
  run_shares(one_hot_share, w, shares, shares);
}
