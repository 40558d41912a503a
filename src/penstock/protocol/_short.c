/* What the short ways do with the bytes of every request: compare, take apart, check, stamp, answer.
 *
 * pure_short.py is the same in Python, and the reference for what each thing here does: the two pass the same tests.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#define HAS_SSE 1
#endif

#define HEADER_SIZE 61        /* of a record batch */
#define LENGTH_COUNTS_FROM 12 /* the length counts what comes behind it */
#define SUMMED_FROM 21        /* what the checksum covers */
#define BEFORE_CLIENT 12      /* length, api key, version, correlation id */
#define SUMMED_HERE_MAX 2048  /* more is faster in the library, whose call takes longer */

static PyObject *library_crc32c;
static int has_sse;

static uint16_t read16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static uint32_t read32(const uint8_t *at) { return (uint32_t)read16(at) << 16 | read16(at + 2); }
static uint64_t read64(const uint8_t *at) { return (uint64_t)read32(at) << 32 | read32(at + 4); }

static void write32(uint8_t *at, uint32_t value)
{
    for (int n = 3; n >= 0; n--, value >>= 8)
        at[n] = (uint8_t)value;
}

static void write64(uint8_t *at, uint64_t value)
{
    write32(at, (uint32_t)(value >> 32));
    write32(at + 4, (uint32_t)value);
}

/* A whole number among the arguments; what is none must not get to run code of its own here. */
static int64_t number(PyObject *argument)
{
    if (PyLong_Check(argument))
        return PyLong_AsLongLong(argument);
    PyErr_SetString(PyExc_TypeError, "a number is needed");
    return -1;
}

static int takes(const char *name, Py_ssize_t count, Py_ssize_t wanted)
{
    if (count != wanted)
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, count);
    return count == wanted;
}

/* The bytes of a bytearray or of a view, which is what requests come in, without asking for a buffer: they may be used
 * until anything could run that resizes the one or releases the other. */
static uint8_t *bytes_of(PyObject *object, Py_ssize_t *size)
{
    if (PyByteArray_CheckExact(object)) {
        *size = PyByteArray_GET_SIZE(object);
        return (uint8_t *)PyByteArray_AS_STRING(object);
    }
    if (PyMemoryView_Check(object)) {
        Py_buffer *view = PyMemoryView_GET_BUFFER(object);
        int released = ((PyMemoryViewObject *)object)->flags & _Py_MEMORYVIEW_RELEASED;
        if (!released && view->obj != NULL && view->itemsize == 1 && PyBuffer_IsContiguous(view, 'C')) {
            *size = view->len;
            return view->buf;
        }
    }
    PyErr_SetString(PyExc_TypeError, "a bytearray or a view of bytes is needed");
    return NULL;
}

/* ---- checksums */

#ifdef HAS_SSE
__attribute__((target("sse4.2"))) static uint32_t crc32c_here(const uint8_t *at, Py_ssize_t size)
{
    uint64_t sum = 0xFFFFFFFF;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        sum = _mm_crc32_u64(sum, word);
    }
    for (; size > 0; at++, size--)
        sum = _mm_crc32_u8((uint32_t)sum, *at);
    return ~(uint32_t)sum;
}
#endif

/* 0 if it was found out. */
static int crc32c(uint8_t *at, Py_ssize_t size, uint32_t *sum)
{
#ifdef HAS_SSE
    if (has_sse && size <= SUMMED_HERE_MAX) {
        *sum = crc32c_here(at, size);
        return 0;
    }
#endif
    PyObject *view = PyMemoryView_FromMemory((char *)at, size, PyBUF_READ);
    if (view == NULL)
        return -1;
    PyObject *found = PyObject_CallOneArg(library_crc32c, view);
    Py_DECREF(view);
    if (found == NULL)
        return -1;
    *sum = (uint32_t)PyLong_AsUnsignedLongMask(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- batches */

static PyObject *open_batch(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t size;
    if (!takes("open_batch", count, 2))
        return NULL;
    int64_t at = number(arguments[1]);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    uint8_t *batch = bytes_of(arguments[0], &size);
    if (batch == NULL)
        return NULL;
    if (at < 0 || size < HEADER_SIZE || at > size - HEADER_SIZE) {
        PyErr_SetString(PyExc_ValueError, "there is no header of a batch");
        return NULL;
    }
    batch += at;
    size -= at;
    int32_t length = (int32_t)read32(batch + 8);
    int sound = 0;
    if (length >= HEADER_SIZE - LENGTH_COUNTS_FROM && length <= size - LENGTH_COUNTS_FROM) {
        uint32_t sum;
        if (crc32c(batch + SUMMED_FROM, (Py_ssize_t)length + LENGTH_COUNTS_FROM - SUMMED_FROM, &sum) < 0)
            return NULL;
        sound = sum == read32(batch + 17);
    }
    int64_t fields[] = {
        (int64_t)read64(batch), length, (int32_t)read32(batch + 12), (int8_t)batch[16], (int16_t)read16(batch + 21),
        (int32_t)read32(batch + 23), (int64_t)read64(batch + 35), (int64_t)read64(batch + 43),
        (int16_t)read16(batch + 51), (int32_t)read32(batch + 53), (int32_t)read32(batch + 57),
    };
    Py_ssize_t many = sizeof fields / sizeof *fields;
    PyObject *opened = PyTuple_New(many + 1);
    if (opened == NULL)
        return NULL;
    PyTuple_SET_ITEM(opened, 0, PyBool_FromLong(sound));
    for (Py_ssize_t n = 0; n < many; n++) {
        PyObject *field = PyLong_FromLongLong(fields[n]);
        if (field == NULL) {
            Py_DECREF(opened);
            return NULL;
        }
        PyTuple_SET_ITEM(opened, n + 1, field);
    }
    return opened;
}

static int64_t signed_of(uint64_t found) { return (int64_t)(found >> 1) ^ -(int64_t)(found & 1); }

/* A signed number of a record, of at most so many bytes. NULL if it does not end in time. */
static const uint8_t *long_varint(const uint8_t *at, const uint8_t *end, int bytes_max, int64_t *value)
{
    uint64_t found = 0;
    for (int shift = 0; at < end && shift < 7 * bytes_max; shift += 7) {
        uint8_t byte = *at++;
        found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = signed_of(found);
            return at;
        }
    }
    return NULL;
}

/* Nearly all of them are of one or two bytes. */
static inline const uint8_t *varint(const uint8_t *at, const uint8_t *end, int bytes_max, int64_t *value)
{
    if (at < end && at[0] < 0x80) {
        *value = signed_of(at[0]);
        return at + 1;
    }
    if (end - at >= 2 && at[1] < 0x80) {
        *value = signed_of((at[0] & 0x7F) | (uint64_t)at[1] << 7);
        return at + 2;
    }
    return long_varint(at, end, bytes_max, value);
}

/* Behind bytes that their length stands before; a length of -1 means that there are none. */
static inline const uint8_t *behind_bytes(const uint8_t *at, const uint8_t *end, int may_be_null)
{
    int64_t size;
    if ((at = varint(at, end, 5, &size)) == NULL || size < (may_be_null ? -1 : 0) || size > end - at)
        return NULL;
    return size > 0 ? at + size : at;
}

/* Behind the record that begins there, NULL if that is none or has another place in its batch. */
static inline const uint8_t *behind_record(const uint8_t *at, const uint8_t *end, int64_t place, int64_t *time)
{
    int64_t size, delta, headers;
    if ((at = varint(at, end, 5, &size)) == NULL || size < 1 || size > end - at)
        return NULL;
    end = at + size;
    at++; /* attributes, of which there are none */
    if ((at = varint(at, end, 10, time)) == NULL || (at = varint(at, end, 5, &delta)) == NULL || delta != place)
        return NULL;
    if ((at = behind_bytes(at, end, 1)) == NULL || (at = behind_bytes(at, end, 1)) == NULL)
        return NULL;
    if ((at = varint(at, end, 5, &headers)) == NULL || headers < 0 || headers > end - at)
        return NULL;
    for (; headers > 0; headers--)
        if ((at = behind_bytes(at, end, 0)) == NULL || (at = behind_bytes(at, end, 1)) == NULL)
            return NULL;
    return at == end ? at : NULL;
}

static PyObject *newest_delta(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t size;
    if (!takes("newest_delta", count, 2))
        return NULL;
    int64_t wanted = number(arguments[1]);
    uint8_t *batch = bytes_of(arguments[0], &size);
    if (batch == NULL || PyErr_Occurred())
        return NULL;
    if (size < HEADER_SIZE || wanted < 1)
        Py_RETURN_NONE;
    const uint8_t *at = batch + HEADER_SIZE, *end = batch + size;
    int64_t time, newest = INT64_MIN;
    for (int64_t place = 0; place < wanted; place++) {
        if ((at = behind_record(at, end, place, &time)) == NULL)
            Py_RETURN_NONE;
        if (time > newest)
            newest = time;
    }
    if (at != end)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(newest);
}

static PyObject *stamp(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t size;
    if (!takes("stamp", count, 3))
        return NULL;
    uint8_t *batch = bytes_of(arguments[0], &size);
    if (batch == NULL)
        return NULL;
    int64_t base_offset = number(arguments[1]), leader_epoch = number(arguments[2]);
    if (PyErr_Occurred())
        return NULL;
    if (size < HEADER_SIZE || (PyMemoryView_Check(arguments[0]) && PyMemoryView_GET_BUFFER(arguments[0])->readonly)) {
        PyErr_SetString(PyExc_ValueError, "there is no header of a batch to be written to");
        return NULL;
    }
    write64(batch, (uint64_t)base_offset);
    write32(batch + 12, (uint32_t)leader_epoch);
    Py_RETURN_NONE;
}

/* ---- requests of one kind */

typedef struct {
    PyObject_HEAD
    uint32_t key_and_version;
    int flexible;
    PyObject *prefix;
} ProduceShape;

static PyObject *produce_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    int version, flexible;
    PyObject *prefix;
    if (keywords != NULL && PyDict_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_TypeError, "ProduceShape takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "iSp", &version, &prefix, &flexible))
        return NULL;
    ProduceShape *self = (ProduceShape *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->key_and_version = (uint32_t)version; /* the key of Produce is 0 */
        self->prefix = Py_NewRef(prefix);
        self->flexible = flexible;
    }
    return (PyObject *)self;
}

static void produce_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_CLEAR(((ProduceShape *)object)->prefix);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *produce_match(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    ProduceShape *self = (ProduceShape *)object;
    Py_ssize_t size;
    if (!takes("match", count, 3))
        return NULL;
    uint8_t *data = bytes_of(arguments[0], &size);
    int64_t start = number(arguments[1]), stop = number(arguments[2]);
    if (data == NULL || PyErr_Occurred())
        return NULL;
    Py_ssize_t common = PyBytes_GET_SIZE(self->prefix);
    if (start < 0 || start > stop || stop > size)
        Py_RETURN_NONE;
    int64_t at = start + BEFORE_CLIENT + common; /* of the partition; its length is four bytes, or up to three */
    if (at + 4 + 3 >= stop)
        Py_RETURN_NONE;
    if (read32(data + start + 4) != self->key_and_version ||
        memcmp(data + start + BEFORE_CLIENT, PyBytes_AS_STRING(self->prefix), common) != 0)
        Py_RETURN_NONE;
    int32_t index = (int32_t)read32(data + at);
    int64_t end;
    at += 4;
    if (self->flexible) {
        /* A varint of one to three bytes, one above the size. Behind the records stand three sets of tags, all empty. */
        uint32_t length = data[at] & 0x7F;
        int more = data[at++] >= 0x80;
        for (int shift = 7; more && shift <= 14; shift += 7) {
            length |= (uint32_t)(data[at] & 0x7F) << shift;
            more = data[at++] >= 0x80;
        }
        if (more)
            Py_RETURN_NONE;
        end = at + (int64_t)length - 1;
        if (end + 3 != stop || (data[end] | data[end + 1] | data[end + 2]) != 0)
            Py_RETURN_NONE;
    } else {
        end = at + 4 + (int32_t)read32(data + at);
        at += 4;
        if (end != stop)
            Py_RETURN_NONE;
    }
    if (end < at)
        Py_RETURN_NONE;
    return Py_BuildValue("(iiLL)", (int32_t)read32(data + start + 8), index, (long long)at, (long long)end);
}

static PyMethodDef produce_methods[] = {
    {"match", (PyCFunction)(void (*)(void))produce_match, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot produce_slots[] = {
    {Py_tp_new, produce_new},
    {Py_tp_dealloc, produce_dealloc},
    {Py_tp_methods, produce_methods},
    {0, NULL},
};
static PyType_Spec produce_spec = {
    "penstock.protocol._short.ProduceShape", sizeof(ProduceShape), 0, Py_TPFLAGS_DEFAULT, produce_slots,
};

typedef struct {
    PyObject_HEAD
    uint32_t key_and_version;
    int has_last_epoch;
    PyObject *prefix, *tail;
} FetchShape;

static PyObject *fetch_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    int version, has_last_epoch;
    PyObject *prefix, *tail;
    if (keywords != NULL && PyDict_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_TypeError, "FetchShape takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "iSSp", &version, &prefix, &tail, &has_last_epoch))
        return NULL;
    FetchShape *self = (FetchShape *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->key_and_version = 1 << 16 | (uint32_t)version;
        self->has_last_epoch = has_last_epoch;
        self->prefix = Py_NewRef(prefix);
        self->tail = Py_NewRef(tail);
    }
    return (PyObject *)self;
}

static void fetch_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_CLEAR(((FetchShape *)object)->prefix);
    Py_CLEAR(((FetchShape *)object)->tail);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *fetch_match(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    FetchShape *self = (FetchShape *)object;
    Py_ssize_t size;
    if (!takes("match", count, 3))
        return NULL;
    uint8_t *data = bytes_of(arguments[0], &size);
    int64_t start = number(arguments[1]), stop = number(arguments[2]);
    if (data == NULL || PyErr_Occurred())
        return NULL;
    Py_ssize_t before = PyBytes_GET_SIZE(self->prefix), behind = PyBytes_GET_SIZE(self->tail);
    /* Partition, current leader epoch, fetch offset, [last fetched epoch,] log start offset, partition max bytes. */
    int asked_size = self->has_last_epoch ? 32 : 28;
    if (start < 0 || start > stop || stop > size || start + BEFORE_CLIENT + before + asked_size + behind != stop)
        Py_RETURN_NONE;
    uint8_t *frame = data + start, *asked = frame + BEFORE_CLIENT + before;
    if (read32(frame + 4) != self->key_and_version ||
        memcmp(frame + BEFORE_CLIENT, PyBytes_AS_STRING(self->prefix), before) != 0 ||
        memcmp(asked + asked_size, PyBytes_AS_STRING(self->tail), behind) != 0)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "(iiiLii)", (int32_t)read32(frame + 8), (int32_t)read32(asked), (int32_t)read32(asked + 4),
        (long long)read64(asked + 8), self->has_last_epoch ? (int32_t)read32(asked + 16) : -1,
        (int32_t)read32(asked + asked_size - 4));
}

static PyMethodDef fetch_methods[] = {
    {"match", (PyCFunction)(void (*)(void))fetch_match, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot fetch_slots[] = {
    {Py_tp_new, fetch_new},
    {Py_tp_dealloc, fetch_dealloc},
    {Py_tp_methods, fetch_methods},
    {0, NULL},
};
static PyType_Spec fetch_spec = {
    "penstock.protocol._short.FetchShape", sizeof(FetchShape), 0, Py_TPFLAGS_DEFAULT, fetch_slots,
};

/* ---- answers of one kind */

typedef struct {
    PyObject_HEAD
    PyObject *frame;
    Py_ssize_t at;
} AnswerShape;

static PyObject *answer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *frame;
    Py_ssize_t at;
    if (keywords != NULL && PyDict_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_TypeError, "AnswerShape takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "Sn", &frame, &at))
        return NULL;
    if (at < 8 || at > PyBytes_GET_SIZE(frame) - 24) {
        PyErr_SetString(PyExc_ValueError, "the three numbers must stand within the frame, behind its header");
        return NULL;
    }
    AnswerShape *self = (AnswerShape *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->frame = Py_NewRef(frame);
        self->at = at;
    }
    return (PyObject *)self;
}

static void answer_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_CLEAR(((AnswerShape *)object)->frame);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *answer_fill(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    AnswerShape *self = (AnswerShape *)object;
    if (!takes("fill", count, 4))
        return NULL;
    int64_t given[4];
    for (int n = 0; n < 4; n++)
        given[n] = number(arguments[n]);
    if (PyErr_Occurred())
        return NULL;
    PyObject *filled = PyBytes_FromStringAndSize(PyBytes_AS_STRING(self->frame), PyBytes_GET_SIZE(self->frame));
    if (filled == NULL)
        return NULL;
    uint8_t *frame = (uint8_t *)PyBytes_AS_STRING(filled);
    write32(frame + 4, (uint32_t)given[0]);
    for (int n = 0; n < 3; n++)
        write64(frame + self->at + 8 * n, (uint64_t)given[n + 1]);
    return filled;
}

static PyMethodDef answer_methods[] = {
    {"fill", (PyCFunction)(void (*)(void))answer_fill, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot answer_slots[] = {
    {Py_tp_new, answer_new},
    {Py_tp_dealloc, answer_dealloc},
    {Py_tp_methods, answer_methods},
    {0, NULL},
};
static PyType_Spec answer_spec = {
    "penstock.protocol._short.AnswerShape", sizeof(AnswerShape), 0, Py_TPFLAGS_DEFAULT, answer_slots,
};

/* ---- answers with records in them */

typedef struct {
    PyObject_HEAD
    PyObject *head, *tail;
    Py_ssize_t at;
    int flexible;
} RecordsShape;

static PyObject *records_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *head, *tail;
    Py_ssize_t at;
    int flexible;
    if (keywords != NULL && PyDict_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_TypeError, "RecordsShape takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "SnSp", &head, &at, &tail, &flexible))
        return NULL;
    if (at < 8 || at > PyBytes_GET_SIZE(head) - 24) {
        PyErr_SetString(PyExc_ValueError, "the three numbers must stand within the frame, behind its header");
        return NULL;
    }
    RecordsShape *self = (RecordsShape *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->head = Py_NewRef(head);
        self->tail = Py_NewRef(tail);
        self->at = at;
        self->flexible = flexible;
    }
    return (PyObject *)self;
}

static void records_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_CLEAR(((RecordsShape *)object)->head);
    Py_CLEAR(((RecordsShape *)object)->tail);
    type->tp_free(object);
    Py_DECREF(type);
}

/* What stands before so many records, with room for `more` bytes behind it. The first of the arguments is the
 * correlation id, the last three are the numbers. */
static PyObject *records_begun(RecordsShape *self, PyObject *const *arguments, int64_t size, Py_ssize_t more)
{
    int64_t given[] = {number(arguments[0]), number(arguments[2]), number(arguments[3]), number(arguments[4])};
    if (PyErr_Occurred())
        return NULL;
    uint8_t length[5];
    Py_ssize_t width = 4, common = PyBytes_GET_SIZE(self->head), tail = PyBytes_GET_SIZE(self->tail);
    if (size < 0 || size > INT32_MAX - common - tail - 5) {
        PyErr_SetString(PyExc_ValueError, "so many records do not fit into a frame");
        return NULL;
    }
    if (self->flexible) {
        uint32_t rest = (uint32_t)size + 1;
        for (width = 0; rest >= 0x80; rest >>= 7)
            length[width++] = (uint8_t)(rest | 0x80);
        length[width++] = (uint8_t)rest;
    } else
        write32(length, (uint32_t)size);
    PyObject *begun = PyBytes_FromStringAndSize(NULL, common + width + more);
    if (begun == NULL)
        return NULL;
    uint8_t *frame = (uint8_t *)PyBytes_AS_STRING(begun);
    memcpy(frame, PyBytes_AS_STRING(self->head), common);
    memcpy(frame + common, length, width);
    write32(frame, (uint32_t)(common - 4 + width + size + tail));
    write32(frame + 4, (uint32_t)given[0]);
    for (int n = 0; n < 3; n++)
        write64(frame + self->at + 8 * n, (uint64_t)given[n + 1]);
    return begun;
}

static PyObject *records_before(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    if (!takes("before", count, 5))
        return NULL;
    int64_t size = number(arguments[1]);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    return records_begun((RecordsShape *)object, arguments, size, 0);
}

static PyObject *records_around(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    RecordsShape *self = (RecordsShape *)object;
    if (!takes("around", count, 5))
        return NULL;
    if (!PyBytes_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "records are bytes");
        return NULL;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(arguments[1]), tail = PyBytes_GET_SIZE(self->tail);
    PyObject *whole = records_begun(self, arguments, size, size + tail);
    if (whole == NULL)
        return NULL;
    char *end = PyBytes_AS_STRING(whole) + PyBytes_GET_SIZE(whole);
    memcpy(end - tail - size, PyBytes_AS_STRING(arguments[1]), size);
    memcpy(end - tail, PyBytes_AS_STRING(self->tail), tail);
    return whole;
}

static PyMethodDef records_methods[] = {
    {"before", (PyCFunction)(void (*)(void))records_before, METH_FASTCALL, NULL},
    {"around", (PyCFunction)(void (*)(void))records_around, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot records_slots[] = {
    {Py_tp_new, records_new},
    {Py_tp_dealloc, records_dealloc},
    {Py_tp_methods, records_methods},
    {0, NULL},
};
static PyType_Spec records_spec = {
    "penstock.protocol._short.RecordsShape", sizeof(RecordsShape), 0, Py_TPFLAGS_DEFAULT, records_slots,
};

/* ---- the module */

static PyMethodDef functions[] = {
    {"open_batch", (PyCFunction)(void (*)(void))open_batch, METH_FASTCALL, NULL},
    {"newest_delta", (PyCFunction)(void (*)(void))newest_delta, METH_FASTCALL, NULL},
    {"stamp", (PyCFunction)(void (*)(void))stamp, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "penstock.protocol._short", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    int added = type == NULL ? -1 : PyModule_AddObjectRef(module, name, type);
    Py_XDECREF(type);
    return added;
}

PyMODINIT_FUNC PyInit__short(void)
{
#ifdef HAS_SSE
    has_sse = __builtin_cpu_supports("sse4.2");
#endif
    PyObject *library = PyImport_ImportModule("crc32c");
    if (library == NULL)
        return NULL;
    library_crc32c = PyObject_GetAttrString(library, "crc32c");
    Py_DECREF(library);
    if (library_crc32c == NULL)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && (add_type(module, "ProduceShape", &produce_spec) < 0 ||
                           add_type(module, "FetchShape", &fetch_spec) < 0 ||
                           add_type(module, "AnswerShape", &answer_spec) < 0 ||
                           add_type(module, "RecordsShape", &records_spec) < 0)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
