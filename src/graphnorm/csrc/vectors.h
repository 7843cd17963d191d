/* Vectors of one element type: loads and stores, of whole vectors and of fewer channels.
 *
 * Included once per type, before its kernels, with
 *   T        the element type of x, y and their gradients      NAME(f)  f with the type's suffix
 *   A, V, M  the type it is computed in, its vector and the vector of its comparisons
 */

enum { NAME(LANES) = VECTOR_BYTES / sizeof(A) };

/* As many doubles as a vector has lanes. */
typedef double NAME(doubles) __attribute__((vector_size(sizeof(double) * VECTOR_BYTES / sizeof(A))));

/* `lanes` < LANES only where a row has fewer channels than that. */
INLINE V NAME(load_some)(const T *from, const int64_t lanes) {
  if (lanes == NAME(LANES)) return NAME(load)(from);
  T whole[NAME(LANES)] = {0};
  for (int64_t l = 0; l < lanes; l++) whole[l] = from[l];
  return NAME(load)(whole);
}

/* A whole vector; past the caches if `stream`, which needs a multiple of 16 as its address. */
INLINE void NAME(store_whole)(T *to, V value, const int stream) {
  if (!stream) {
    NAME(store)(to, value);
    return;
  }
  T whole[NAME(LANES)];
  NAME(store)(whole, value);
  ISA(stream)(to, whole, sizeof whole);
}

INLINE void NAME(store_some)(T *to, V value, const int64_t lanes, const int64_t stream) {
  if (lanes == NAME(LANES)) {
    NAME(store_whole)(to, value, stream && ((uintptr_t)to & 15) == 0);
    return;
  }
  T whole[NAME(LANES)];
  NAME(store)(whole, value);
  for (int64_t l = 0; l < lanes; l++) to[l] = whole[l];
}

INLINE V NAME(zero_where)(M condition, V value) { return (V)((M)value & ~condition); }
