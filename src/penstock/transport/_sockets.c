/* Reading from and writing to a socket that does not block, by its number.
 *
 * pure_sockets.py is the same in Python. What moves few bytes is over before another thread could make use of the
 * interpreter's lock, so it is kept. Whoever closes the socket must not use its stream any more: by then the number may
 * be another one's.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <sys/socket.h>

#define LOCKED_MAX (128 * 1024)

typedef struct {
    PyObject_HEAD
    int fd;
} Stream;

static PyObject *stream_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    int fd;
    if (keywords != NULL && PyDict_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_TypeError, "Stream takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "i", &fd))
        return NULL;
    Stream *self = (Stream *)type->tp_alloc(type, 0);
    if (self != NULL)
        self->fd = fd;
    return (PyObject *)self;
}

static void stream_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static int is_later(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

static PyObject *stream_receive(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    int fd = ((Stream *)object)->fd, error;
    if (count != 3 || !PyByteArray_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "receive takes a bytearray, and between which two places to fill it");
        return NULL;
    }
    Py_ssize_t at = PyLong_AsSsize_t(arguments[1]), stop = PyLong_AsSsize_t(arguments[2]), received;
    if (PyErr_Occurred())
        return NULL;
    if (at < 0 || at > stop || stop > PyByteArray_GET_SIZE(arguments[0])) {
        PyErr_SetString(PyExc_ValueError, "what is received must fit");
        return NULL;
    }
    char *to = PyByteArray_AS_STRING(arguments[0]) + at;
    if (stop - at > LOCKED_MAX) {
        Py_buffer held; /* nobody may resize it meanwhile */
        if (PyObject_GetBuffer(arguments[0], &held, PyBUF_WRITABLE) < 0)
            return NULL;
        Py_BEGIN_ALLOW_THREADS
        received = recv(fd, to, stop - at, 0);
        error = errno;
        Py_END_ALLOW_THREADS
        PyBuffer_Release(&held);
    } else {
        received = recv(fd, to, stop - at, 0);
        error = errno;
    }
    if (received < 0)
        received = is_later(error) ? -1 : 0;
    return PyLong_FromSsize_t(received);
}

static PyObject *stream_send(PyObject *object, PyObject *given)
{
    int fd = ((Stream *)object)->fd, error;
    Py_buffer data;
    Py_ssize_t sent;
    if (PyObject_GetBuffer(given, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (data.len > LOCKED_MAX) {
        Py_BEGIN_ALLOW_THREADS
        sent = send(fd, data.buf, data.len, MSG_NOSIGNAL);
        error = errno;
        Py_END_ALLOW_THREADS
    } else {
        sent = send(fd, data.buf, data.len, MSG_NOSIGNAL);
        error = errno;
    }
    PyBuffer_Release(&data);
    if (sent < 0 && !is_later(error)) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromSsize_t(sent);
}

static PyMethodDef stream_methods[] = {
    {"receive", (PyCFunction)(void (*)(void))stream_receive, METH_FASTCALL, NULL},
    {"send", stream_send, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot stream_slots[] = {
    {Py_tp_new, stream_new},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_methods, stream_methods},
    {0, NULL},
};
static PyType_Spec stream_spec = {
    "penstock.transport._sockets.Stream", sizeof(Stream), 0, Py_TPFLAGS_DEFAULT, stream_slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "penstock.transport._sockets", NULL, -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__sockets(void)
{
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module != NULL ? PyType_FromSpec(&stream_spec) : NULL;
    if (type == NULL || PyModule_AddObjectRef(module, "Stream", type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
