/* GPU kernels by the driver's cuLaunchKernelEx, with little work on the host: see launch.py. */
#pragma once
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "arguments.h"

/* Behind a kernel's own arguments Triton's expect addresses of scratch memory, and these use none. */
enum { MOST_ARGUMENTS = 24, MOST_INTEGERS = 16, SCRATCH = 4 };

/* The driver's CUlaunchAttribute and CUlaunchConfig. */
typedef struct {
  int id, padding;
  union {
    int on;
    int64_t room[8]; /* its size, and how it is aligned */
  } value;
} launch_attribute;

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  launch_attribute *attributes;
  unsigned attribute_count;
} launch_config;

enum { MAY_BEGIN_EARLY = 6 }; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */

typedef int (*launch_fn)(const launch_config *, void *function, void **arguments, void **extra);

typedef struct {
  int64_t launcher, function, programs, threads, shared, without, early, integers, values[MOST_INTEGERS];
} variant;

/* variant(launcher, function, programs, threads, shared, without, early, <32-bit integers>): a kernel and all its
 * arguments except addresses, as bytes. It skips the arguments of a launch whose bits are set in `without`. If `early` is
 * not 0 it may begin before the previous kernel has ended; it waits for that end itself. */
static PyObject *py_variant(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  enum { FIXED = 7 };
  int64_t a[FIXED + MOST_INTEGERS];
  if (count < FIXED || count > FIXED + MOST_INTEGERS) {
    PyErr_Format(PyExc_TypeError, "expected %d to %d arguments, got %zd", FIXED, FIXED + MOST_INTEGERS, count);
    return NULL;
  }
  if (!read_integers(args, count, count, a)) return NULL;
  variant v = {a[0], a[1], a[2], a[3], a[4], a[5], a[6], count - FIXED, {0}};
  memcpy(v.values, a + FIXED, (size_t)v.integers * sizeof *a);
  return PyBytes_FromStringAndSize((const char *)&v, sizeof v);
}

static PyObject *name_of_data_ptr, *name_of_is_contiguous; /* interned once */

static int prepare_names(void) {
  name_of_data_ptr = PyUnicode_InternFromString("data_ptr");
  name_of_is_contiguous = PyUnicode_InternFromString("is_contiguous");
  return name_of_data_ptr && name_of_is_contiguous;
}

/* The address of a contiguous tensor's elements, or one given as such; -1 where a tensor is not contiguous, and on errors.
 */
static int64_t address_of(PyObject *argument) {
  if (PyLong_Check(argument)) return PyLong_AsLongLong(argument);
  PyObject *found = PyObject_CallMethodObjArgs(argument, name_of_is_contiguous, NULL);
  if (!found) return -1;
  const int contiguous = found == Py_True;
  Py_DECREF(found);
  if (!contiguous || !(found = PyObject_CallMethodObjArgs(argument, name_of_data_ptr, NULL))) return -1;
  const int64_t value = PyLong_AsLongLong(found);
  Py_DECREF(found);
  return value;
}

static int launch_one(const variant *v, void *stream, int64_t *addresses, int64_t there, int count) {
  enum { MOST = MOST_ARGUMENTS + MOST_INTEGERS + SCRATCH };
  int64_t integers[MOST_INTEGERS], none = 0;
  void *arguments[MOST];
  int n = 0;
  for (int i = 0; i < count; i++)
    if ((there & ~v->without) >> i & 1) arguments[n++] = addresses + i;
  memcpy(integers, v->values, sizeof v->values); /* a little-endian slot of 64 bits holds one of 32 */
  for (int i = 0; i < v->integers; i++) arguments[n++] = integers + i;
  while (n < MOST) arguments[n++] = &none;
  launch_attribute early = {MAY_BEGIN_EARLY, 0, {1}};
  const launch_config config = {
      {(unsigned)v->programs, 1, 1}, {(unsigned)v->threads, 1, 1}, (unsigned)v->shared, stream, &early, v->early != 0};
  return ((launch_fn)(intptr_t)v->launcher)(&config, (void *)(intptr_t)v->function, arguments, 0);
}

/* launch(variants, stream, <arguments>): kernels that run one after another on the same arguments, given as their
 * variants, joined. An argument is a tensor, an address, or None, which is passed on to no kernel. Returns 0; or the
 * driver's error; or -1, with nothing launched, where a tensor is not contiguous or an address not a multiple of 16. */
static PyObject *py_launch(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  enum { FIXED = 2 };
  int64_t addresses[MOST_ARGUMENTS] = {0}, there = 0;
  char *bytes;
  Py_ssize_t size;
  if (count < FIXED || count > FIXED + MOST_ARGUMENTS) {
    PyErr_Format(PyExc_TypeError, "expected %d to %d arguments, got %zd", FIXED, FIXED + MOST_ARGUMENTS, count);
    return NULL;
  }
  if (PyBytes_AsStringAndSize(args[0], &bytes, &size) < 0) return NULL;
  if (size % (Py_ssize_t)sizeof(variant)) {
    PyErr_SetString(PyExc_TypeError, "not variants of kernels");
    return NULL;
  }
  void *stream = (void *)address(PyLong_AsLongLong(args[1]));
  if (PyErr_Occurred()) return NULL;
  const int arguments = (int)(count - FIXED);
  for (int i = 0; i < arguments; i++) {
    if (args[FIXED + i] == Py_None) continue;
    addresses[i] = address_of(args[FIXED + i]);
    if (addresses[i] & 15) return PyErr_Occurred() ? NULL : PyLong_FromLong(-1);
    there |= (int64_t)1 << i;
  }
  int error = 0;
  Py_BEGIN_ALLOW_THREADS
  for (Py_ssize_t at = 0; at < size && !error; at += (Py_ssize_t)sizeof(variant)) {
    variant v;
    memcpy(&v, bytes + at, sizeof v);
    error = launch_one(&v, stream, addresses, there, arguments);
  }
  Py_END_ALLOW_THREADS
  return PyLong_FromLong(error);
}
