/* What every message that is read passes: the object that is handed out. _batches.c has a look at what came with it, and
 * hands one out after another.
 *
 * pure_messages.py is the same in Python, and the reference for what each thing here does: the two pass the same tests.
 * What is seldom asked of a message is there alone, and message.py adds it to this type.
 *
 * Methods of confluent-kafka's messages are called as the functions in C that they are. To look them up by name, as is
 * done for an object of any other type, takes longer than what they do. The value is a member and not a property, since
 * the interpreter reads those where they are: nearly every message is asked for it, and asked for it first.
 */
#include "_messages.h"

static const char *const METHOD_NAMES[METHODS] = {"topic", "partition", "offset", "key", "value", "error"};

static PyTypeObject *raw_type; /* confluent-kafka's */
static PyCFunction functions[METHODS]; /* NULL where it is not what it was when this was written */
static PyObject *names[METHODS];

PyObject *ask(PyObject *raw, int method)
{
    if (Py_IS_TYPE(raw, raw_type) && functions[method] != NULL)
        return functions[method](raw, NULL);
    return PyObject_CallMethodNoArgs(raw, names[method]);
}

/* ---- a message */

typedef struct {
    PyObject_HEAD
    PyObject *raw;
    PyObject *value;
    PyObject *key;    /* what a deserializer made, or NULL */
    PyObject *poison; /* why one could not, or NULL */
    int is_tracked;   /* by the collector, as what a deserializer made may lead back to the message */
} Message;

/* What was poisoned is of another type, whose key and value raise. */
static PyTypeObject *message_type, *poisoned_type;

/* In a loop the last one goes when the next one has come, so a few are enough. */
#ifndef Py_GIL_DISABLED
#define FREE_MAX 4
static Message *free_messages[FREE_MAX];
static int free_count;
#endif

PyObject *message_new(PyObject *raw, PyObject *key, PyObject *value)
{
    Message *self;
    PyObject *held = value != NULL ? Py_NewRef(value) : ask(raw, VALUE);
    if (held == NULL)
        return NULL;
#ifndef Py_GIL_DISABLED
    if (free_count > 0) {
        self = free_messages[--free_count];
        Py_SET_REFCNT(self, 1);
    } else
#endif
    {
        self = PyObject_GC_New(Message, message_type);
        if (self == NULL) {
            Py_DECREF(held);
            return NULL;
        }
    }
    self->raw = Py_NewRef(raw);
    self->value = held;
    self->key = Py_XNewRef(key);
    self->poison = NULL;
    self->is_tracked = value != NULL;
    if (self->is_tracked)
        PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *message_call(PyObject *Py_UNUSED(type), PyObject *const *arguments, size_t flags, PyObject *keywords)
{
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (keywords != NULL || (count != 1 && count != 3)) {
        PyErr_SetString(PyExc_TypeError, "a Message is made of what was read, or of that and its key and value");
        return NULL;
    }
    return count == 1 ? message_new(arguments[0], NULL, NULL) : message_new(arguments[0], arguments[1], arguments[2]);
}

static int message_traverse(Message *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->raw);
    Py_VISIT(self->value);
    Py_VISIT(self->key);
    Py_VISIT(self->poison);
    return 0;
}

static int message_clear(Message *self)
{
    Py_CLEAR(self->raw);
    Py_CLEAR(self->value);
    Py_CLEAR(self->key);
    Py_CLEAR(self->poison);
    return 0;
}

static void message_dealloc(Message *self)
{
    if (self->is_tracked)
        PyObject_GC_UnTrack(self);
    message_clear(self);
#ifndef Py_GIL_DISABLED
    if (free_count < FREE_MAX && Py_IS_TYPE(self, message_type)) {
        free_messages[free_count++] = self;
        return;
    }
#endif
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *message_as_read(Message *self, void *method)
{
    if (self->raw == NULL) {
        PyErr_SetString(PyExc_AttributeError, "raw");
        return NULL;
    }
    return ask(self->raw, (int)(intptr_t)method);
}

static PyObject *message_key(Message *self, void *method)
{
    return self->key != NULL ? Py_NewRef(self->key) : message_as_read(self, method);
}

static PyObject *message_poison(Message *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->poison != NULL ? self->poison : Py_None);
}

static PyObject *message_poisoned(Message *self, PyObject *poison)
{
    if (!PyExceptionInstance_Check(poison)) {
        PyErr_SetString(PyExc_TypeError, "a message is poisoned by an exception");
        return NULL;
    }
    Py_XSETREF(self->poison, Py_NewRef(poison));
    if (!self->is_tracked) { /* the error leads back to the message */
        self->is_tracked = 1;
        PyObject_GC_Track(self);
    }
    if (!Py_IS_TYPE(self, poisoned_type)) {
        Py_SET_TYPE(self, (PyTypeObject *)Py_NewRef(poisoned_type));
        Py_DECREF(message_type);
    }
    Py_RETURN_NONE;
}

/* The error leads back to the message, so it is told when there is one again, by `__setstate__`. */
static PyObject *message_reduce(Message *self, PyObject *Py_UNUSED(nothing))
{
    if (self->raw == NULL || self->value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "raw");
        return NULL;
    }
    PyObject *made = self->key == NULL ? PyTuple_Pack(1, self->raw) : PyTuple_Pack(3, self->raw, self->key, self->value);
    if (made == NULL)
        return NULL;
    PyObject *reduced = self->poison == NULL ? PyTuple_Pack(2, message_type, made)
                                             : PyTuple_Pack(3, message_type, made, self->poison);
    Py_DECREF(made);
    return reduced;
}

static PyObject *poisoned_raise(Message *self, void *Py_UNUSED(closure))
{
    if (self->poison == NULL) /* the collector took it, or somebody assigned to __class__ */
        PyErr_SetString(PyExc_AttributeError, "poison");
    else
        PyErr_SetObject((PyObject *)Py_TYPE(self->poison), self->poison);
    return NULL;
}

#define KEY_TEXT "What the deserializer made of it; bytes without one; None where there is no key."
#define VALUE_TEXT "What the deserializer made of it; bytes without one; None for a tombstone."
#define RAW_TEXT "The bytes, whatever a deserializer made of them."

static PyMemberDef message_members[] = {
    {"raw", T_OBJECT_EX, offsetof(Message, raw), READONLY, NULL},
    {"value", T_OBJECT_EX, offsetof(Message, value), READONLY, VALUE_TEXT},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef message_properties[] = {
    {"topic", (getter)message_as_read, NULL, NULL, (void *)TOPIC},
    {"partition", (getter)message_as_read, NULL, NULL, (void *)PARTITION},
    {"offset", (getter)message_as_read, NULL, NULL, (void *)OFFSET},
    {"raw_key", (getter)message_as_read, NULL, RAW_TEXT, (void *)KEY},
    {"raw_value", (getter)message_as_read, NULL, RAW_TEXT, (void *)VALUE},
    {"key", (getter)message_key, NULL, KEY_TEXT, (void *)KEY},
    {"poison", (getter)message_poison, NULL, "Why the key or the value could not be read, if so.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef poisoned_properties[] = {
    {"key", (getter)poisoned_raise, NULL, NULL, NULL},
    {"value", (getter)poisoned_raise, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef message_methods[] = {
    {"poisoned", (PyCFunction)message_poisoned, METH_O, NULL},
    {"__setstate__", (PyCFunction)message_poisoned, METH_O, NULL},
    {"__reduce__", (PyCFunction)message_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot message_slots[] = {
    {Py_tp_doc, "One message as it was read."},
    {Py_tp_dealloc, message_dealloc},
    {Py_tp_traverse, message_traverse},
    {Py_tp_clear, message_clear},
    {Py_tp_members, message_members},
    {Py_tp_getset, message_properties},
    {Py_tp_methods, message_methods},
    {0, NULL},
};

static PyType_Slot poisoned_slots[] = {
    {Py_tp_doc, "One message that could not be deserialized."},
    {Py_tp_dealloc, message_dealloc},
    {Py_tp_traverse, message_traverse},
    {Py_tp_clear, message_clear},
    {Py_tp_getset, poisoned_properties},
    {0, NULL},
};

#define MESSAGE_FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION)
static PyType_Spec message_spec = {
    "penstock.client.message.Message", sizeof(Message), 0, MESSAGE_FLAGS | Py_TPFLAGS_BASETYPE, message_slots,
};
static PyType_Spec poisoned_spec = {
    "penstock.client.message.PoisonedMessage", sizeof(Message), 0, MESSAGE_FLAGS, poisoned_slots,
};

static int make_types(void)
{
    message_type = (PyTypeObject *)PyType_FromSpec(&message_spec);
    PyObject *bases = message_type == NULL ? NULL : PyTuple_Pack(1, message_type);
    if (bases == NULL)
        return -1;
    poisoned_type = (PyTypeObject *)PyType_FromSpecWithBases(&poisoned_spec, bases);
    Py_DECREF(bases);
    message_type->tp_flags &= ~Py_TPFLAGS_BASETYPE; /* others would be made without what was read */
    message_type->tp_vectorcall = message_call;
    return poisoned_type == NULL ? -1 : 0;
}

/* ---- the module */

static int find_functions(void)
{
    PyObject *module = PyImport_ImportModule("confluent_kafka");
    raw_type = module == NULL ? NULL : (PyTypeObject *)PyObject_GetAttrString(module, "Message");
    Py_XDECREF(module);
    if (raw_type == NULL)
        return -1;
    for (int method = 0; method < METHODS; method++) {
        names[method] = PyUnicode_InternFromString(METHOD_NAMES[method]);
        PyObject *found = PyObject_GetAttrString((PyObject *)raw_type, METHOD_NAMES[method]);
        if (names[method] == NULL || found == NULL) {
            Py_XDECREF(found);
            return -1;
        }
        if (Py_IS_TYPE(found, &PyMethodDescr_Type) && PyDescr_TYPE(found) == raw_type) {
            PyMethodDef *definition = ((PyMethodDescrObject *)found)->d_method;
            functions[method] = definition->ml_flags == METH_NOARGS ? definition->ml_meth : NULL;
        }
        Py_DECREF(found);
    }
    return 0;
}

static PyMethodDef module_methods[] = {
    {"has_errors", has_errors, METH_O, "Whether one of these is no message but an error."},
    {"last_of", (PyCFunction)(void (*)(void))last_of, METH_FASTCALL, "The last message of each place."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_messages",
    .m_doc = "Messages as they are read.",
    .m_size = 0, /* not -1, with which other interpreters are given what is in here, and nothing is called */
    .m_methods = module_methods,
};

/* One for the process: it has confluent-kafka's type, of which there is one too. What message.py adds to the types would
 * end with the interpreter that did so last; those that are not the first have the twin in Python. */
PyMODINIT_FUNC PyInit__messages(void)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "penstock.client._messages is of the main interpreter alone");
        return NULL;
    }
    PyObject *module = PyModule_Create(&module_definition);
    if (module == NULL)
        return NULL;
    if (poisoned_type == NULL && (find_functions() < 0 || make_types() < 0)) /* else it is imported again */
        goto failed;
    if (PyModule_AddObjectRef(module, "Message", (PyObject *)message_type) < 0)
        goto failed;
    if (PyModule_AddObjectRef(module, "DecodedMessage", (PyObject *)message_type) < 0)
        goto failed;
    if (add_steps(module) < 0)
        goto failed;
    return module;
failed:
    Py_XDECREF(module);
    return NULL;
}
