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

#include "arguments.h"
#include "scalars.h"
#include "pool.h"
#include "jobs.h"
#include "outputs.h"
#include "assemble.h"
#include "launch.h"

/* All kernels have the same types. */
static int has_kernel(int64_t type) {
  if (type >= 0 && type <= (HAVE_FLOAT16 ? 3 : 2)) return 1;
  PyErr_SetString(PyExc_TypeError, "no kernel for this element type");
  return 0;
}

typedef void (*standardize_kernel)(standardize_job *);
typedef void (*neighbour_sum_kernel)(neighbour_sum_job *);
typedef void (*linear_kernel)(linear_job *);
typedef void (*layer_norm_kernel)(layer_norm_job *);
typedef void (*adam_kernel)(adam_job *);

/* Products keep so many rows by two vectors of so many bytes in registers. */
#define TILE_ROWS 6
#define TILE_BYTES 32
#define ISA(f) f##_baseline
#include "instructions.h"
#undef ISA

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAVE_AVX 1
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2")
#define ISA(f) f##_avx2
#include "instructions.h"
#undef ISA
/* The same vectors of 32 bytes, in twice as many registers; for products, which compute more than they load, whole
 * registers. */
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq")
#undef TILE_ROWS
#undef TILE_BYTES
#define TILE_ROWS 8
#define TILE_BYTES 64
#define ISA(f) f##_avx512
#include "instructions.h"
#undef ISA
#pragma GCC pop_options
#else
#define HAVE_AVX 0
#endif

/* Chosen once, when the module is loaded. */
static const standardize_kernel *forward_kernels, *backward_kernels;
static const neighbour_sum_kernel *neighbour_sum_kernels;
static const layer_norm_kernel *layer_norm_kernels;
static linear_kernel linear_product, linear_gradient;
static adam_kernel adam_step;

#define CHOOSE(set) \
  (forward_kernels = forward_kernels_##set, backward_kernels = backward_kernels_##set, \
   neighbour_sum_kernels = neighbour_sum_kernels_##set, layer_norm_kernels = layer_norm_kernels_##set, \
   linear_product = linear_product_##set, linear_gradient = linear_gradient_##set, adam_step = adam_step_##set)

enum { BASELINE = 0, AVX2 = 1, AVX512 = 2 };

/* The best set of instructions that both the machine and `most` allow; gives the one chosen. */
static int choose_instructions(int64_t most) {
  CHOOSE(baseline);
#if HAVE_AVX
  if (most < AVX2 || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c"))
    return BASELINE;
  CHOOSE(avx2);
  if (most < AVX512 || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq"))
    return AVX2;
  CHOOSE(avx512);
  return AVX512;
#else
  (void)most;
  return BASELINE;
#endif
}

enum { SHARED_ELEMENTS = 3 << 14 };   /* below this one thread is done before two are */
enum { STREAMED_ELEMENTS = 3 << 20 }; /* larger outputs and their inputs do not fit the caches together */

/* Whether an output goes past the caches. Only where rows are whole cache lines: part of a line would be written twice. */
static int streamed(int64_t elements, int64_t channels, int64_t type) {
  return elements > STREAMED_ELEMENTS && channels * size_of(type) % 64 == 0;
}

/* standardize_plan(eps, type, members, rows, channels, segments, ptr, ptr_stride, order, order_stride, relu, statistics):
 * all that calls of one shape over the same segments share, as bytes that begin every call. */
typedef struct {
  standardize_job shared;
  int64_t type;
} plan;

static PyObject *py_standardize_plan(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[11];
  if (count < 1 || !read_integers(args + 1, count - 1, 11, a)) return NULL;
  plan p = {{0}, a[0]};
  standardize_job *w = &p.shared;
  w->eps = PyFloat_AsDouble(args[0]);
  if (PyErr_Occurred() || !has_kernel(a[0])) return NULL;
  w->members = a[1], w->rows = a[2], w->channels = a[3], w->segments = a[4];
  w->ptr = address(a[5]), w->ptr_stride = a[6], w->order = address(a[7]), w->order_stride = a[8];
  w->relu = a[9], w->statistics = a[10];
  w->stream = streamed(w->members * w->rows * w->channels, w->channels, a[0]);
  return PyBytes_FromStringAndSize((const char *)&p, sizeof p);
}

/* <plan, threads, weight, bias, mean_scale, mean, var, x, out>, then `extra` more: begins a call. */
static int begin(PyObject *const *args, Py_ssize_t count, Py_ssize_t extra, plan *p, int64_t *a) {
  char *bytes;
  Py_ssize_t size;
  if (count < 1 || PyBytes_AsStringAndSize(args[0], &bytes, &size) < 0) return 0;
  if (size != sizeof *p) {
    PyErr_SetString(PyExc_TypeError, "not a plan");
    return 0;
  }
  if (!read_integers(args + 1, count - 1, 8 + extra, a)) return 0;
  memcpy(p, bytes, sizeof *p);
  standardize_job *w = &p->shared;
  w->threads = w->members * w->rows * w->channels < SHARED_ELEMENTS ? 1 : a[0];
  w->weight = address(a[1]), w->bias = address(a[2]), w->mean_scale = address(a[3]);
  w->mean = (double *)address(a[4]), w->var = (void *)address(a[5]);
  w->x = address(a[6]), w->out = (void *)address(a[7]);
  return 1;
}

static PyObject *run(const standardize_kernel *table, plan *p) {
  Py_BEGIN_ALLOW_THREADS
  table[p->type](&p->shared);
  Py_END_ALLOW_THREADS
  if (p->shared.failed) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

/* standardize_forward(<shared>, residual) */
static PyObject *py_standardize_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  plan p;
  int64_t a[9];
  if (!begin(args, count, 1, &p, a)) return NULL;
  p.shared.residual = address(a[8]);
  return run(forward_kernels, &p);
}

/* standardize_backward(<shared>, dy, dweight, dbias, dmean_scale) */
static PyObject *py_standardize_backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  plan p;
  int64_t a[12];
  if (!begin(args, count, 4, &p, a)) return NULL;
  p.shared.dy = address(a[8]);
  for (int i = 0; i < 3; i++) p.shared.dparams[i] = (void *)address(a[9 + i]);
  return run(backward_kernels, &p);
}

/* Whether order is 0, 1, 2, … */
static int rises(const int64_t *order, int64_t rows) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < rows && !wrong; i += 4096)
    for (int64_t j = i; j < rows && j < i + 4096; j++) wrong |= order[j] ^ j;
  return !wrong;
}

/* <eps, type, rows, channels, segments, ptr, order, statistics, threads, weight, bias, mean_scale, mean, var, x, found>,
 * then `extra` more: a call for coefficients, found (planes, segments + 1, channels), in place of rows. Its last segment,
 * of rows that belong to none, is all zeros. */
static int begin_coefficients(PyObject *const *args, Py_ssize_t count, Py_ssize_t extra, int64_t planes, plan *p,
                              int64_t *a) {
  if (count < 1 || !read_integers(args + 1, count - 1, 15 + extra, a)) return 0;
  standardize_job *w = &p->shared;
  w->eps = PyFloat_AsDouble(args[0]), p->type = a[0];
  if (PyErr_Occurred() || !has_kernel(a[0])) return 0;
  w->members = 1, w->rows = a[1], w->channels = a[2], w->segments = a[3], w->ptr = address(a[4]);
  w->order = a[5] && !rises(address(a[5]), a[1]) ? address(a[5]) : 0, w->statistics = a[6];
  w->threads = w->rows * w->channels < SHARED_ELEMENTS ? 1 : a[7];
  w->weight = address(a[8]), w->bias = address(a[9]), w->mean_scale = address(a[10]);
  w->mean = (double *)address(a[11]), w->var = (void *)address(a[12]), w->x = address(a[13]);
  w->coefficients = (void *)address(a[14]), w->coefficient_plane = (w->segments + 1) * w->channels;
  const size_t bytes = a[0] == 1 ? sizeof(double) : sizeof(float);
  memset(w->coefficients, 0, (size_t)(planes * w->coefficient_plane) * bytes);
  return 1;
}

/* standardize_coefficients(<as above>) */
static PyObject *py_standardize_coefficients(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  plan p = {{0}, 0};
  int64_t a[15];
  if (!begin_coefficients(args, count, 0, 3, &p, a)) return NULL;
  return run(forward_kernels, &p);
}

/* standardize_slopes(<as above>, dy, dweight, dbias, dmean_scale): the same for the gradient */
static PyObject *py_standardize_slopes(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  plan p = {{0}, 0};
  int64_t a[19];
  if (!begin_coefficients(args, count, 4, 2, &p, a)) return NULL;
  p.shared.dy = address(a[15]);
  for (int i = 0; i < 3; i++) p.shared.dparams[i] = (void *)address(a[16 + i]);
  return run(backward_kernels, &p);
}

#define AVERAGE(A) \
  do { \
    A *running_mean = (A *)address(a[4]), *running_var = (A *)address(a[5]); \
    const A *var = address(a[3]); \
    for (int64_t j = 0; j < a[1]; j++) { \
      running_mean[j] = (A)(running_mean[j] + weight * (mean[j] - running_mean[j])); \
      running_var[j] = (A)(running_var[j] + weight * (var[j] * unbias - running_var[j])); \
    } \
  } while (0)

/* average(weight, unbias, type, channels, mean, var, running_mean, running_var): one step of the running averages of a
 * BatchNorm. They and var are float or double; mean is double. */
static PyObject *py_average(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[6];
  if (count < 2 || !read_integers(args + 2, count - 2, 6, a)) return NULL;
  const double weight = PyFloat_AsDouble(args[0]), unbias = PyFloat_AsDouble(args[1]), *mean = address(a[2]);
  if (PyErr_Occurred()) return NULL;
  if (a[0] == 1) AVERAGE(double);
  else AVERAGE(float);
  Py_RETURN_NONE;
}

static indices indices_of(const int64_t *a) {
  indices array = {address(a[0]), a[1], a[2]};
  return array;
}

/* neighbour_sum(constant, type, ...): see ops/neighbour_sum/cpu.py for the order */
static PyObject *py_neighbour_sum(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[29];
  if (count < 1 || !read_integers(args + 1, count - 1, 29, a)) return NULL;
  neighbour_sum_job w = {0};
  w.constant = PyFloat_AsDouble(args[0]);
  w.members = a[1], w.rows = a[2], w.edges = a[3], w.channels = a[4];
  w.values = address(a[5]), w.edge_values = address(a[6]), w.x = address(a[7]), w.out = (void *)address(a[8]);
  w.rowptr = indices_of(a + 9), w.col = indices_of(a + 12), w.edge_of = indices_of(a + 15);
  w.degree = indices_of(a + 18);
  w.scale = address(a[21]), w.scale_stride = a[22], w.self_weight = address(a[23]);
  w.relu = a[24], w.mean = a[25], w.direction = a[26];
  w.threads = w.members * (w.rows + w.edges) * w.channels < 32768 ? 1 : a[27];
  w.dw = (double *)address(a[28]);
  if (PyErr_Occurred() || !has_kernel(a[0])) return NULL;
  Py_BEGIN_ALLOW_THREADS
  neighbour_sum_kernels[a[0]](&w);
  Py_END_ALLOW_THREADS
  if (w.failed) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

/* layer_norm(eps, type, members, rows, channels, relu, threads, x, out, residual, dy, weight, bias, dweight, dbias) */
static PyObject *py_layer_norm(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[14];
  if (count < 1 || !read_integers(args + 1, count - 1, 14, a)) return NULL;
  layer_norm_job w = {.members = a[1], .rows = a[2], .channels = a[3], .relu = a[4], .threads = a[5]};
  w.eps = PyFloat_AsDouble(args[0]);
  w.x = address(a[6]), w.out = (void *)address(a[7]), w.residual = address(a[8]), w.dy = address(a[9]);
  w.weight = address(a[10]), w.bias = address(a[11]);
  w.dweight = (void *)address(a[12]), w.dbias = (void *)address(a[13]);
  if (PyErr_Occurred() || !has_kernel(a[0])) return NULL;
  const int64_t elements = w.members * w.rows * w.channels;
  if (elements < 16384) w.threads = 1; /* done before a second thread has woken up */
  w.stream = streamed(elements, w.channels, a[0]);
  Py_BEGIN_ALLOW_THREADS
  layer_norm_kernels[a[0]](&w);
  Py_END_ALLOW_THREADS
  if (w.failed) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

/* linear(backward, members, rows, inner, outer, padded, parts, threads, x, x_stride, packed, bias, g, out, sums,
 *        block_sums) */
static PyObject *py_linear(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[16];
  if (!read_integers(args, count, 16, a)) return NULL;
  linear_job w = {a[1], a[2], a[3], a[4], a[5], a[6], a[7], address(a[8]), a[9], address(a[10]), address(a[11]),
                  address(a[12]), (float *)address(a[13]), (float *)address(a[14]), (float *)address(a[15])};
  if (w.padded > LINEAR_WIDEST || w.padded % 32 || w.outer > LINEAR_WIDEST) {
    PyErr_SetString(PyExc_ValueError, "a weight has at most 256 rows and padded columns, these a multiple of 32");
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
  (a[0] ? linear_gradient : linear_product)(&w);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

/* adam(first_share, second_share, epsilon, entries, parameters, first, second, gradient, owner, rate, root, decay,
 *      active) */
static PyObject *py_adam(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[10];
  if (count < 3 || !read_integers(args + 3, count - 3, 10, a)) return NULL;
  adam_job w = {a[0], (float *)address(a[1]), (float *)address(a[2]), (float *)address(a[3]), address(a[4]),
                address(a[5]), address(a[6]), address(a[7]), address(a[8]), address(a[9]),
                (float)PyFloat_AsDouble(args[0]), (float)PyFloat_AsDouble(args[1]), (float)PyFloat_AsDouble(args[2])};
  if (PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS
  adam_step(&w);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

/* boundaries(batch, rows, segments, ptr): fill ptr (segments + 1) from a sorted vector of ids.
 * Returns the first row that is not sorted or in range; -1 - n where all are, n being the rows of the largest segment. */
static PyObject *py_boundaries(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  int64_t a[4];
  if (!read_integers(args, count, 4, a)) return NULL;
  const int64_t *batch = address(a[0]), rows = a[1], segments = a[2];
  int64_t *ptr = (int64_t *)address(a[3]), bad = -1, next = 0, largest = 0;
  Py_BEGIN_ALLOW_THREADS
  for (int64_t i = 0; i < rows; i++) {
    int64_t id = batch[i];
    if (id == next - 1 && id >= 0) continue;
    if (id < next || id >= segments) { bad = i; break; }
    if (next > 0 && i - ptr[next - 1] > largest) largest = i - ptr[next - 1];
    while (next <= id) ptr[next++] = i;
  }
  if (next > 0 && rows - ptr[next - 1] > largest) largest = rows - ptr[next - 1];
  while (bad < 0 && next <= segments) ptr[next++] = rows;
  Py_END_ALLOW_THREADS
  return PyLong_FromLongLong(bad < 0 ? -1 - largest : bad);
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
  int64_t a[30];
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

/* use_instructions(most): for tests; gives the set chosen, which is less where the machine has no more */
static PyObject *py_use_instructions(PyObject *self, PyObject *value) {
  const int64_t most = PyLong_AsLongLong(value);
  if (PyErr_Occurred()) return NULL;
  return PyLong_FromLong(choose_instructions(most));
}

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef methods[] = {
    {"standardize_plan", FAST(py_standardize_plan), "The arguments that calls of one shape share."},
    {"standardize_forward", FAST(py_standardize_forward), "See ops/standardize/cpu.py."},
    {"standardize_backward", FAST(py_standardize_backward), "Its gradients."},
    {"standardize_coefficients", FAST(py_standardize_coefficients), "Only what rows are computed with."},
    {"standardize_slopes", FAST(py_standardize_slopes), "The same for gradients."},
    {"average", FAST(py_average), "A step of running averages."},
    {"output", FAST(py_output), "Memory for an output, in a capsule for DLPack."},
    {"keep", py_keep, METH_O, "How much memory of freed outputs is kept at the most."},
    {"memory", py_memory, METH_NOARGS, "Bytes of outputs: in use, kept, kept at the most."},
    {"neighbour_sum", FAST(py_neighbour_sum), "See ops/neighbour_sum/cpu.py."},
    {"layer_norm", FAST(py_layer_norm), "See ops/layer_norm.py."},
    {"linear", FAST(py_linear), "See ops/linear.py."},
    {"adam", FAST(py_adam), "See training/adam.py."},
    {"boundaries", FAST(py_boundaries), "Pointers of a sorted batch vector."},
    {"measure", FAST(py_measure), "The size of the batch of graph ids; see data/batching.py."},
    {"assemble", FAST(py_assemble), "The batch of graph ids."},
    {"one_hot", FAST(py_one_hot), "Categorical features one-hot."},
    {"variant", FAST(py_variant), "A GPU kernel and its sizes."},
    {"launch", FAST(py_launch), "GPU kernels; see launch.py."},
    {"use_instructions", py_use_instructions, METH_O, "0: any machine's, 1: AVX2, 2: AVX-512; gives the set chosen."},
    {"use_pool", py_use_pool, METH_O, "Run on the pool behind this GOMP_parallel; 0: in the calling thread."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_kernels", "Fused CPU kernels of graphnorm.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) {
  choose_instructions(AVX512);
  if (!prepare_names()) return NULL;
  PyObject *m = PyModule_Create(&module);
  if (m && PyModule_AddIntConstant(m, "HAS_FLOAT16", HAVE_FLOAT16) < 0) return NULL;
  if (m && PyModule_AddIntConstant(m, "LINEAR_BLOCK", LINEAR_BLOCK) < 0) return NULL;
  if (m && PyModule_AddIntConstant(m, "LINEAR_WIDEST", LINEAR_WIDEST) < 0) return NULL;
  return m;
}
