/* graphnorm._kernels: the fused CPU paths, as a Python module that knows addresses and sizes, not tensors.
 *
 * It uses Python's stable ABI and nothing of torch, so one build serves every Python from 3.11 on and every torch.
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "scalars.h"
#include "pool.h"
#include "job.h"
#include "assemble.h"

typedef void (*kernel)(job *);

#define ISA(f) f##_baseline
#include "instructions.h"
#undef ISA

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAVE_AVX2 1
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2")
#define ISA(f) f##_avx2
#include "instructions.h"
#undef ISA
#pragma GCC pop_options
#else
#define HAVE_AVX2 0
#endif

/* Chosen once, when the module is loaded. */
static const kernel *forward_kernels = forward_kernels_baseline, *backward_kernels = backward_kernels_baseline;

static void choose_instructions(void) {
#if HAVE_AVX2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    forward_kernels = forward_kernels_avx2, backward_kernels = backward_kernels_avx2;
#endif
}

enum { MAX_ARGUMENTS = 32 };
enum { STREAMED_ELEMENTS = 3 << 20 }; /* outputs beyond this do not fit the caches beside their inputs */

static int read_integers(PyObject *const *args, Py_ssize_t count, Py_ssize_t expected, int64_t *out) {
  if (count != expected) {
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", expected, count);
    return 0;
  }
  for (Py_ssize_t i = 0; i < expected; i++) out[i] = PyLong_AsLongLong(args[i]);
  return !PyErr_Occurred();
}

static const void *address(int64_t value) { return (const void *)(intptr_t)value; }

/* Bytes of an element; the order of types is that of cpu.py. */
static int64_t size_of(int64_t type) { return type == 0 ? 4 : type == 1 ? 8 : 2; }

/* The arguments that forward and backward share, in the order of cpu.py. */
static job job_of(const int64_t *a, double eps, int64_t size) {
  job w = {0};
  w.members = a[0], w.rows = a[1], w.channels = a[2], w.segments = a[3];
  w.ptr = address(a[4]), w.ptr_stride = a[5], w.order = address(a[6]), w.order_stride = a[7];
  w.weight = address(a[8]), w.bias = address(a[9]), w.mean_scale = address(a[10]);
  w.mean = (double *)address(a[11]), w.var = (void *)address(a[12]);
  w.relu = a[13], w.statistics = a[14];
  /* small work is done before a second thread has woken up */
  w.threads = w.members * w.rows * w.channels < 16384 ? 1 : a[15];
  /* whole cache lines only: what is left of one would be written twice */
  w.stream = w.members * w.rows * w.channels > STREAMED_ELEMENTS && w.channels * size % 64 == 0;
  w.x = address(a[16]), w.out = (void *)address(a[17]);
  w.eps = eps;
  return w;
}

static PyObject *run(const kernel *table, int64_t type, job *w) {
  if (type < 0 || type > 3 || !table[type]) {
    PyErr_SetString(PyExc_TypeError, "no kernel for this element type");
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
  table[type](w);
  Py_END_ALLOW_THREADS
  if (w->failed) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

/* forward(eps, type, <18 shared>, residual) */
static PyObject *py_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[MAX_ARGUMENTS];
  if (count < 1 || !read_integers(args + 1, count - 1, 20, a)) return NULL;
  job w = job_of(a + 1, PyFloat_AsDouble(args[0]), size_of(a[0]));
  w.residual = address(a[19]);
  return run(forward_kernels, a[0], &w);
}

/* backward(eps, type, <18 shared>, dy, dparams) */
static PyObject *py_backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[MAX_ARGUMENTS];
  if (count < 1 || !read_integers(args + 1, count - 1, 21, a)) return NULL;
  job w = job_of(a + 1, PyFloat_AsDouble(args[0]), size_of(a[0]));
  w.dy = address(a[19]), w.dparams = (void *)address(a[20]);
  return run(backward_kernels, a[0], &w);
}

/* boundaries(batch, rows, segments, ptr): fill ptr (segments + 1) from a sorted vector of ids.
 * Returns -1 when it is sorted and in range, else the first row that is not. */
static PyObject *py_boundaries(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[4];
  if (!read_integers(args, count, 4, a)) return NULL;
  const int64_t *batch = address(a[0]), rows = a[1], segments = a[2];
  int64_t *ptr = (int64_t *)address(a[3]), bad = -1, next = 0;
  Py_BEGIN_ALLOW_THREADS
  for (int64_t i = 0; i < rows; i++) {
    int64_t id = batch[i];
    if (id == next - 1 && id >= 0) continue;
    if (id < next || id >= segments) { bad = i; break; }
    while (next <= id) ptr[next++] = i;
  }
  while (bad < 0 && next <= segments) ptr[next++] = rows;
  Py_END_ALLOW_THREADS
  return PyLong_FromLongLong(bad);
}

/* measure(ids, members, slots, counts, graphs): (low, high, nodes, edges, full) */
static PyObject *py_measure(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[5];
  if (!read_integers(args, count, 5, a)) return NULL;
  extent e = measure(address(a[0]), a[1], a[2], address(a[3]), a[4]);
  return Py_BuildValue("(LLLLi)", (long long)e.low, (long long)e.high, (long long)e.nodes, (long long)e.edges, e.full);
}

/* assemble(threads, members, slots, rows, edges, ids, <7 packed arrays>, <5 arrays of the batch>,
 *          <(packed, out, bytes) of 2 features of nodes and of 2 of edges>) */
static PyObject *py_assemble(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[MAX_ARGUMENTS];
  if (!read_integers(args, count, 30, a)) return NULL;
  assembly w = {0};
  w.members = a[1], w.slots = a[2], w.rows = a[3], w.edges = a[4], w.ids = address(a[5]);
  w.node_start = address(a[6]), w.node_count = address(a[7]);
  w.edge_start = address(a[8]), w.edge_count = address(a[9]);
  w.packed_labels = address(a[10]), w.packed_rowptr = address(a[11]), w.packed_col = address(a[12]);
  w.labels = (int64_t *)address(a[13]), w.ptr = (int64_t *)address(a[14]), w.batch = (int64_t *)address(a[15]);
  w.rowptr = (int64_t *)address(a[16]), w.col = (int64_t *)address(a[17]);
  for (int f = 0; f < 4; f++) {
    feature *to = f < 2 ? &w.of_nodes[f] : &w.of_edges[f - 2];
    to->packed = address(a[18 + 3 * f]), to->out = (char *)address(a[19 + 3 * f]), to->bytes = a[20 + 3 * f];
  }
  Py_BEGIN_ALLOW_THREADS
  assemble(&w, a[0]);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

/* one_hot(threads, tags, tag_bytes, rows, columns, real, cardinalities, width, out): -1, or a row whose tag is wrong */
static PyObject *py_one_hot(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[9];
  if (!read_integers(args, count, 9, a)) return NULL;
  hot w = {address(a[1]), a[2], a[3], a[4], address(a[5]), address(a[6]), a[7], (float *)address(a[8]), -1};
  Py_BEGIN_ALLOW_THREADS
  one_hot(&w, a[0]);
  Py_END_ALLOW_THREADS
  return PyLong_FromLongLong(w.wrong);
}

static PyObject *py_use_pool(PyObject *self, PyObject *value) {
  gomp_parallel = (gomp_parallel_fn)(intptr_t)PyLong_AsLongLong(value);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"forward", (PyCFunction)(void (*)(void))py_forward, METH_FASTCALL, "Standardize; see ops/standardize/cpu.py."},
    {"backward", (PyCFunction)(void (*)(void))py_backward, METH_FASTCALL, "Its gradients."},
    {"boundaries", (PyCFunction)(void (*)(void))py_boundaries, METH_FASTCALL, "Pointers of a sorted batch vector."},
    {"measure", (PyCFunction)(void (*)(void))py_measure, METH_FASTCALL, "What graph ids ask for; see data/compiled.py."},
    {"assemble", (PyCFunction)(void (*)(void))py_assemble, METH_FASTCALL, "The batch of graph ids."},
    {"one_hot", (PyCFunction)(void (*)(void))py_one_hot, METH_FASTCALL, "Categorical features one-hot."},
    {"use_pool", py_use_pool, METH_O, "Run on the pool behind this GOMP_parallel; 0: in the calling thread."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_kernels", "Fused CPU kernels of graphnorm.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) {
  choose_instructions();
  PyObject *m = PyModule_Create(&module);
  if (m && PyModule_AddIntConstant(m, "HAS_FLOAT16", HAVE_FLOAT16) < 0) return NULL;
  return m;
}
