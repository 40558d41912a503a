/* What the two files of the extension have of each other. */
#ifndef PENSTOCK_MESSAGES_H
#define PENSTOCK_MESSAGES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

enum { TOPIC, PARTITION, OFFSET, KEY, VALUE, ERROR, METHODS };

/* What a method of a message of confluent-kafka says. */
PyObject *ask(PyObject *raw, int method);

/* `key` and `value` are NULL where there is no deserializer. */
PyObject *message_new(PyObject *raw, PyObject *key, PyObject *value);

PyObject *has_errors(PyObject *module, PyObject *batch);
PyObject *last_of(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
int add_steps(PyObject *module);

#endif
