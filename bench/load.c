// load: a load generator on raw sockets, so that it is the broker that is measured and not a client library.
//
//   load produce   as many record batches as the broker takes
//   load fetch     reads from the beginning over and over, or with anywhere=1 from anywhere
//   load latency   from handing a record to a socket until another socket has it, at a steady rate
//   load transact  a transaction after the other on each connection, of one batch each
//   load idle      holds connections open until its standard input ends
//
// One thread, one epoll. It prints one line of JSON, or one line of what went wrong and exits with 1.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "histogram.h"
#include "wire.h"

enum { EVENTS = 512, NAME_MAX_BYTES = 249, REQUEST_ROOM = 512, ANSWER_WAIT_S = 20, BATCHES_WITH_KEYS = 64 };
enum { COORDINATOR_LOAD_IN_PROGRESS = 14, COORDINATOR_NOT_AVAILABLE = 15, NOT_COORDINATOR = 16, CONCURRENT_TRANSACTIONS = 51 };

static int port = 9092, topics = 1, partitions = 1, batch_bytes = 1, record_bytes = 1024, connections = 1,
           in_flight = 1, acks = -1, fetch_bytes = 1 << 20, rate = 1000, idempotent, anywhere, points = 256, committed, abort_every;
static int64_t keys, requests_max = INT64_MAX;
static double seconds = 2, bytes_max = 1e18;
static const char *topic = "load";
static int poller;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---- connections

typedef struct {
  int fd, outstanding, request_size, sent, received, capacity, target;
  uint8_t *request, *answer, *batch;
  uint8_t *topic_digits, *partition_place;
  double *started;  // a ring: when each request that has no answer yet was begun
  int64_t begun, answered, offset, producer_id;
  int16_t producer_epoch;
  int32_t *sequences;
} Connection;

static int dial(void) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htobe16((uint16_t)port)};
  address.sin_addr.s_addr = htobe32(INADDR_LOOPBACK);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect to port %d: %s", port, strerror(errno));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}
static void watch(int fd, uint32_t events, void *who) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  struct epoll_event event = {.events = events, .data.ptr = who};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) fail("epoll: %s", strerror(errno));
}
// One request and its whole answer, before the load begins.
static Reader ask(int fd, const uint8_t *request, int size, uint8_t *answer, int capacity) {
  if (write(fd, request, (size_t)size) != size) fail("write: %s", strerror(errno));
  int got = 0;
  while (got < 4 || got < peek32(answer) + 4) {
    ssize_t n = read(fd, answer + got, (size_t)(capacity - got));
    if (n <= 0) fail("the broker closed the connection");
    got += (int)n;
  }
  return (Reader){answer + 8, answer + got};
}
// Returns the bytes read, or 0 when there are none now.
static int receive(int fd, uint8_t *into, int room) {
  ssize_t n = read(fd, into, (size_t)room);
  if (n == 0) fail("the broker closed the connection");
  if (n < 0 && errno != EAGAIN) fail("read: %s", strerror(errno));
  return n < 0 ? 0 : (int)n;
}
static int whole(const uint8_t *frame, int received) { return received >= 4 && received >= peek32(frame) + 4; }

static const char *topic_name(int target) {
  static char name[NAME_MAX_BYTES + 8];
  if (topics == 1) return topic;
  snprintf(name, sizeof name, "%s-%05d", topic, target / partitions);
  return name;
}

static int64_t end_offset(int fd, int target) {
  uint8_t request[REQUEST_ROOM], answer[4096];
  Writer w = begin_request(request, LIST_OFFSETS, LIST_OFFSETS_VERSION);
  put32(&w, -1); put8(&w, 0);
  put_varint(&w, 2); put_string(&w, topic_name(target)); put_varint(&w, 2);
  put32(&w, target % partitions); put32(&w, -1); put64(&w, -1);
  put_tags(&w, 3);
  Reader r = ask(fd, request, end_request(&w, request), answer, sizeof answer);
  get_varint(&r); get32(&r);
  enter_partition(&r);
  int error = get16(&r);
  if (error) fail("ListOffsets: error %d", error);
  get64(&r);
  return get64(&r);
}

static int is_passing(int error) {
  return error == COORDINATOR_LOAD_IN_PROGRESS || error == COORDINATOR_NOT_AVAILABLE || error == NOT_COORDINATOR ||
         error == CONCURRENT_TRANSACTIONS;
}

static void put_name(Writer *w, const char *name) {
  if (name) put_string(w, name); else put_varint(w, 0);
}

// Without a transactional id the producer is only idempotent.
static void become_producer(Connection *c, const char *transactional_id) {
  uint8_t request[REQUEST_ROOM], answer[4096];
  Writer w = begin_request(request, INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION);
  put_name(&w, transactional_id); put32(&w, 60000); put_tags(&w, 1);
  int size = end_request(&w, request), error = COORDINATOR_LOAD_IN_PROGRESS;
  Reader r;
  for (int tries = 0; tries < 100 && is_passing(error); tries++) {
    if (tries) usleep(100000);
    r = ask(c->fd, request, size, answer, sizeof answer);
    get_varint(&r); get32(&r);
    error = get16(&r);
  }
  if (error) fail("InitProducerId: error %d", error);
  c->producer_id = get64(&r);
  c->producer_epoch = get16(&r);
  c->sequences = calloc((size_t)topics * (size_t)partitions, sizeof *c->sequences);
}

// ---- produce

static void write_produce(Connection *c, const Batch *batch, const char *transactional_id) {
  c->request = malloc((size_t)batch->size + REQUEST_ROOM);
  Writer w = begin_request(c->request, PRODUCE, transactional_id ? PRODUCE_VERSION_IN_TRANSACTION : PRODUCE_VERSION);
  put_name(&w, transactional_id); put16(&w, acks); put32(&w, 30000);
  put_varint(&w, 2); put_string(&w, topic_name(0));
  c->topic_digits = w.at - 5;
  put_varint(&w, 2);
  c->partition_place = w.at;
  put32(&w, 0);
  put_varint(&w, (uint64_t)batch->size + 1);
  c->batch = w.at;
  put_bytes(&w, batch->bytes, (size_t)batch->size);
  put_tags(&w, 3);
  c->request_size = end_request(&w, c->request);
}

static void aim(Connection *c, const Batch *batches) {
  int targets = topics * partitions;
  if (anywhere) c->target = (int)(random() % targets);
  else if (connections < targets) c->target = (c->target + connections) % targets;
  Writer partition = {c->partition_place};
  put32(&partition, c->target % partitions);
  if (topics > 1)
    for (int digit = 4, left = c->target / partitions; digit >= 0; digit--, left /= 10) c->topic_digits[digit] = (uint8_t)('0' + left % 10);
  const Batch *batch = keys ? &batches[c->begun % BATCHES_WITH_KEYS] : batches;
  if (keys) memcpy(c->batch, batch->bytes, (size_t)batch->size);
  if (idempotent) {
    set_producer(c->batch, c->producer_id, c->producer_epoch, c->sequences[c->target]);
    c->sequences[c->target] += batch->records;
    seal_batch(batch, c->batch);
  }
}

static int produce_error(const uint8_t *frame) {
  Reader r = {frame + 8, frame + 4 + peek32(frame)};
  get_varint(&r);
  enter_partition(&r);
  return get16(&r);
}

static int64_t requests_begun, requests_done;
static int stopping;

static void take_acknowledgements(Connection *c, Histogram *latencies) {
  for (int room = c->capacity, got = room; got == room;) {  // a short read leaves an empty socket behind
    room = c->capacity - c->received;
    got = receive(c->fd, c->answer + c->received, room);
    c->received += got;
    int at = 0;
    double t = now();
    for (; whole(c->answer + at, c->received - at); at += peek32(c->answer + at) + 4) {
      int error = produce_error(c->answer + at);
      if (error) fail("Produce: error %d", error);
      record(latencies, t - c->started[c->answered++ % in_flight]);
      c->outstanding--;
      requests_done++;
    }
    memmove(c->answer, c->answer + at, (size_t)(c->received - at));
    c->received -= at;
  }
}

static void send_batches(Connection *c, const Batch *batches) {
  for (;;) {
    if (c->sent == c->request_size) {
      if (stopping || c->outstanding >= in_flight || requests_begun >= requests_max) return;
      aim(c, batches);
      c->sent = 0;
      c->started[c->begun++ % in_flight] = now();
      c->outstanding++;
      requests_begun++;
    }
    ssize_t n = write(c->fd, c->request + c->sent, (size_t)(c->request_size - c->sent));
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) fail("write: %s", strerror(errno));
    c->sent += (int)n;
    if (c->sent == c->request_size && acks == 0) c->outstanding--, requests_done++;
  }
}

static int all_sent(const Connection *all) {
  for (int i = 0; i < connections; i++)
    if (all[i].sent < all[i].request_size) return 0;
  return 1;
}

static void produce(void) {
  static Histogram latencies;
  struct timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  int variety = keys ? BATCHES_WITH_KEYS : 1;
  Batch batches[BATCHES_WITH_KEYS];
  for (int i = 0; i < variety; i++) batches[i] = make_batch(batch_bytes, record_bytes, keys, 0, wall.tv_sec * 1000);
  Connection *all = calloc((size_t)connections, sizeof *all);
  for (int i = 0; i < connections; i++) {
    Connection *c = &all[i];
    c->fd = dial();
    if (idempotent) become_producer(c, NULL);
    write_produce(c, batches, NULL);
    c->sent = c->request_size;
    c->target = i % (topics * partitions);
    c->answer = malloc((size_t)(c->capacity = 65536));
    c->started = calloc((size_t)in_flight, sizeof *c->started);
    watch(c->fd, EPOLLIN | EPOLLOUT | EPOLLET, c);
  }
  int64_t most = (int64_t)(bytes_max / batches[0].size) + 1;
  if (most < requests_max) requests_max = most;
  struct epoll_event events[EVENTS];
  double began = now();
  for (;;) {
    int n = epoll_wait(poller, events, EVENTS, 50);
    for (int i = 0; i < n; i++) {
      Connection *c = events[i].data.ptr;
      if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) take_acknowledgements(c, &latencies);
      send_batches(c, batches);
    }
    double passed = now() - began;
    if (passed > seconds || requests_begun >= requests_max) stopping = 1;
    if (stopping && requests_done == requests_begun && all_sent(all)) break;
    if (passed > seconds + ANSWER_WAIT_S) fail("no answer for %d s", ANSWER_WAIT_S);
  }
  double passed = now() - began, bytes = (double)requests_done * batches[0].size;
  printf("{\"seconds\": %.3f, \"requests\": %ld, \"records\": %ld, \"mb_s\": %.2f, \"requests_s\": %.1f, \"records_s\": %.1f", passed,
         (long)requests_done, (long)(requests_done * batches[0].records), bytes / passed / 1e6, (double)requests_done / passed,
         (double)(requests_done * batches[0].records) / passed);
  print_latencies("", &latencies);
  puts("}");
}

// ---- fetch

static int write_fetch(uint8_t *request, int target, int64_t offset, int wait_ms, int bytes) {
  Writer w = begin_request(request, FETCH, FETCH_VERSION);
  put32(&w, -1); put32(&w, wait_ms); put32(&w, 1); put32(&w, bytes); put8(&w, committed);
  put32(&w, 0); put32(&w, -1);  // no session
  put_varint(&w, 2); put_string(&w, topic_name(target)); put_varint(&w, 2);
  put32(&w, target % partitions); put32(&w, -1); put64(&w, offset); put32(&w, -1); put64(&w, -1); put32(&w, bytes);
  put_tags(&w, 2);
  put_varint(&w, 1); put_string(&w, ""); put_tags(&w, 1);
  return end_request(&w, request);
}

static Reader fetched_records(const uint8_t *frame) {
  Reader r = {frame + 8, frame + 4 + peek32(frame)};
  get_varint(&r); get32(&r);
  int error = get16(&r);
  if (error) fail("Fetch: error %d", error);
  get32(&r);
  enter_partition(&r);
  error = get16(&r);
  if (error) fail("Fetch: partition error %d", error);
  get64(&r); get64(&r); get64(&r);
  for (int64_t aborted = get_count(&r); aborted > 0; aborted--) get64(&r), get64(&r), get_varint(&r);
  get32(&r);
  int64_t size = get_count(&r);
  const uint8_t *at = take(&r, size < 0 ? 0 : size);
  return (Reader){at, at + (size < 0 ? 0 : size)};
}

// Steps over the next whole batch; returns 0 at the end, where the last one may have been cut short.
static int next_batch(Reader *r, int64_t *base, int64_t *next) {
  if (r->end - r->at < BATCH_HEAD || r->end - r->at < peek32(r->at + AT_LENGTH) + 12) return 0;
  *base = peek64(r->at);
  *next = *base + peek32(r->at + AT_LAST_DELTA) + 1;
  take(r, peek32(r->at + AT_LENGTH) + 12);
  return 1;
}

static void ask_for_more(Connection *c, int wait_ms) {
  c->request_size = write_fetch(c->request, c->target, c->offset, wait_ms, fetch_bytes);
  *c->started = now();
  if (write(c->fd, c->request, (size_t)c->request_size) != c->request_size) fail("a request did not fit into the socket");
}

// Where the next fetch starts: a batch may begin before the offset asked for, but none may be missing.
static int64_t read_batches(Connection *c, const uint8_t *frame, int64_t *bytes, int64_t *records) {
  Reader r = fetched_records(frame);
  int64_t base, next = c->offset, expected = -1;
  *bytes = r.end - r.at;
  for (*records = 0; next_batch(&r, &base, &next); expected = next) {
    if (base > c->offset && expected < 0) fail("Fetch: asked for %ld and got %ld", (long)c->offset, (long)base);
    if (expected >= 0 && base != expected) fail("Fetch: a gap at offset %ld", (long)expected);
    *records += next - base;
  }
  return next;
}

static void fetch(void) {
  static Histogram latencies;
  struct epoll_event events[EVENTS];
  Connection *all = calloc((size_t)connections, sizeof *all);
  int targets = topics * partitions;
  int64_t bytes = 0, records = 0, got_bytes, got_records, *places = NULL;
  for (int i = 0; i < connections; i++) {
    Connection *c = &all[i];
    c->fd = dial();
    c->target = i % targets;
    c->request = malloc(REQUEST_ROOM);
    c->answer = malloc((size_t)(c->capacity = fetch_bytes * 2 + (4 << 20)));
    c->started = calloc(1, sizeof *c->started);
    if (anywhere && targets == 1 && !places) {
      // The same few places over and over: then they are in memory, and it is the broker's search that is measured.
      int64_t end = end_offset(c->fd, c->target);
      if (end < 1) fail("there is nothing to fetch");
      places = malloc((size_t)points * sizeof *places);
      for (int k = 0; k < points; k++) places[k] = (int64_t)((double)random() / ((double)RAND_MAX + 1) * (double)end);
    }
  }
  for (int i = 0; i < connections; i++) {
    if (places) all[i].offset = places[i % points];
    watch(all[i].fd, EPOLLIN, &all[i]);
    ask_for_more(&all[i], 100);
  }
  double began = now();
  while (now() - began < seconds && requests_done < requests_max) {
    int n = epoll_wait(poller, events, EVENTS, 100);
    for (int i = 0; i < n; i++) {
      Connection *c = events[i].data.ptr;
      c->received += receive(c->fd, c->answer + c->received, c->capacity - c->received);
      if (!whole(c->answer, c->received)) continue;
      record(&latencies, now() - *c->started);
      int64_t next = read_batches(c, c->answer, &got_bytes, &got_records);
      if (next == c->offset && requests_max < INT64_MAX) fail("there is nothing to fetch");
      bytes += got_bytes, records += got_records, requests_done++;
      c->received = 0;
      c->offset = places ? places[random() % points] : got_bytes ? next : 0;
      if (anywhere && targets > 1) c->target = (int)(random() % targets), c->offset = 0;
      ask_for_more(c, 0);
    }
  }
  double passed = now() - began;
  printf("{\"seconds\": %.3f, \"requests\": %ld, \"records\": %ld, \"mb_s\": %.2f, \"requests_s\": %.1f, \"records_s\": %.1f", passed,
         (long)requests_done, (long)records, (double)bytes / passed / 1e6, (double)requests_done / passed, (double)records / passed);
  print_latencies("", &latencies);
  puts("}");
}

// ---- latency

static void latency(void) {
  static Histogram arrived, acknowledged;
  struct timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  Batch batch = make_batch(1, record_bytes, keys, 0, wall.tv_sec * 1000);
  Connection producer = {.fd = dial(), .answer = malloc(65536), .capacity = 65536}, consumer = {.fd = dial()};
  consumer.answer = malloc((size_t)(consumer.capacity = 8 << 20));
  consumer.request = malloc(REQUEST_ROOM);
  consumer.started = calloc(1, sizeof *consumer.started);
  write_produce(&producer, &batch, NULL);
  int64_t first = consumer.offset = end_offset(consumer.fd, 0), total = (int64_t)(seconds * rate), sent = 0, acks_seen = 0, seen = 0;
  double *started = calloc((size_t)total + 1, sizeof *started);
  int clock = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct timespec period = {.tv_sec = rate == 1, .tv_nsec = 1000000000L / rate % 1000000000L};
  struct itimerspec ticking = {period, period};
  timerfd_settime(clock, 0, &ticking, NULL);
  watch(producer.fd, EPOLLIN, &producer);
  watch(consumer.fd, EPOLLIN, &consumer);
  watch(clock, EPOLLIN, &clock);
  ask_for_more(&consumer, 500);
  struct epoll_event events[8];
  double began = now();
  while (seen < total) {
    int n = epoll_wait(poller, events, 8, 1000);
    if (now() - began > seconds + ANSWER_WAIT_S) fail("%ld of %ld records arrived", (long)seen, (long)total);
    for (int i = 0; i < n; i++) {
      if (events[i].data.ptr == &clock) {
        uint64_t ticks = 0;
        if (read(clock, &ticks, sizeof ticks) != sizeof ticks) continue;
        for (; ticks && sent < total; ticks--) {
          started[sent++] = now();
          ssize_t n = write(producer.fd, producer.request, (size_t)producer.request_size);
          if (n != producer.request_size) fail("the broker reads too slowly");
        }
      } else if (events[i].data.ptr == &producer) {
        producer.received += receive(producer.fd, producer.answer + producer.received, producer.capacity - producer.received);
        int at = 0;
        for (; whole(producer.answer + at, producer.received - at); at += peek32(producer.answer + at) + 4) {
          if (produce_error(producer.answer + at)) fail("Produce: error %d", produce_error(producer.answer + at));
          record(&acknowledged, now() - started[acks_seen++]);
        }
        memmove(producer.answer, producer.answer + at, (size_t)(producer.received -= at));
      } else {
        consumer.received += receive(consumer.fd, consumer.answer + consumer.received, consumer.capacity - consumer.received);
        if (!whole(consumer.answer, consumer.received)) continue;
        double t = now();
        int64_t bytes, records;
        consumer.offset = read_batches(&consumer, consumer.answer, &bytes, &records);
        for (; seen < consumer.offset - first && seen < total; seen++) record(&arrived, t - started[seen]);
        consumer.received = 0;
        ask_for_more(&consumer, 500);
      }
    }
  }
  printf("{\"seconds\": %.3f, \"requests\": %ld, \"records\": %ld", now() - began, (long)total, (long)total);
  print_latencies("", &arrived);
  print_latencies("ack_", &acknowledged);
  puts("}");
}

#include "transact.h"

// ---- idle

static void idle(void) {
  uint8_t request[64], answer[65536];
  Writer w = begin_request(request, API_VERSIONS, 0);
  int size = end_request(&w, request);
  double began = now();
  for (int i = 0; i < connections; i++) {
    int fd = dial();
    ask(fd, request, size, answer, sizeof answer);
  }
  printf("{\"seconds\": %.3f, \"connections\": %d}\n", now() - began, connections);
  fflush(stdout);
  struct pollfd until = {.fd = 0, .events = POLLIN};
  poll(&until, 1, -1);
}

// ---- options

#define OPTIONS(X) \
  X(port, atoi) X(topics, atoi) X(partitions, atoi) X(batch_bytes, atoi) X(record_bytes, atoi) \
  X(connections, atoi) X(in_flight, atoi) X(acks, atoi) X(fetch_bytes, atoi) X(rate, atoi) X(idempotent, atoi) \
  X(anywhere, atoi) X(points, atoi) X(committed, atoi) X(abort_every, atoi) X(keys, atoll) X(requests_max, atoll) X(seconds, atof) X(bytes_max, atof) X(topic, )

static void set_option(const char *text) {
  const char *value = strchr(text, '=');
  if (!value) fail("%s: options look like name=value", text);
  size_t length = (size_t)(value++ - text);
#define SET(name, parse) if (length == strlen(#name) && !strncmp(text, #name, length)) { name = parse(value); return; }
  OPTIONS(SET)
  fail("%s: no such option", text);
}

int main(int argc, char **argv) {
  struct { const char *name; void (*run)(void); } modes[] = {{"produce", produce}, {"fetch", fetch}, {"latency", latency}, {"transact", transact}, {"idle", idle}};
  for (int i = 2; i < argc; i++) set_option(argv[i]);
  if (in_flight < 1 || connections < 1 || partitions < 1 || topics < 1 || rate < 1 || points < 1) fail("counts start at 1");
  if (strlen(topic) > NAME_MAX_BYTES) fail("the topic's name is too long");
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  poller = epoll_create1(EPOLL_CLOEXEC);
  for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof *modes; i++)
    if (!strcmp(argv[1], modes[i].name)) return modes[i].run(), 0;
  fail("produce, fetch, latency, transact or idle, then name=value …");
}
