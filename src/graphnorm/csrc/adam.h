/* One step of Adam over entries that belong to members; see training/adam.py for the mathematics. */

/* Up to one vector of one member's entries. What is left of a run goes through the same vector, filled up with zeros, so
 * an entry's rounding does not depend on where it lies. */
INLINE void ISA(adam_vector)(const adam_job *w, int64_t at, int64_t member, int64_t count) {
  enum { STEP = sizeof(float_vector) / sizeof(float) };
  float entries[4][STEP] = {{0}}, *arrays[4] = {w->parameters, w->first, w->second, (float *)w->gradient};
  float_vector v[4];
  for (int k = 0; k < 4; k++) {
    if (count == STEP) v[k] = ISA(load_float32)(arrays[k] + at);
    else memcpy(entries[k], arrays[k] + at, (size_t)count * sizeof(float)), v[k] = ISA(load_float32)(entries[k]);
  }
  const float_vector gradient = v[3] + w->decay[member] * v[0];
  v[1] += (gradient - v[1]) * w->first_share;
  v[2] += (gradient * gradient - v[2]) * w->second_share;
  v[0] -= w->rate[member] * v[1] / (ISA(root_float)(v[2]) / w->root[member] + w->epsilon);
  for (int k = 0; k < 3; k++) {
    if (count == STEP) ISA(store_float32)(arrays[k] + at, v[k]);
    else ISA(store_float32)(entries[k], v[k]), memcpy(arrays[k] + at, entries[k], (size_t)count * sizeof(float));
  }
}

static void ISA(adam_step)(adam_job *w) {
  enum { STEP = sizeof(float_vector) / sizeof(float) };
  for (int64_t begin = 0, end; begin < w->entries; begin = end) {
    const int64_t member = w->owner[begin];
    for (end = begin + 1; end < w->entries && w->owner[end] == member;) end++;
    if (!w->active[member]) continue;
    int64_t at = begin;
    for (; at + STEP <= end; at += STEP) ISA(adam_vector)(w, at, member, STEP);
    if (at < end) ISA(adam_vector)(w, at, member, end - at);
  }
}
