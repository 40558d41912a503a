/* A look at the messages that came at once, and the loop that hands them out: see pure_messages.py, which is its twin. */
#include "_messages.h"

/* ---- what came at once */

PyObject *has_errors(PyObject *Py_UNUSED(module), PyObject *batch)
{
    PyObject *fast = PySequence_Fast(batch, "a batch is a sequence");
    if (fast == NULL)
        return NULL;
    int found = 0;
    for (Py_ssize_t at = 0; !found && at < PySequence_Fast_GET_SIZE(fast); at++) {
        PyObject *raw = Py_NewRef(PySequence_Fast_GET_ITEM(fast, at));
        PyObject *error = ask(raw, ERROR);
        found = error == NULL ? -1 : error != Py_None;
        Py_XDECREF(error);
        Py_DECREF(raw);
    }
    Py_DECREF(fast);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

/* The place of a message. `topic` is None where it is to be asked for. */
static PyObject *place_of(PyObject *raw, PyObject *topic)
{
    PyObject *found = topic == Py_None ? ask(raw, TOPIC) : Py_NewRef(topic);
    PyObject *partition = found == NULL ? NULL : ask(raw, PARTITION);
    if (partition == NULL) {
        Py_XDECREF(found);
        return NULL;
    }
    PyObject *place = PyTuple_New(2);
    if (place == NULL) {
        Py_DECREF(found);
        Py_DECREF(partition);
        return NULL;
    }
    PyTuple_SET_ITEM(place, 0, found);
    PyTuple_SET_ITEM(place, 1, partition);
    return place;
}

/* Whether a message is of this place: 1, 0, or -1 for an error. */
static int is_of(PyObject *raw, PyObject *place, PyObject *topic)
{
    PyObject *partition = ask(raw, PARTITION);
    if (partition == NULL)
        return -1;
    PyObject *known = PyTuple_GET_ITEM(place, 1);
    int same = partition == known ? 1 : PyObject_RichCompareBool(partition, known, Py_EQ);
    Py_DECREF(partition);
    if (same <= 0 || topic != Py_None)
        return same;
    PyObject *found = ask(raw, TOPIC);
    if (found == NULL)
        return -1;
    same = PyObject_RichCompareBool(found, PyTuple_GET_ITEM(place, 0), Py_EQ);
    Py_DECREF(found);
    return same;
}

/* Messages of a place mostly come in a row, so it is only where a row ends that something is noted. */
static int note_lasts(PyObject *fast, PyObject *topic, PyObject *lasts)
{
    PyObject *place = NULL, *last = NULL;
    int failed = 0;
    for (Py_ssize_t at = 0; !failed && at < PySequence_Fast_GET_SIZE(fast); at++) {
        PyObject *raw = Py_NewRef(PySequence_Fast_GET_ITEM(fast, at));
        int same = place == NULL ? 0 : is_of(raw, place, topic);
        failed = same < 0;
        if (same == 0) {
            failed = place != NULL && PyDict_SetItem(lasts, place, last) < 0;
            Py_XSETREF(place, failed ? NULL : place_of(raw, topic));
            failed |= place == NULL;
        }
        Py_XSETREF(last, raw);
    }
    failed = failed || (place != NULL && PyDict_SetItem(lasts, place, last) < 0);
    Py_XDECREF(place);
    Py_XDECREF(last);
    return failed ? -1 : 0;
}

PyObject *last_of(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "last_of takes a batch and a topic");
        return NULL;
    }
    PyObject *fast = PySequence_Fast(arguments[0], "a batch is a sequence");
    PyObject *lasts = fast == NULL ? NULL : PyDict_New();
    if (lasts != NULL && note_lasts(fast, arguments[1], lasts) < 0)
        Py_CLEAR(lasts);
    Py_XDECREF(fast);
    return lasts;
}

/* ---- one after another */

#define LOOK_EVERY 8 /* as in pace.py */
#define QUICK_S 0.001

typedef struct {
    PyObject_HEAD
    PyObject *left; /* a list, always the same */
    char in_hand;
    char stopping;
} Hand;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    double due_s;
    double looked_s;
} Grant;

typedef struct {
    PyObject_HEAD
    Hand *hand;
    Grant *grant;
    PyObject *stream;
} Steps;

static PyTypeObject *hand_type, *grant_type;
static PyObject *find_name, *close_name;
static PyObject *monotonic; /* of the module time */

static PyObject *hand_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(keywords))
{
    Hand *self = (Hand *)type->tp_alloc(type, 0);
    if (self != NULL && (self->left = PyList_New(0)) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void hand_dealloc(Hand *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->left);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef hand_members[] = {
    {"left", T_OBJECT_EX, offsetof(Hand, left), READONLY, NULL},
    {"in_hand", T_BOOL, offsetof(Hand, in_hand), 0, NULL},
    {"stopping", T_BOOL, offsetof(Hand, stopping), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef grant_members[] = {
    {"count", T_PYSSIZET, offsetof(Grant, count), 0, NULL},
    {"due_s", T_DOUBLE, offsetof(Grant, due_s), 0, NULL},
    {"looked_s", T_DOUBLE, offsetof(Grant, looked_s), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *steps_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    PyObject *hand, *grant, *stream;
    if (!PyArg_ParseTuple(arguments, "O!O!O", hand_type, &hand, grant_type, &grant, &stream))
        return NULL;
    Steps *self = (Steps *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->hand = (Hand *)Py_NewRef(hand);
    self->grant = (Grant *)Py_NewRef(grant);
    self->stream = Py_NewRef(stream);
    return (PyObject *)self;
}

static int steps_traverse(Steps *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->hand);
    Py_VISIT(self->grant);
    Py_VISIT(self->stream);
    return 0;
}

static int steps_clear(Steps *self)
{
    Py_CLEAR(self->hand);
    Py_CLEAR(self->grant);
    Py_CLEAR(self->stream);
    return 0;
}

static void steps_dealloc(Steps *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    steps_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* list.pop() looks for the place, moves what is behind it and thinks about memory; there is nothing behind the last. */
static PyObject *take_last(PyObject *batch)
{
    Py_ssize_t last = PyList_GET_SIZE(batch) - 1;
    PyObject *raw = PyList_GET_ITEM(batch, last);
    PyList_SET_ITEM(batch, last, NULL);
    Py_SET_SIZE(batch, last);
    PyObject *message = message_new(raw, NULL, NULL);
    Py_DECREF(raw);
    return message;
}

/* Whether there is time for the next few: 1, 0, or -1 for an error. */
static int is_time_left(Grant *grant)
{
    PyObject *now = PyObject_CallNoArgs(monotonic);
    if (now == NULL)
        return -1;
    double now_s = PyFloat_AsDouble(now);
    Py_DECREF(now);
    if (now_s >= grant->due_s || now_s - grant->looked_s >= QUICK_S * LOOK_EVERY)
        return now_s == -1.0 && PyErr_Occurred() ? -1 : 0;
    grant->looked_s = now_s;
    return 1;
}

static PyObject *steps_next(Steps *self)
{
    Hand *hand = self->hand;
    Grant *grant = self->grant;
    if (grant == NULL) /* the collector was here */
        return NULL;
    int goes_on = grant->count > 0;
    if (goes_on && grant->count % LOOK_EVERY == 0 && (goes_on = is_time_left(grant)) < 0)
        return NULL;
    if (goes_on && PyList_GET_SIZE(hand->left) > 0 && !hand->stopping) {
        grant->count--;
        hand->in_hand = 1;
        return take_last(hand->left);
    }
    PyObject *found = PyObject_CallMethodNoArgs(self->stream, find_name);
    if (found == Py_None)
        Py_CLEAR(found); /* without an error: that is the end */
    return found;
}

static PyObject *steps_close(Steps *self, PyObject *Py_UNUSED(nothing))
{
    if (self->stream == NULL)
        Py_RETURN_NONE;
    return PyObject_CallMethodNoArgs(self->stream, close_name);
}

static PyMethodDef steps_methods[] = {
    {"close", (PyCFunction)steps_close, METH_NOARGS, "No more of this one."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot hand_slots[] = {
    {Py_tp_doc, "What was taken and not handed out, the next one last; and whether the last one is processed."},
    {Py_tp_new, hand_new},
    {Py_tp_dealloc, hand_dealloc},
    {Py_tp_members, hand_members},
    {0, NULL},
};

static PyType_Slot grant_slots[] = {
    {Py_tp_doc, "How many messages may go out without another thought, and until when."},
    {Py_tp_members, grant_members},
    {0, NULL},
};

static PyType_Slot steps_slots[] = {
    {Py_tp_doc, "Messages, one after another."},
    {Py_tp_new, steps_new},
    {Py_tp_dealloc, steps_dealloc},
    {Py_tp_traverse, steps_traverse},
    {Py_tp_clear, steps_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, steps_next},
    {Py_tp_methods, steps_methods},
    {0, NULL},
};

static PyType_Spec hand_spec = {"penstock.client.message.Hand", sizeof(Hand), 0, Py_TPFLAGS_DEFAULT, hand_slots};
static PyType_Spec grant_spec = {"penstock.client.message.Grant", sizeof(Grant), 0, Py_TPFLAGS_DEFAULT, grant_slots};
static PyType_Spec steps_spec = {
    "penstock.client.message.Steps", sizeof(Steps), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, steps_slots,
};

int add_steps(PyObject *module)
{
    static PyTypeObject *steps_type;
    if (steps_type == NULL) { /* else it is imported again */
        PyObject *time = PyImport_ImportModule("time");
        monotonic = time == NULL ? NULL : PyObject_GetAttrString(time, "monotonic");
        Py_XDECREF(time);
        find_name = PyUnicode_InternFromString("find");
        close_name = PyUnicode_InternFromString("close");
        hand_type = (PyTypeObject *)PyType_FromSpec(&hand_spec);
        grant_type = (PyTypeObject *)PyType_FromSpec(&grant_spec);
        steps_type = (PyTypeObject *)PyType_FromSpec(&steps_spec);
    }
    if (monotonic == NULL || find_name == NULL || close_name == NULL)
        return -1;
    if (hand_type == NULL || grant_type == NULL || steps_type == NULL)
        return -1;
    if (PyModule_AddObjectRef(module, "Hand", (PyObject *)hand_type) < 0)
        return -1;
    if (PyModule_AddObjectRef(module, "Grant", (PyObject *)grant_type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Steps", (PyObject *)steps_type);
}
