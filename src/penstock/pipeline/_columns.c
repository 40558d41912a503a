/* The walk over the records of a batch into the buffers of Arrow's columns, and the module.
 *
 * pure_columns.py is the same in Python, and the reference for what each thing here does: the two pass the same tests.
 * Records are not trusted: whatever is wrong with them is a ValueError.
 */
#include "_columns.h"

#define RECORD_BYTES_MIN 7 /* its size, attributes, two deltas, key, value and number of headers */

/* A column of bytes: what Arrow calls binary, or a string. Where rows start, not where they end, until it is taken. */
typedef struct {
    Block valid, offsets, data;
    Py_ssize_t nulls;
} Binary;

typedef struct {
    PyObject_HEAD
    int with_headers;
    Py_ssize_t data_max; /* a column's offsets have 32 bits */
    Py_ssize_t rows, items;
    Binary key, value, name, header;
    Block offset, timestamp, kind, epoch, list_valid, list_offsets;
    Py_ssize_t list_nulls;
} Columns;

typedef struct {
    const uint8_t *at, *end;
} Cursor;

typedef struct {
    int count, last_delta, append_time, epoch;
    long long base_offset, base_timestamp, max_timestamp, first, stop;
} Batch;

/* What ends a walk, besides a reason in words. */
static const char NO_ROOM[] = "no room";
static const char NO_MEMORY[] = "no memory";

static const char RUNS_PAST[] = "a record runs past the end of its batch";
static const char LONG_32[] = "a varint is longer than 32 bits";
static const char LONG_64[] = "a varint is longer than 64 bits";

static const char *read_varint(Cursor *cursor, int bits, int64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (cursor->at >= cursor->end)
            return RUNS_PAST;
        uint64_t byte = *cursor->at++;
        uint64_t part = byte & 0x7f;
        if (shift + 7 > bits && part >> (bits - shift))
            break;
        value |= part << shift;
        if (byte < 0x80) {
            *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return NULL;
        }
    }
    return bits == 32 ? LONG_32 : LONG_64;
}

static inline const char *read_int32(Cursor *cursor, int32_t *out)
{
    if (cursor->at < cursor->end && *cursor->at < 0x80) {
        int32_t value = *cursor->at++;
        *out = (value >> 1) ^ -(value & 1);
        return NULL;
    }
    int64_t wide;
    const char *wrong = read_varint(cursor, 32, &wide);
    if (wrong == NULL)
        *out = (int32_t)wide;
    return wrong;
}

static inline const char *read_part(Cursor *cursor, Part *part)
{
    const char *wrong = read_int32(cursor, &part->size);
    if (wrong != NULL)
        return wrong;
    if (part->size < -1)
        return "a length is negative";
    if (part->size > cursor->end - cursor->at)
        return "a key, value or header runs past the end of its record";
    part->at = cursor->at;
    cursor->at += part->size > 0 ? part->size : 0;
    return NULL;
}

static inline const char *binary_append(Binary *column, Py_ssize_t row, const void *at, Py_ssize_t size, Py_ssize_t max)
{
    put32(column->offsets.at, row, (int32_t)column->data.used);
    if (size > 0) {
        if (size > max - column->data.used)
            return NO_ROOM;
        if (!block_hold(&column->data, column->data.used + size))
            return NO_MEMORY;
        memcpy(column->data.at + column->data.used, at, (size_t)size);
        column->data.used += size;
    }
    return NULL;
}

static inline const char *binary_put(Binary *column, Py_ssize_t row, Part part, Py_ssize_t max)
{
    put_bit(column->valid.at, row, part.size >= 0);
    column->nulls += part.size < 0;
    return binary_append(column, row, part.at, part.size, max);
}

static int is_ascii(Part part)
{
    uint8_t seen = 0;
    for (int32_t index = 0; index < part.size; index++)
        seen |= part.at[index];
    return seen < 0x80;
}

/* Arrow's strings are UTF-8. Brokers have never looked at the encoding of names, so what is not gets replaced. */
static const char *put_name(Columns *self, Part name)
{
    if (is_ascii(name))
        return binary_append(&self->name, self->items, name.at, name.size, self->data_max);
    PyObject *text = PyUnicode_DecodeUTF8((const char *)name.at, name.size, "replace");
    if (text == NULL)
        return NO_MEMORY;
    Py_ssize_t size;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
    const char *wrong = NO_MEMORY;
    if (utf8 != NULL)
        wrong = binary_append(&self->name, self->items, utf8, size, self->data_max);
    Py_DECREF(text);
    return wrong;
}

static int hold_items(Columns *self, Py_ssize_t items)
{
    Py_ssize_t offsets = 4 * (items + 1);
    return block_hold(&self->name.offsets, offsets) && block_hold(&self->header.offsets, offsets) &&
           block_hold(&self->header.valid, items / 8 + 1);
}

static const char *walk_headers(Columns *self, Cursor *cursor, int keep)
{
    int32_t count;
    const char *wrong = read_int32(cursor, &count);
    if (wrong != NULL)
        return wrong;
    if (count < 0 || count > cursor->end - cursor->at)
        return "a record claims headers that it has no room for";
    if (keep) {
        put_bit(self->list_valid.at, self->rows, count > 0);
        put32(self->list_offsets.at, self->rows, (int32_t)self->items);
        self->list_nulls += count == 0;
        if (count > self->data_max - self->items)
            return NO_ROOM;
        if (count > 0 && !hold_items(self, self->items + count))
            return NO_MEMORY;
    }
    for (int32_t index = 0; index < count; index++) {
        Part name, value;
        if ((wrong = read_part(cursor, &name)) != NULL)
            return wrong;
        if (name.size < 0)
            return "a header has no name";
        if ((wrong = read_part(cursor, &value)) != NULL)
            return wrong;
        if (!keep)
            continue;
        if ((wrong = put_name(self, name)) != NULL)
            return wrong;
        if ((wrong = binary_put(&self->header, self->items, value, self->data_max)) != NULL)
            return wrong;
        self->items++;
    }
    return NULL;
}

/* What microseconds can't hold, 292,000 years from now, is as far away as they go. */
static inline int64_t microseconds(int64_t timestamp_ms)
{
    if (timestamp_ms > INT64_MAX / MICROSECONDS)
        return INT64_MAX;
    if (timestamp_ms < INT64_MIN / MICROSECONDS)
        return INT64_MIN;
    return timestamp_ms * MICROSECONDS;
}

static const char *walk_record(Columns *self, Cursor *cursor, const Batch *batch, int32_t *previous)
{
    int32_t size, delta;
    int64_t timestamp_delta, timestamp;
    const char *wrong = read_int32(cursor, &size);
    if (wrong != NULL)
        return wrong;
    if (size < 1 || size > cursor->end - cursor->at)
        return "a record claims more bytes than there are";
    Cursor record = {cursor->at + 1, cursor->at + size}; /* past the attributes of a record, unused so far */
    cursor->at += size;
    if ((wrong = read_varint(&record, 64, &timestamp_delta)) != NULL || (wrong = read_int32(&record, &delta)) != NULL)
        return wrong;
    if (delta <= *previous || delta > batch->last_delta)
        return "an offset delta is out of order";
    *previous = delta;
    if (batch->append_time)
        timestamp = batch->max_timestamp;
    else if (__builtin_add_overflow((int64_t)batch->base_timestamp, timestamp_delta, &timestamp))
        return "a timestamp is longer than 64 bits";
    Part key, value;
    if ((wrong = read_part(&record, &key)) != NULL || (wrong = read_part(&record, &value)) != NULL)
        return wrong;
    int64_t offset = batch->base_offset + delta;
    int keep = offset >= batch->first && offset < batch->stop;
    if ((wrong = walk_headers(self, &record, keep && self->with_headers)) != NULL)
        return wrong;
    if (record.at != record.end)
        return "a record holds less than its size";
    if (!keep)
        return NULL;
    Py_ssize_t row = self->rows;
    if ((wrong = binary_put(&self->key, row, key, self->data_max)) != NULL)
        return wrong;
    if ((wrong = binary_put(&self->value, row, value, self->data_max)) != NULL)
        return wrong;
    put64(self->offset.at, row, offset);
    put64(self->timestamp.at, row, microseconds(timestamp));
    put32(self->kind.at, row, batch->append_time);
    put32(self->epoch.at, row, batch->epoch);
    self->rows++;
    return NULL;
}

static int hold_rows(Columns *self, Py_ssize_t rows)
{
    Py_ssize_t offsets = 4 * (rows + 1), bits = rows / 8 + 1;
    int enough = block_hold(&self->key.offsets, offsets) && block_hold(&self->key.valid, bits) &&
                 block_hold(&self->value.offsets, offsets) && block_hold(&self->value.valid, bits) &&
                 block_hold(&self->offset, 8 * rows) && block_hold(&self->timestamp, 8 * rows) &&
                 block_hold(&self->kind, 4 * rows) && block_hold(&self->epoch, 4 * rows);
    if (enough && self->with_headers)
        enough = block_hold(&self->list_offsets, offsets) && block_hold(&self->list_valid, bits);
    return enough;
}

static const char *walk(Columns *self, const uint8_t *at, Py_ssize_t size, const Batch *batch)
{
    int32_t previous = -1;
    const char *wrong;
    Cursor cursor = {at, at + size};
    if (batch->count > size / RECORD_BYTES_MIN)
        return RUNS_PAST; /* before anything is held for so many */
    if (batch->count > INT32_MAX / 8 - self->rows)
        return NO_ROOM;
    if (batch->count > 0 && !hold_rows(self, self->rows + batch->count))
        return NO_MEMORY;
    for (int index = 0; index < batch->count; index++)
        if ((wrong = walk_record(self, &cursor, batch, &previous)) != NULL)
            return wrong;
    return cursor.at == cursor.end ? NULL : "bytes follow the last record";
}

/* All of a batch's records or none: what was there before stays as it was. */
static const char *walk_or_undo(Columns *self, const uint8_t *at, Py_ssize_t size, const Batch *batch)
{
    Py_ssize_t rows = self->rows, items = self->items, list_nulls = self->list_nulls;
    Binary *columns[] = {&self->key, &self->value, &self->name, &self->header};
    Py_ssize_t used[4], nulls[4];
    for (int index = 0; index < 4; index++) {
        used[index] = columns[index]->data.used;
        nulls[index] = columns[index]->nulls;
    }
    const char *wrong = walk(self, at, size, batch);
    if (wrong == NULL)
        return NULL;
    self->rows = rows;
    self->items = items;
    self->list_nulls = list_nulls;
    for (int index = 0; index < 4; index++) {
        columns[index]->data.used = used[index];
        columns[index]->nulls = nulls[index];
    }
    return wrong;
}

/* ---- what is handed over */

/* A block's memory with nothing but a way to look at it, which is all that Arrow asks for. */
typedef struct {
    PyObject_HEAD
    char *at;
    Py_ssize_t size;
} Memory;

static int memory_view(Memory *self, Py_buffer *buffer, int flags)
{
    return PyBuffer_FillInfo(buffer, (PyObject *)self, self->at, self->size, 1, flags);
}

static void memory_dealloc(Memory *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_RawFree(self->at);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyType_Slot memory_slots[] = {
    {Py_bf_getbuffer, memory_view},
    {Py_tp_dealloc, memory_dealloc},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    "penstock.pipeline._columns.Memory",
    sizeof(Memory),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    memory_slots,
};

/* ---- Columns, for Python */

static int columns_init(Columns *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"headers", "data_max", NULL};
    if (self->data_max != 0) {
        PyErr_SetString(PyExc_TypeError, "columns are made once");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "pn", names, &self->with_headers, &self->data_max))
        return -1;
    if (self->data_max < 1 || self->data_max > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "offsets have 32 bits");
        return -1;
    }
    return 0;
}

static PyObject *columns_append(Columns *self, PyObject *args)
{
    Py_buffer data;
    Batch batch;
    if (!PyArg_ParseTuple(args, "y*iLiLLpiLL", &data, &batch.count, &batch.base_offset, &batch.last_delta,
                          &batch.base_timestamp, &batch.max_timestamp, &batch.append_time, &batch.epoch, &batch.first,
                          &batch.stop))
        return NULL;
    const char *wrong;
    if (batch.base_offset < 0 || (batch.last_delta > 0 && batch.base_offset > INT64_MAX - batch.last_delta))
        wrong = "an offset is longer than 63 bits";
    else
        wrong = walk_or_undo(self, data.buf, data.len, &batch);
    PyBuffer_Release(&data);
    if (wrong == NULL)
        Py_RETURN_TRUE;
    if (wrong == NO_ROOM)
        Py_RETURN_FALSE;
    if (wrong != NO_MEMORY)
        PyErr_SetString(PyExc_ValueError, wrong);
    return NULL;
}

/* Hands over what was written, and starts again. */
static PyObject *take_block(PyTypeObject *type, Block *block, Py_ssize_t used)
{
    if (block->at == NULL)
        return PyBytes_FromStringAndSize(NULL, 0);
    Memory *memory = PyObject_New(Memory, type);
    if (memory == NULL)
        return NULL;
    memory->at = block->at;
    memory->size = used;
    block->at = NULL;
    block_clear(block);
    Py_ssize_t usual = used + used / 8; /* the next one may need a little more */
    block->usual = usual < USUAL_BYTES_MAX ? usual : USUAL_BYTES_MAX;
    return (PyObject *)memory;
}

/* Bits of rows that were undone are taken off. */
static PyObject *take_bits(PyTypeObject *type, Block *bits, Py_ssize_t count)
{
    if (bits->at != NULL && (count & 7) != 0)
        bits->at[count >> 3] &= (char)((1 << (count & 7)) - 1);
    return take_block(type, bits, (count + 7) / 8);
}

/* With where the last row ends. */
static PyObject *take_offsets(PyTypeObject *type, Block *offsets, Py_ssize_t count, Py_ssize_t end)
{
    if (!block_hold(offsets, 4 * (count + 1)))
        return NULL;
    put32(offsets->at, count, (int32_t)end);
    return take_block(type, offsets, 4 * (count + 1));
}

static PyObject *take_binary(PyTypeObject *type, Binary *column, Py_ssize_t count)
{
    Py_ssize_t nulls = column->nulls, used = column->data.used;
    column->nulls = 0;
    PyObject *valid = take_bits(type, &column->valid, count);
    PyObject *offsets = take_offsets(type, &column->offsets, count, used);
    PyObject *data = take_block(type, &column->data, used);
    return Py_BuildValue("nNNN", nulls, valid, offsets, data); /* a NULL makes it NULL, and frees the others */
}

static PyObject *take_headers(PyTypeObject *type, Columns *self, Py_ssize_t rows)
{
    Py_ssize_t items = self->items, nulls = self->list_nulls;
    self->items = self->list_nulls = 0;
    block_clear(&self->name.valid);
    PyObject *valid = take_bits(type, &self->list_valid, rows);
    PyObject *offsets = take_offsets(type, &self->list_offsets, rows, items);
    PyObject *names = take_binary(type, &self->name, items);
    PyObject *values = take_binary(type, &self->header, items);
    return Py_BuildValue("nNNnNN", nulls, valid, offsets, items, names, values);
}

static PyObject *columns_finish(Columns *self, PyObject *Py_UNUSED(nothing))
{
    PyTypeObject *type = ((State *)PyType_GetModuleState(Py_TYPE(self)))->memory;
    Py_ssize_t rows = self->rows;
    self->rows = 0;
    PyObject *key = take_binary(type, &self->key, rows), *value = take_binary(type, &self->value, rows);
    PyObject *offset = take_block(type, &self->offset, 8 * rows);
    PyObject *timestamp = take_block(type, &self->timestamp, 8 * rows);
    PyObject *kind = take_block(type, &self->kind, 4 * rows), *epoch = take_block(type, &self->epoch, 4 * rows);
    PyObject *headers = self->with_headers ? take_headers(type, self, rows) : Py_NewRef(Py_None);
    return Py_BuildValue("nNNNNNNN", rows, key, value, offset, timestamp, kind, epoch, headers);
}

static PyObject *columns_rows(Columns *self, void *Py_UNUSED(closure)) { return PyLong_FromSsize_t(self->rows); }

static PyObject *columns_data_bytes(Columns *self, void *Py_UNUSED(closure))
{
    Py_ssize_t headers = self->name.data.used + self->header.data.used;
    return PyLong_FromSsize_t(self->key.data.used + self->value.data.used + headers);
}

static void columns_dealloc(Columns *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Block *blocks[] = {
        &self->key.valid,  &self->key.offsets,    &self->key.data,     &self->value.valid,   &self->value.offsets,
        &self->value.data, &self->name.offsets,   &self->name.data,    &self->header.valid,  &self->header.offsets,
        &self->header.data, &self->offset,        &self->timestamp,    &self->kind,          &self->epoch,
        &self->list_valid, &self->list_offsets,
    };
    for (size_t index = 0; index < sizeof blocks / sizeof *blocks; index++)
        block_clear(blocks[index]);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef columns_methods[] = {
    {"append", (PyCFunction)columns_append, METH_VARARGS, "The records of a batch from `first` up to `stop`."},
    {"finish", (PyCFunction)columns_finish, METH_NOARGS, "Hands over the buffers of all rows, and starts again."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef columns_properties[] = {
    {"rows", (getter)columns_rows, NULL, NULL, NULL},
    {"data_bytes", (getter)columns_data_bytes, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot columns_slots[] = {
    {Py_tp_doc, "Rows as the buffers of Arrow's columns."},
    {Py_tp_init, columns_init},
    {Py_tp_dealloc, columns_dealloc},
    {Py_tp_methods, columns_methods},
    {Py_tp_getset, columns_properties},
    {0, NULL},
};

static PyType_Spec columns_spec = {
    "penstock.pipeline._columns.Columns", sizeof(Columns), 0, Py_TPFLAGS_DEFAULT, columns_slots,
};

/* ---- the module */

static int module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->memory = (PyTypeObject *)PyType_FromModuleAndSpec(module, &memory_spec, NULL);
    state->partitions = (PyTypeObject *)PyType_FromModuleAndSpec(module, &partitions_spec, NULL);
    PyObject *columns = PyType_FromModuleAndSpec(module, &columns_spec, NULL);
    int failed = state->memory == NULL || state->partitions == NULL || columns == NULL ||
                 PyModule_AddType(module, (PyTypeObject *)columns) < 0 ||
                 PyModule_AddType(module, state->partitions) < 0;
    Py_XDECREF(columns);
    return failed ? -1 : 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->memory);
    Py_VISIT(state->partitions);
    return 0;
}

static int module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->memory);
    Py_CLEAR(state->partitions);
    return 0;
}

static void module_free(void *module) { module_clear(module); }

static PyMethodDef module_methods[] = {
    {"encode", encode, METH_VARARGS, "Rows of Arrow's columns to records of their partitions."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_columns",
    .m_doc = "Record batches to Arrow's buffers and back.",
    .m_size = sizeof(State),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__columns(void) { return PyModuleDef_Init(&module_definition); }
