// Kafka's bytes, as far as a load generator needs them: a writing cursor, a reading cursor that stops at the end of its
// frame, record batches and their checksum. All requests are of a flexible version, which is what clients send today.
#pragma once
#include <endian.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, FIND_COORDINATOR = 10, API_VERSIONS = 18, INIT_PRODUCER_ID = 22, END_TXN = 26,
  PRODUCE_VERSION = 9, FETCH_VERSION = 12, LIST_OFFSETS_VERSION = 6, FIND_COORDINATOR_VERSION = 4,
  INIT_PRODUCER_ID_VERSION = 2,
  // The first ones of transactions of version 2 (KIP-890): a batch begins its transaction, its end brings a new epoch.
  PRODUCE_VERSION_IN_TRANSACTION = 12, END_TXN_VERSION = 5,
};

#define fail(...) (fprintf(stderr, "load: " __VA_ARGS__), fputc('\n', stderr), exit(1))

// ---- writing

typedef struct { uint8_t *at; } Writer;

#define PUT(name, type, swap) \
  static inline void name(Writer *w, int64_t value) { type x = swap((type)value); memcpy(w->at, &x, sizeof x); w->at += sizeof x; }
static inline uint8_t same(uint8_t x) { return x; }
PUT(put8, uint8_t, same)
PUT(put16, uint16_t, htobe16)
PUT(put32, uint32_t, htobe32)
PUT(put64, uint64_t, htobe64)

static inline void put_varint(Writer *w, uint64_t x) {
  for (; x > 127; x >>= 7) *w->at++ = (uint8_t)(x | 128);
  *w->at++ = (uint8_t)x;
}
static inline uint64_t zigzag(int64_t x) { return ((uint64_t)x << 1) ^ (uint64_t)(x >> 63); }
static inline void put_signed(Writer *w, int64_t x) { put_varint(w, zigzag(x)); }
static inline void put_bytes(Writer *w, const void *bytes, size_t count) { memcpy(w->at, bytes, count); w->at += count; }
static inline void put_string(Writer *w, const char *s) { put_varint(w, strlen(s) + 1); put_bytes(w, s, strlen(s)); }
static inline void put_tags(Writer *w, int structs) { while (structs--) put8(w, 0); }

// A request starts with the place for its length, which `end_request` fills in.
static inline Writer begin_request(uint8_t *buffer, int api, int version) {
  Writer w = {buffer + 4};
  put16(&w, api); put16(&w, version); put32(&w, 1);
  put16(&w, 4); put_bytes(&w, "load", 4);
  if (version) put_tags(&w, 1);
  return w;
}
static inline int end_request(Writer *w, uint8_t *buffer) {
  Writer length = {buffer};
  put32(&length, w->at - buffer - 4);
  return (int)(w->at - buffer);
}

// ---- reading

typedef struct { const uint8_t *at, *end; } Reader;

static inline const uint8_t *take(Reader *r, int64_t count) {
  if (count < 0 || r->end - r->at < count) fail("a response is shorter than it says");
  const uint8_t *at = r->at;
  r->at += count;
  return at;
}
static inline int16_t get16(Reader *r) { uint16_t x; memcpy(&x, take(r, 2), 2); return (int16_t)be16toh(x); }
static inline int32_t get32(Reader *r) { uint32_t x; memcpy(&x, take(r, 4), 4); return (int32_t)be32toh(x); }
static inline int64_t get64(Reader *r) { uint64_t x; memcpy(&x, take(r, 8), 8); return (int64_t)be64toh(x); }
static inline int64_t get_varint(Reader *r) {
  uint64_t x = 0;
  for (int shift = 0; shift < 63; shift += 7) {
    uint8_t byte = *take(r, 1);
    x |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) break;
  }
  return (int64_t)x;
}
static inline int64_t get_count(Reader *r) { return get_varint(r) - 1; }  // -1: null
static inline void skip_string(Reader *r) { int64_t n = get_count(r); take(r, n < 0 ? 0 : n); }
static inline int32_t peek32(const uint8_t *at) { uint32_t x; memcpy(&x, at, 4); return (int32_t)be32toh(x); }
static inline int64_t peek64(const uint8_t *at) { uint64_t x; memcpy(&x, at, 8); return (int64_t)be64toh(x); }

// Up to the first partition of the first topic; every request here is about one of each.
static inline void enter_partition(Reader *r) {
  if (get_count(r) != 1) fail("an answer without the topic asked for");
  skip_string(r);
  if (get_count(r) != 1) fail("an answer without the partition asked for");
  get32(r);
}

// ---- CRC-32C

static inline uint32_t crc_raw(uint32_t crc, const uint8_t *at, size_t count) {
#if defined(__SSE4_2__)
  uint64_t wide = crc, x;
  for (; count >= 8; at += 8, count -= 8) { memcpy(&x, at, 8); wide = __builtin_ia32_crc32di(wide, x); }
  crc = (uint32_t)wide;
  while (count--) crc = __builtin_ia32_crc32qi(crc, *at++);
#else
  static uint32_t table[256];
  if (!table[1])
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t x = i;
      for (int bit = 0; bit < 8; bit++) x = x >> 1 ^ (x & 1 ? 0x82F63B78u : 0);
      table[i] = x;
    }
  while (count--) crc = crc >> 8 ^ table[(crc ^ *at++) & 255];
#endif
  return crc;
}

// ---- record batches (v2)
//
//   0 base offset   8 length  12 leader epoch  16 magic  17 CRC of all that follows  21 attributes  23 last offset delta
//  27 first and 35 last timestamp  43 producer id  51 producer epoch  53 base sequence  57 count of records  61 records

enum { BATCH_HEAD = 61, AT_LENGTH = 8, AT_CRC = 17, AT_ATTRIBUTES = 21, AT_LAST_DELTA = 23, AT_PRODUCER = 43, AT_COUNT = 57 };
enum { TRANSACTIONAL = 16 };

// An idempotent producer changes the head of every batch it sends. The checksum is linear, so that what the records add
// to it is worked out once: `advance[i]` is what bit i of the head's checksum becomes at the end of the records.
typedef struct { uint8_t *bytes; int size, records; uint32_t tail, advance[32]; } Batch;

static inline void seal_batch(const Batch *batch, uint8_t *bytes) {
  uint32_t head = crc_raw(~0u, bytes + AT_ATTRIBUTES, BATCH_HEAD - AT_ATTRIBUTES), crc = batch->tail;
  for (int bit = 0; bit < 32; bit++)
    if (head >> bit & 1) crc ^= batch->advance[bit];
  Writer w = {bytes + AT_CRC};
  put32(&w, ~crc);
}

static inline void set_producer(uint8_t *bytes, int64_t producer_id, int16_t epoch, int32_t sequence) {
  Writer w = {bytes + AT_PRODUCER};
  put64(&w, producer_id); put16(&w, epoch); put32(&w, sequence);
}

// As many records of `record_bytes` as fit into `batch_bytes`, and at least one. With `keys`, each has one of so many.
static inline Batch make_batch(int batch_bytes, int record_bytes, int64_t keys, int attributes, int64_t now_ms) {
  Batch batch = {.bytes = malloc((size_t)batch_bytes + (size_t)record_bytes + 256)};
  Writer w = {batch.bytes};
  put64(&w, 0); put32(&w, 0); put32(&w, -1); put8(&w, 2); put32(&w, 0); put16(&w, attributes); put32(&w, 0);
  put64(&w, now_ms); put64(&w, now_ms); put64(&w, -1); put16(&w, -1); put32(&w, -1); put32(&w, 0);
  uint8_t *value = malloc((size_t)record_bytes + 1), body[64];
  for (int i = 0; i < record_bytes; i++) value[i] = (uint8_t)(random() >> 7);
  do {
    Writer b = {body};  // attributes, timestamp delta, offset delta, key; then the value and no headers
    put8(&b, 0); put_signed(&b, 0); put_signed(&b, batch.records);
    put_signed(&b, keys ? 8 : -1);
    if (keys) put64(&b, random() % keys);
    put_signed(&b, record_bytes);
    put_signed(&w, b.at - body + record_bytes + 1);
    put_bytes(&w, body, (size_t)(b.at - body)); put_bytes(&w, value, (size_t)record_bytes);
    put8(&w, 0);
    batch.records++;
  } while (w.at - batch.bytes + record_bytes + 24 <= batch_bytes);
  free(value);
  batch.size = (int)(w.at - batch.bytes);
  Writer length = {batch.bytes + AT_LENGTH}, last = {batch.bytes + AT_LAST_DELTA}, count = {batch.bytes + AT_COUNT};
  put32(&length, batch.size - 12); put32(&last, batch.records - 1); put32(&count, batch.records);
  size_t rest = (size_t)batch.size - BATCH_HEAD;
  uint8_t *zeros = calloc(1, rest);
  batch.tail = crc_raw(0, batch.bytes + BATCH_HEAD, rest);
  for (int bit = 0; bit < 32; bit++) batch.advance[bit] = crc_raw(1u << bit, zeros, rest);
  free(zeros);
  seal_batch(&batch, batch.bytes);
  return batch;
}
