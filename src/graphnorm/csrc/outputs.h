/* Memory for outputs, which becomes tensors by way of DLPack.
 *
 * The system clears and maps memory page by page, at the first write to each, and malloc gives large blocks back as soon
 * as they are free. A layer, which makes two arrays as large as its input in every step, would spend more time on that
 * than on its arithmetic. So blocks that were freed are kept, up to a bound, for later outputs of about their size, and
 * new ones lie on pages of 2 MiB where the system leaves that choice to programs.
 */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum { HUGE_PAGE = 2 << 20, SMALLEST_STEP = 16 << 10, MOST_BLOCKS = 32 };

typedef struct {
  void *memory;
  int64_t capacity;
} block;

static struct {
  block blocks[MOST_BLOCKS]; /* the oldest first */
  int count;
  int64_t bytes, most_bytes; /* glibc's malloc, too, keeps up to 64 MiB before it gives memory back */
  char busy;
} kept = {.most_bytes = 64 << 20};

/* Gives up after a while: the thread that held the lock may have been lost in a fork. */
static int lock_kept(void) {
  for (int attempt = 0; attempt < 1 << 12; attempt++)
    if (!__atomic_test_and_set(&kept.busy, __ATOMIC_ACQUIRE)) return 1;
  return 0;
}

static void unlock_kept(void) { __atomic_clear(&kept.busy, __ATOMIC_RELEASE); }

/* Rounded up by an eighth at the most, so that outputs of about the same size can use each other's blocks. */
static int64_t capacity_for(int64_t bytes) {
  int64_t step = SMALLEST_STEP;
  while (step * 16 <= bytes) step *= 2;
  return (bytes + step - 1) / step * step;
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

/* The smallest of the kept blocks that are large enough, if it is not much too large; otherwise a new one. */
static block take_block(int64_t bytes) {
  block b = {0, 0};
  if (lock_kept()) {
    int best = -1;
    for (int i = 0; i < kept.count; i++) {
      const int64_t capacity = kept.blocks[i].capacity;
      if (capacity < bytes || capacity > capacity_for(bytes + bytes / 4)) continue;
      if (best < 0 || capacity <= kept.blocks[best].capacity) best = i; /* of equals the latest: it may be in the cache */
    }
    if (best >= 0) b = remove_kept(best);
    unlock_kept();
  }
  return b.memory ? b : new_block(bytes);
}

/* Frees the oldest until there is room for so many bytes and one block more; whether that was possible. Holds the lock
 * afterwards if it was. */
static int make_room(int64_t bytes) {
  while (bytes <= kept.most_bytes && lock_kept()) {
    if (kept.bytes + bytes <= kept.most_bytes && kept.count < MOST_BLOCKS) return 1;
    const block oldest = remove_kept(0);
    unlock_kept();
    free_block(oldest);
  }
  return 0;
}

static void give_back_block(block b) {
  if (!make_room(b.capacity)) {
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

/* Called by whichever thread lets go of the tensor last. */
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
