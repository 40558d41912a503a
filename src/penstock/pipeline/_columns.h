/* What both directions use: memory that grows, and numbers in it. All numbers of Arrow are in this machine's order. */
#ifndef PENSTOCK_COLUMNS_H
#define PENSTOCK_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <assert.h>
#include <stdint.h>
#include <string.h>

#define NO_TIMESTAMP (-1)          /* of a record, or a batch, that has none */
#define MICROSECONDS 1000          /* of a millisecond */
#define USUAL_BYTES_MAX (64 << 20) /* what a new block may take for the sake of what the last one grew to */

/* Memory for one column. It grows where it is if it can, and is handed over with what is free at its end: malloc learns
 * from what is freed which sizes come again, and memory that is new to the process costs more than the work on it. */
typedef struct {
    char *at;
    Py_ssize_t used; /* kept for blocks of bytes alone: of numbers and bits, rows say how many there are */
    Py_ssize_t room;
    Py_ssize_t usual; /* what the last one came to: the next one starts with that much */
} Block;

/* Room for so many bytes in all. False without memory; then what was there is there still. */
static inline int block_hold(Block *block, Py_ssize_t total)
{
    if (block->room >= total)
        return 1;
    Py_ssize_t room = block->at == NULL ? block->usual : 2 * block->room;
    if (room < total)
        room = total;
    char *at = PyMem_RawRealloc(block->at, (size_t)room);
    if (at == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    block->at = at;
    block->room = room;
    return 1;
}

static inline void block_clear(Block *block)
{
    PyMem_RawFree(block->at);
    block->at = NULL;
    block->used = block->room = 0;
}

static inline void put32(char *at, Py_ssize_t index, int32_t value) { memcpy(at + 4 * index, &value, 4); }
static inline void put64(char *at, Py_ssize_t index, int64_t value) { memcpy(at + 8 * index, &value, 8); }

static inline int32_t get32(const char *at, Py_ssize_t index)
{
    int32_t value;
    memcpy(&value, at + 4 * index, 4);
    return value;
}

static inline int64_t get64(const char *at, Py_ssize_t index)
{
    int64_t value;
    memcpy(&value, at + 8 * index, 8);
    return value;
}

static inline void put_bit(char *at, Py_ssize_t index, int bit)
{
    uint8_t *byte = (uint8_t *)at + (index >> 3);
    if ((index & 7) == 0)
        *byte = (uint8_t)bit;
    else
        *byte = (uint8_t)((*byte & ~(1u << (index & 7))) | ((unsigned)bit << (index & 7)));
}

typedef struct {
    const uint8_t *at;
    int32_t size; /* -1: null */
} Part;

typedef struct {
    PyTypeObject *memory, *partitions;
} State;

/* The other direction, of _records.c. */
extern PyType_Spec partitions_spec;
PyObject *encode(PyObject *module, PyObject *args);

#endif
