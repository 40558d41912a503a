/* From the buffers of Arrow's columns to the records of partitions.
 *
 * pure_records.py is the same in Python, and the reference for what each thing here does: the two pass the same tests.
 * Arrow's offsets are not trusted, and no row is encoded before all were looked at.
 */
#include "_columns.h"

#define RECORD_BYTES_MAX (1 << 30)

/* What is open is still being written; what is closed is as large as a batch may be. */
typedef struct {
    Block open;
    int32_t count;
    int64_t base_timestamp, max_timestamp;
    PyObject *closed; /* a list, once there is something in it */
    Py_ssize_t closed_bytes;
} Partition;

typedef struct {
    PyObject_HEAD
    Py_ssize_t records_max; /* bytes of records to a batch */
    Py_ssize_t count;
    Partition *partitions;
} Partitions;

static int partitions_init(Partitions *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"records_max", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "n", names, &self->records_max))
        return -1;
    if (self->records_max < 1 || self->records_max > RECORD_BYTES_MAX) {
        PyErr_SetString(PyExc_ValueError, "a batch is of one byte to a GiB");
        return -1;
    }
    return 0;
}

static PyObject *partitions_grow(Partitions *self, PyObject *args)
{
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "n", &count))
        return NULL;
    if (count < 0 || count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a number of partitions has 31 bits");
        return NULL;
    }
    if (count > self->count) {
        Partition *grown = PyMem_Realloc(self->partitions, (size_t)count * sizeof(Partition));
        if (grown == NULL)
            return PyErr_NoMemory();
        memset(grown + self->count, 0, (size_t)(count - self->count) * sizeof(Partition));
        self->partitions = grown;
        self->count = count;
    }
    Py_RETURN_NONE;
}

static PyObject *partition_copy_open(Partition *partition)
{
    int32_t count = partition->count;
    PyObject *records = PyBytes_FromStringAndSize(partition->open.at, partition->open.used);
    partition->open.used = partition->count = 0;
    return Py_BuildValue("NiLL", records, (int)count, (long long)partition->base_timestamp,
                         (long long)partition->max_timestamp);
}

static int partition_close(Partition *partition)
{
    Py_ssize_t used = partition->open.used;
    if (partition->closed == NULL && (partition->closed = PyList_New(0)) == NULL)
        return 0;
    PyObject *taken = partition_copy_open(partition);
    if (taken == NULL)
        return 0;
    int failed = PyList_Append(partition->closed, taken);
    Py_DECREF(taken);
    partition->closed_bytes += used;
    return !failed;
}

static PyObject *partitions_take(Partitions *self, PyObject *args)
{
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "n", &index))
        return NULL;
    if (index < 0 || index >= self->count)
        Py_RETURN_NONE;
    Partition *partition = self->partitions + index;
    if (partition->closed != NULL && PyList_GET_SIZE(partition->closed) > 0) {
        PyObject *taken = Py_NewRef(PyList_GET_ITEM(partition->closed, 0));
        partition->closed_bytes -= PyBytes_GET_SIZE(PyTuple_GET_ITEM(taken, 0));
        if (PyList_SetSlice(partition->closed, 0, 1, NULL) < 0)
            Py_CLEAR(taken);
        return taken;
    }
    if (partition->count == 0)
        Py_RETURN_NONE;
    Py_ssize_t used = partition->open.used;
    PyObject *taken = partition_copy_open(partition);
    block_clear(&partition->open); /* more may never come */
    partition->open.usual = used < self->records_max ? used : self->records_max;
    return taken;
}

static PyObject *partitions_buffered(Partitions *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *all = PyList_New(0);
    for (Py_ssize_t index = 0; all != NULL && index < self->count; index++) {
        Py_ssize_t bytes = self->partitions[index].open.used + self->partitions[index].closed_bytes;
        if (bytes == 0)
            continue;
        PyObject *pair = Py_BuildValue("nn", index, bytes);
        if (pair == NULL || PyList_Append(all, pair) < 0)
            Py_CLEAR(all);
        Py_XDECREF(pair);
    }
    return all;
}

static void partitions_dealloc(Partitions *self)
{
    PyTypeObject *type = Py_TYPE(self);
    for (Py_ssize_t index = 0; index < self->count; index++) {
        block_clear(&self->partitions[index].open);
        Py_XDECREF(self->partitions[index].closed);
    }
    PyMem_Free(self->partitions);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef partitions_methods[] = {
    {"grow", (PyCFunction)partitions_grow, METH_VARARGS, "Room for so many partitions, or for as many as there are."},
    {"take", (PyCFunction)partitions_take, METH_VARARGS, "The oldest records of a partition: a batch of them."},
    {"buffered", (PyCFunction)partitions_buffered, METH_NOARGS, "The bytes of each partition that has any."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot partitions_slots[] = {
    {Py_tp_doc, "The encoded records of one topic's partitions."},
    {Py_tp_init, partitions_init},
    {Py_tp_dealloc, partitions_dealloc},
    {Py_tp_methods, partitions_methods},
    {0, NULL},
};

PyType_Spec partitions_spec = {
    "penstock.pipeline._columns.Partitions", sizeof(Partitions), 0, Py_TPFLAGS_DEFAULT, partitions_slots,
};

/* ---- Arrow's columns, read */

/* An array as (offset, validity, offsets, data), of which all but the first may be None. */
typedef struct {
    int present;
    Py_ssize_t offset;
    Py_ssize_t length; /* how many elements the buffers have room for, from the offset on */
    Py_buffer valid, offsets, data;
} Array;

static int view(PyObject *object, Py_buffer *buffer)
{
    return object == Py_None || PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) == 0;
}

static void array_release(Array *array)
{
    PyBuffer_Release(&array->valid); /* of a view that was never made, it does nothing */
    PyBuffer_Release(&array->offsets);
    PyBuffer_Release(&array->data);
}

/* `width` of an element in the data: 0 where offsets say where it is, -1 for a struct, of which validity is all. */
static int array_open(Array *array, PyObject *tuple, Py_ssize_t width)
{
    PyObject *valid, *offsets, *data;
    memset(array, 0, sizeof *array);
    if (tuple == Py_None)
        return 1;
    if (!PyArg_ParseTuple(tuple, "nOOO", &array->offset, &valid, &offsets, &data))
        return 0;
    array->present = 1;
    if (!view(valid, &array->valid) || !view(offsets, &array->offsets) || !view(data, &array->data))
        return 0;
    Py_ssize_t room = PY_SSIZE_T_MAX;
    if (width >= 0)
        room = width > 0 ? array->data.len / width : array->offsets.len / 4 - 1;
    if (array->valid.obj != NULL && array->valid.len < room / 8 + 1 && 8 * array->valid.len < room)
        room = 8 * array->valid.len;
    array->length = array->offset < 0 || room < array->offset ? 0 : room - array->offset;
    return 1;
}

static inline int is_valid(const Array *array, Py_ssize_t index)
{
    if (array->valid.obj == NULL)
        return 1;
    index += array->offset;
    return ((const uint8_t *)array->valid.buf)[index >> 3] >> (index & 7) & 1;
}

static const char OUT_OF_BOUNDS[] = "a column's buffers are shorter than its rows";

/* Bytes of an array whose element `index` is known to be there; false where its offsets lie. */
static inline int get_part(const Array *array, Py_ssize_t index, Part *part)
{
    part->at = NULL;
    part->size = -1;
    if (!array->present || !is_valid(array, index))
        return 1;
    int32_t start = get32(array->offsets.buf, array->offset + index);
    int32_t stop = get32(array->offsets.buf, array->offset + index + 1);
    if (start < 0 || stop < start || stop > array->data.len)
        return 0;
    part->at = (const uint8_t *)array->data.buf + start;
    part->size = stop - start;
    return 1;
}

/* ---- encoding */

typedef struct {
    Py_ssize_t rows;
    long long now_ms;
    PyObject *topics; /* a tuple of (Partitions, number of partitions, partition for rows without a key) */
    Array topic, partition, timestamp, key, value, list, item, name, header;
    int32_t *chosen; /* for each row, once it is known to be good */
    int64_t *sizes;  /* of its key, value and headers */
} Rows;

typedef struct {
    Partitions *partitions;
    int32_t count, keyless;
} Topic;

static inline int varint_size(uint64_t value)
{
    int size = 1;
    for (; value > 0x7f; value >>= 7)
        size++;
    return size;
}

static inline uint64_t zigzag(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }

static inline uint8_t *put_varint(uint8_t *at, int64_t value)
{
    uint64_t rest = zigzag(value);
    for (; rest > 0x7f; rest >>= 7)
        *at++ = (uint8_t)(rest | 0x80);
    *at++ = (uint8_t)rest;
    return at;
}

static inline int64_t part_size(Part part) { return varint_size(zigzag(part.size)) + (part.size > 0 ? part.size : 0); }

static inline uint8_t *put_part(uint8_t *at, Part part)
{
    at = put_varint(at, part.size);
    if (part.size <= 0)
        return at;
    memcpy(at, part.at, (size_t)part.size);
    return at + part.size;
}

/* As every client of Kafka hashes keys. */
static uint32_t murmur2(const uint8_t *at, int32_t size)
{
    const uint32_t mix = 0x5bd1e995;
    uint32_t hash = 0x9747b28c ^ (uint32_t)size;
    for (; size >= 4; size -= 4, at += 4) {
        uint32_t word = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        word *= mix;
        word ^= word >> 24;
        hash = hash * mix ^ word * mix;
    }
    if (size == 3)
        hash ^= (uint32_t)at[2] << 16;
    if (size >= 2)
        hash ^= (uint32_t)at[1] << 8;
    if (size >= 1)
        hash = (hash ^ at[0]) * mix;
    hash = (hash ^ hash >> 13) * mix;
    return hash ^ hash >> 15;
}

static const char *list_bounds(const Rows *rows, Py_ssize_t row, int32_t *start, int32_t *stop)
{
    *start = *stop = 0;
    if (!rows->list.present || !is_valid(&rows->list, row))
        return NULL;
    *start = get32(rows->list.offsets.buf, rows->list.offset + row);
    *stop = get32(rows->list.offsets.buf, rows->list.offset + row + 1);
    if (*start < 0 || *stop < *start)
        return OUT_OF_BOUNDS;
    if (*stop > rows->item.length || *stop > rows->name.length || *stop > rows->header.length)
        return *stop > *start ? OUT_OF_BOUNDS : NULL;
    return NULL;
}

static const char *measure_headers(const Rows *rows, Py_ssize_t row, int64_t *size)
{
    int32_t start, stop;
    Part part;
    const char *wrong = list_bounds(rows, row, &start, &stop);
    if (wrong != NULL)
        return wrong;
    *size += varint_size(zigzag(stop - start));
    for (Py_ssize_t index = start; index < stop; index++) {
        if (!is_valid(&rows->item, index))
            return "a header is null";
        if (!is_valid(&rows->name, index))
            return "a header's name is null";
        if (!get_part(&rows->name, index, &part))
            return OUT_OF_BOUNDS;
        *size += part_size(part);
        if (!get_part(&rows->header, index, &part))
            return OUT_OF_BOUNDS;
        *size += part_size(part);
    }
    return NULL;
}

static const char *topic_of(const Rows *rows, Py_ssize_t row, Topic *topic)
{
    Py_ssize_t index = 0;
    if (rows->topic.present) {
        if (!is_valid(&rows->topic, row))
            return "the topic is null";
        index = get32(rows->topic.data.buf, rows->topic.offset + row);
    }
    if (index < 0 || index >= PyTuple_GET_SIZE(rows->topics))
        return OUT_OF_BOUNDS;
    PyObject *tuple = PyTuple_GET_ITEM(rows->topics, index);
    topic->partitions = (Partitions *)PyTuple_GET_ITEM(tuple, 0);
    topic->count = (int32_t)PyLong_AsLong(PyTuple_GET_ITEM(tuple, 1));
    topic->keyless = (int32_t)PyLong_AsLong(PyTuple_GET_ITEM(tuple, 2));
    return NULL;
}

static const char *choose(Rows *rows, Py_ssize_t row, const Topic *topic, Part key)
{
    int32_t chosen = topic->keyless;
    if (rows->partition.present && is_valid(&rows->partition, row)) {
        chosen = get32(rows->partition.data.buf, rows->partition.offset + row);
        if (chosen < 0 || chosen >= topic->count)
            return "there is no such partition";
    }
    else if (key.size >= 0)
        chosen = (int32_t)((murmur2(key.at, key.size) & 0x7fffffff) % (uint32_t)topic->count);
    rows->chosen[row] = chosen;
    return NULL;
}

/* Looks at everything that could be wrong with a row before any row is encoded. */
static const char *check_row(Rows *rows, Py_ssize_t row)
{
    Topic topic;
    Part key, value;
    const char *wrong = topic_of(rows, row, &topic);
    if (wrong != NULL)
        return wrong;
    if (!get_part(&rows->key, row, &key) || !get_part(&rows->value, row, &value))
        return OUT_OF_BOUNDS;
    if ((wrong = choose(rows, row, &topic, key)) != NULL)
        return wrong;
    int64_t size = part_size(key) + part_size(value);
    if ((wrong = measure_headers(rows, row, &size)) != NULL)
        return wrong;
    if (size > RECORD_BYTES_MAX)
        return "the record is larger than a GiB";
    rows->sizes[row] = size;
    return NULL;
}

static uint8_t *put_headers(uint8_t *at, const Rows *rows, Py_ssize_t row)
{
    int32_t start, stop;
    Part part;
    list_bounds(rows, row, &start, &stop);
    at = put_varint(at, stop - start);
    for (Py_ssize_t index = start; index < stop; index++) {
        get_part(&rows->name, index, &part);
        at = put_part(at, part);
        get_part(&rows->header, index, &part);
        at = put_part(at, part);
    }
    return at;
}

/* The millisecond that a microsecond is in, also before 1970: -1 is the time of a record that has none. */
static int64_t to_milliseconds(int64_t micros)
{
    return micros / MICROSECONDS - (micros % MICROSECONDS < 0);
}

/* False with an exception, such as that there is no memory. */
static int encode_row(const Rows *rows, Py_ssize_t row)
{
    Topic topic;
    Part part;
    const char *wrong = topic_of(rows, row, &topic);
    if (wrong != NULL) { /* not of a row that was looked at before */
        PyErr_SetString(PyExc_ValueError, wrong);
        return 0;
    }
    Partition *partition = topic.partitions->partitions + rows->chosen[row];
    int64_t timestamp = rows->now_ms;
    if (rows->timestamp.present && is_valid(&rows->timestamp, row))
        timestamp = to_milliseconds(get64(rows->timestamp.data.buf, rows->timestamp.offset + row));
    int64_t delta = 0, body = 0, total = 0;
    for (;;) {
        delta = partition->count ? timestamp - partition->base_timestamp : 0;
        body = 1 + varint_size(zigzag(delta)) + varint_size(zigzag(partition->count)) + rows->sizes[row];
        total = varint_size(zigzag(body)) + body;
        if (partition->count == 0 || total <= topic.partitions->records_max - partition->open.used)
            break;
        if (!partition_close(partition))
            return 0;
    }
    if (!block_hold(&partition->open, partition->open.used + total))
        return 0;
    if (partition->count == 0) {
        partition->base_timestamp = timestamp;
        partition->max_timestamp = NO_TIMESTAMP; /* of a batch, none is earlier, also where all of its records are */
    }
    if (timestamp > partition->max_timestamp)
        partition->max_timestamp = timestamp;
    uint8_t *at = (uint8_t *)partition->open.at + partition->open.used;
    at = put_varint(at, body);
    *at++ = 0; /* the attributes of a record, unused so far */
    at = put_varint(put_varint(at, delta), partition->count);
    get_part(&rows->key, row, &part);
    at = put_part(at, part);
    get_part(&rows->value, row, &part);
    at = put_headers(put_part(at, part), rows, row);
    partition->open.used += total;
    partition->count++;
    assert(at == (uint8_t *)partition->open.at + partition->open.used);
    return 1;
}

/* None, or which row is wrong and why. */
static PyObject *encode_rows(Rows *rows)
{
    const Array *arrays[] = {&rows->topic, &rows->partition, &rows->timestamp, &rows->key, &rows->value, &rows->list};
    for (size_t index = 0; index < sizeof arrays / sizeof *arrays; index++)
        if (arrays[index]->present && arrays[index]->length < rows->rows)
            return Py_BuildValue("is", 0, OUT_OF_BOUNDS);
    for (Py_ssize_t row = 0; row < rows->rows; row++) {
        const char *wrong = check_row(rows, row);
        if (wrong != NULL)
            return Py_BuildValue("ns", row, wrong);
    }
    for (Py_ssize_t row = 0; row < rows->rows; row++)
        if (!encode_row(rows, row))
            return NULL;
    Py_RETURN_NONE;
}

/* That what stands for the topics is what it should be, so that rows can rely on it. */
static int check_topics(PyObject *topics, PyTypeObject *type)
{
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(topics); index++) {
        PyObject *partitions;
        int count, keyless;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(topics, index), "O!ii", type, &partitions, &count, &keyless))
            return 0;
        if (count < 1 || keyless < 0 || keyless >= count || ((Partitions *)partitions)->count < count) {
            PyErr_SetString(PyExc_ValueError, "a topic without the partitions that it claims");
            return 0;
        }
    }
    return 1;
}

PyObject *encode(PyObject *module, PyObject *args)
{
    Rows rows;
    PyObject *topic, *partition, *timestamp, *key, *value, *list, *item, *name, *header, *answer = NULL;
    memset(&rows, 0, sizeof rows);
    if (!PyArg_ParseTuple(args, "nLO!OOOOOOOOO", &rows.rows, &rows.now_ms, &PyTuple_Type, &rows.topics, &topic,
                          &partition, &timestamp, &key, &value, &list, &item, &name, &header))
        return NULL;
    if (!check_topics(rows.topics, ((State *)PyModule_GetState(module))->partitions))
        return NULL;
    rows.chosen = PyMem_Calloc((size_t)(rows.rows > 0 ? rows.rows : 0) + 1, sizeof *rows.chosen);
    rows.sizes = PyMem_Calloc((size_t)(rows.rows > 0 ? rows.rows : 0) + 1, sizeof *rows.sizes);
    if (rows.chosen == NULL || rows.sizes == NULL)
        PyErr_NoMemory();
    else if (array_open(&rows.topic, topic, 4) && array_open(&rows.partition, partition, 4) &&
             array_open(&rows.timestamp, timestamp, 8) && array_open(&rows.key, key, 0) &&
             array_open(&rows.value, value, 0) && array_open(&rows.list, list, 0) && array_open(&rows.item, item, -1) &&
             array_open(&rows.name, name, 0) && array_open(&rows.header, header, 0))
        answer = encode_rows(&rows);
    Array *arrays[] = {&rows.topic, &rows.partition, &rows.timestamp, &rows.key,   &rows.value,
                       &rows.list,  &rows.item,      &rows.name,      &rows.header};
    for (size_t index = 0; index < sizeof arrays / sizeof *arrays; index++)
        array_release(arrays[index]);
    PyMem_Free(rows.chosen);
    PyMem_Free(rows.sizes);
    return answer;
}
