/* Memory for outputs, made into tensors through DLPack.
 *
 * The system clears and maps memory page by page, at the first write to each, and malloc gives large blocks back as soon
 * as they are free. A layer, which makes two arrays as large as its input in every step, would spend more time on that
 * than on its arithmetic. So blocks that were freed are kept, up to a bound, for later outputs of about their size, and
 * new ones lie on pages of 2 MiB where the system leaves that choice to programs. Used and kept blocks together never
 * take more than used ones alone once did, or than the bound: so a program that uses much has no more at a time, and one
 * that uses little keeps the blocks of several sizes, as steps with batches of several sizes need them in turn.
 */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum { HUGE_PAGE = 2 << 20, SMALLEST_STEP = 16 << 10, MOST_BLOCKS = 128 };

typedef struct {
  void *memory;
  int64_t capacity;
} block;

static struct {
  block blocks[MOST_BLOCKS]; /* the oldest first */
  int count;
  int64_t bytes, most_bytes;
  int64_t used, most_used; /* bytes of the blocks that are tensors, now and ever */
  char busy;
} kept = {.most_bytes = 256 << 20};

/* Gives up after a while: the thread that held the lock may have been lost in a fork. */
static int lock_kept(void) {
  for (int attempt = 0; attempt < 1 << 12; attempt++)
    if (!__atomic_test_and_set(&kept.busy, __ATOMIC_ACQUIRE)) return 1;
  return 0;
}

static void unlock_kept(void) { __atomic_clear(&kept.busy, __ATOMIC_RELEASE); }

static int64_t round_up(int64_t bytes, int64_t step) { return (bytes + step - 1) / step * step; }

/* Rounded up by an eighth at the most, so that outputs of about the same size can use each other's blocks; to whole pages
 * of 2 MiB where that adds no more than a quarter. */
static int64_t capacity_for(int64_t bytes) {
  int64_t step = SMALLEST_STEP;
  while (step * 16 <= bytes) step *= 2;
  return round_up(bytes, HUGE_PAGE) <= bytes + bytes / 4 ? round_up(bytes, HUGE_PAGE) : round_up(bytes, step);
}

#ifdef __linux__
static block new_block(int64_t bytes) {
  block b = {0, capacity_for(bytes)};
  const size_t size = (size_t)b.capacity, spare = size < HUGE_PAGE ? 0 : HUGE_PAGE;
  char *begin = mmap(0, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return b;
  const size_t before = spare ? (HUGE_PAGE - (uintptr_t)begin % HUGE_PAGE) % HUGE_PAGE : 0;
  if (before) munmap(begin, before);
  if (spare > before) munmap(begin + before + size, spare - before);
  b.memory = begin + before;
#ifdef MADV_HUGEPAGE
  if (spare) (void)madvise(b.memory, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a refusal changes nothing */
#endif
  return b;
}

static void free_block(block b) { munmap(b.memory, (size_t)b.capacity); }
#else
static block new_block(int64_t bytes) {
  const int64_t capacity = capacity_for(bytes);
  block b = {malloc((size_t)capacity), capacity};
  return b;
}

static void free_block(block b) { free(b.memory); }
#endif

static block remove_kept(int index) {
  const block b = kept.blocks[index];
  kept.bytes -= b.capacity, kept.count--;
  for (int i = index; i < kept.count; i++) kept.blocks[i] = kept.blocks[i + 1];
  return b;
}

/* Frees the oldest until there are no more than so many bytes and blocks. Returns 1 and holds the lock, or 0 if it could
 * not get the lock. */
static int shrink_kept(int64_t bytes, int count) {
  while (lock_kept()) {
    if (!kept.count || (kept.bytes <= bytes && kept.count <= count)) return 1;
    const block oldest = remove_kept(0);
    unlock_kept();
    free_block(oldest);
  }
  return 0;
}

/* The smallest of the kept blocks that are large enough, if it is not much too large; none: its memory is NULL. */
static block take_kept(int64_t bytes) {
  block b = {0, 0};
  int best = -1;
  if (!lock_kept()) return b;
  for (int i = 0; i < kept.count; i++) {
    const int64_t capacity = kept.blocks[i].capacity;
    if (capacity < bytes || capacity > capacity_for(bytes + bytes / 4)) continue;
    if (best < 0 || capacity <= kept.blocks[best].capacity) best = i; /* of equals the latest: it may be in the cache */
  }
  if (best >= 0) b = remove_kept(best);
  unlock_kept();
  return b;
}

static block take_block(int64_t bytes) {
  block b = take_kept(bytes);
  const int is_new = !b.memory;
  if (is_new) b = new_block(bytes);
  if (!b.memory) return b;
  const int64_t used = __atomic_add_fetch(&kept.used, b.capacity, __ATOMIC_RELAXED);
  if (used > kept.most_used) kept.most_used = used;
  const int64_t most = kept.most_used > kept.most_bytes ? kept.most_used : kept.most_bytes;
  if (is_new && shrink_kept(most - used, MOST_BLOCKS)) unlock_kept();
  return b;
}

static void give_back_block(block b) {
  __atomic_sub_fetch(&kept.used, b.capacity, __ATOMIC_RELAXED);
  if (b.capacity > kept.most_bytes || !shrink_kept(kept.most_bytes - b.capacity, MOST_BLOCKS - 1)) {
    free_block(b);
    return;
  }
  kept.blocks[kept.count++] = b, kept.bytes += b.capacity;
  unlock_kept();
}

/* ---- as tensors ----------------------------------------------------------------------------------------- */

/* The layout that DLPack prescribes. */
typedef struct {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
  dl_tensor tensor;
  void *context;
  void (*deleter)(struct dl_managed *);
} dl_managed;

enum { DL_CPU = 1, DL_FLOAT = 2, DL_BFLOAT = 4, MOST_DIMENSIONS = 3 };

typedef struct {
  dl_managed managed;
  int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
  block b;
} output;

/* Called by the thread that frees the tensor. */
static void delete_output(dl_managed *managed) {
  output *o = (output *)managed->context;
  give_back_block(o->b);
  free(o);
}

/* NULL: out of memory. */
static dl_managed *new_output(int is_bfloat, int64_t element_bytes, int ndim, const int64_t *shape) {
  output *o = calloc(1, sizeof *o);
  int64_t count = 1;
  if (!o) return 0;
  for (int d = ndim - 1; d >= 0; d--) o->shape[d] = shape[d], o->strides[d] = count, count *= shape[d];
  o->b = take_block(count * element_bytes);
  if (!o->b.memory) {
    free(o);
    return 0;
  }
  o->managed.tensor = (dl_tensor){.data = o->b.memory, .device_type = DL_CPU, .ndim = ndim, .lanes = 1,
                                  .code = is_bfloat ? DL_BFLOAT : DL_FLOAT, .bits = (uint8_t)(8 * element_bytes),
                                  .shape = o->shape, .strides = o->strides};
  o->managed.context = o, o->managed.deleter = delete_output;
  return &o->managed;
}

/* ---- for Python ------------------------------------------------------------------------------------------ */

/* Frees a capsule that no tensor was made of; the others were renamed by their tensor. */
static void drop_output(PyObject *capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
  managed->deleter(managed);
}

/* output(type, <one to three sizes>): memory as it comes, in a capsule for DLPack */
static PyObject *py_output(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[1 + MOST_DIMENSIONS];
  if (count < 2 || count > 1 + MOST_DIMENSIONS) return PyErr_Format(PyExc_TypeError, "expected 2 to 4 arguments");
  if (!read_integers(args, count, count, a)) return NULL;
  dl_managed *managed = new_output(a[0] == 2, size_of(a[0]), (int)count - 1, a + 1);
  if (!managed) return PyErr_NoMemory();
  PyObject *capsule = PyCapsule_New(managed, "dltensor", drop_output);
  if (!capsule) managed->deleter(managed);
  return capsule;
}

/* keep(most): bytes of freed outputs to keep at the most from now on */
static PyObject *py_keep(PyObject *self, PyObject *value) {
  const int64_t most = PyLong_AsLongLong(value);
  if (PyErr_Occurred()) return NULL;
  kept.most_bytes = most, kept.most_used = kept.used;
  if (shrink_kept(most, MOST_BLOCKS)) unlock_kept();
  Py_RETURN_NONE;
}

/* memory(): bytes of outputs in use, of freed ones that are kept, and how many are kept at the most */
static PyObject *py_memory(PyObject *self, PyObject *unused) {
  return Py_BuildValue("(LLL)", (long long)kept.used, (long long)kept.bytes, (long long)kept.most_bytes);
}
