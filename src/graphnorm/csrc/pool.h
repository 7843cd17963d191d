/* A parallel region on the thread pool that torch already runs.
 *
 * The library is neither compiled nor linked with OpenMP: two pools on the same cores slow each other down, and not every
 * compiler has one. Python passes the address of torch's own GOMP_parallel instead. Without it, or for little work,
 * everything runs in the calling thread.
 */
#pragma once
#include <stdint.h>

typedef void (*gomp_parallel_fn)(void (*body)(void *), void *data, unsigned threads, unsigned flags);
typedef void (*share_fn)(void *task, int64_t share, int64_t shares);

static gomp_parallel_fn gomp_parallel = 0;

typedef struct {
  share_fn body;
  void *task;
  int64_t shares;
  int64_t next; /* threads draw their share from here, so no thread id is needed */
} region;

static void region_entry(void *data) {
  region *r = (region *)data;
  int64_t share;
  while ((share = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED)) < r->shares) r->body(r->task, share, r->shares);
}

/* Call body(task, s, shares) for every s in [0, shares), at once where there are threads for it. */
static void run_shares(share_fn body, void *task, int64_t shares, int64_t threads) {
  region r = {body, task, shares, 0};
  if (threads > shares) threads = shares;
  if (threads > 1 && gomp_parallel)
    gomp_parallel(region_entry, &r, (unsigned)threads, 0);
  else
    region_entry(&r);
}
