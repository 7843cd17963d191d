/* Arguments from Python: integers, some of which are addresses or element types. */
#pragma once
#include <Python.h>
#include <stdint.h>

static int read_integers(PyObject *const *args, Py_ssize_t count, Py_ssize_t expected, int64_t *out) {
  if (count != expected) {
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", expected, count);
    return 0;
  }
  for (Py_ssize_t i = 0; i < expected; i++) out[i] = PyLong_AsLongLong(args[i]);
  return !PyErr_Occurred();
}

static const void *address(int64_t value) { return (const void *)(intptr_t)value; }

/* Bytes of an element; the order of types is that of graphnorm/backends.py. */
static int64_t size_of(int64_t type) { return type == 0 ? 4 : type == 1 ? 8 : 2; }
