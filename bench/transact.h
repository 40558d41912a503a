// The load of transactions: each connection is a producer that begins one, writes a batch, waits for its acknowledgement
// as a client does, commits, and begins the next when the commit is answered. Part of load.c.
//
// A broker may say that the markers of the last transaction are still on their way. Clients then wait and try again:
// this one after a millisecond, sooner than any of them would.
#pragma once

#define RETRY_AFTER_S 0.001

typedef enum { WRITING, ENDING } Phase;
typedef struct {
  Connection connection;
  Phase phase;
  char id[64];
  double begun, asked, retry_at;
  int64_t count;
} Transactor;

static Histogram commits, whole_transactions;
static int64_t transactions_done, transactions_aborted, retries;

// Creates the topic of transactions where there is none yet, as the first client does.
static void find_coordinator(Transactor *t) {
  uint8_t request[REQUEST_ROOM], answer[4096];
  Writer w = begin_request(request, FIND_COORDINATOR, FIND_COORDINATOR_VERSION);
  put8(&w, 1); put_varint(&w, 2); put_string(&w, t->id); put_tags(&w, 1);
  int size = end_request(&w, request), error = COORDINATOR_NOT_AVAILABLE;
  for (int tries = 0; tries < 200 && is_passing(error); tries++) {
    if (tries) usleep(100000);
    Reader r = ask(t->connection.fd, request, size, answer, sizeof answer);
    get_varint(&r); get32(&r);
    if (get_count(&r) != 1) fail("FindCoordinator: no answer for %s", t->id);
    skip_string(&r); get32(&r); skip_string(&r); get32(&r);
    error = get16(&r);
  }
  if (error) fail("FindCoordinator: error %d", error);
}

static void send_whole(int fd, const uint8_t *bytes, int size) {
  if (send(fd, bytes, (size_t)size, 0) != size) fail("write: %s", strerror(errno));
}

static void write_in_transaction(Transactor *t) {
  t->phase = WRITING;
  t->asked = now();
  send_whole(t->connection.fd, t->connection.request, t->connection.request_size);
}

static void begin_transaction(Transactor *t, const Batch *batch) {
  Connection *c = &t->connection;
  int targets = topics * partitions;
  c->target = (c->target + connections) % targets;
  Writer partition = {c->partition_place};
  put32(&partition, c->target % partitions);
  set_producer(c->batch, c->producer_id, c->producer_epoch, 0);  // every transaction has an epoch of its own
  seal_batch(batch, c->batch);
  t->begun = now();
  requests_begun++;
  write_in_transaction(t);
}

static void end_transaction(Transactor *t) {
  uint8_t request[REQUEST_ROOM];
  int aborts = abort_every && t->count % abort_every == abort_every - 1;
  Writer w = begin_request(request, END_TXN, END_TXN_VERSION);
  put_string(&w, t->id); put64(&w, t->connection.producer_id); put16(&w, t->connection.producer_epoch); put8(&w, !aborts);
  put_tags(&w, 1);
  t->phase = ENDING;
  t->asked = now();
  send_whole(t->connection.fd, request, end_request(&w, request));
}

static int ended(Transactor *t) {
  Reader r = {t->connection.answer + 8, t->connection.answer + t->connection.received};
  get_varint(&r); get32(&r);
  int error = get16(&r);
  if (error) return error;
  t->connection.producer_id = get64(&r);
  t->connection.producer_epoch = get16(&r);
  transactions_aborted += abort_every && t->count % abort_every == abort_every - 1;
  t->count++;
  transactions_done++;
  record(&commits, now() - t->asked);
  record(&whole_transactions, now() - t->begun);
  return 0;
}

static void take_answer(Transactor *t, const Batch *batch) {
  Connection *c = &t->connection;
  c->received += receive(c->fd, c->answer + c->received, c->capacity - c->received);
  if (!whole(c->answer, c->received)) return;
  int error = t->phase == WRITING ? produce_error(c->answer) : ended(t);
  c->received = 0;
  if (error == CONCURRENT_TRANSACTIONS) {
    t->retry_at = now() + RETRY_AFTER_S;
    retries++;
  } else if (error) {
    fail("%s: error %d", t->phase == WRITING ? "Produce" : "EndTxn", error);
  } else if (t->phase == WRITING) {
    end_transaction(t);
  } else if (!stopping && requests_begun < requests_max) {
    begin_transaction(t, batch);
  }
}

static void retry(Transactor *t) {
  t->retry_at = 0;
  if (t->phase == WRITING) write_in_transaction(t);
  else end_transaction(t);
}

static void transact(void) {
  struct timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  Batch batch = make_batch(batch_bytes, record_bytes, keys, TRANSACTIONAL, wall.tv_sec * 1000);
  Transactor *all = calloc((size_t)connections, sizeof *all);
  int64_t most = (int64_t)(bytes_max / batch.size) + 1;
  if (most < requests_max) requests_max = most;
  for (int i = 0; i < connections; i++) {
    Transactor *t = &all[i];
    snprintf(t->id, sizeof t->id, "load-%ld-%ld-%d", (long)wall.tv_sec, (long)getpid(), i);
    t->connection = (Connection){.fd = dial(), .answer = malloc(65536), .capacity = 65536, .target = i};
    find_coordinator(t);
    become_producer(&t->connection, t->id);
    write_produce(&t->connection, &batch, t->id);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = t};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, t->connection.fd, &event)) fail("epoll: %s", strerror(errno));
  }
  struct epoll_event events[EVENTS];
  double began = now();
  for (int i = 0; i < connections; i++) begin_transaction(&all[i], &batch);
  while (!stopping || transactions_done < requests_begun) {
    int n = epoll_wait(poller, events, EVENTS, 1);
    for (int i = 0; i < n; i++) take_answer(events[i].data.ptr, &batch);
    double t = now(), passed = t - began;
    for (int i = 0; i < connections; i++)
      if (all[i].retry_at && all[i].retry_at <= t) retry(&all[i]);
    if (passed > seconds || requests_begun >= requests_max) stopping = 1;
    if (passed > seconds + ANSWER_WAIT_S) fail("no answer for %d s", ANSWER_WAIT_S);
  }
  double passed = now() - began, records = (double)transactions_done * batch.records;
  printf("{\"seconds\": %.3f, \"transactions\": %ld, \"aborted\": %ld, \"retries\": %ld, \"records\": %.0f", passed,
         (long)transactions_done, (long)transactions_aborted, (long)retries, records);
  printf(", \"transactions_s\": %.1f, \"records_s\": %.1f, \"mb_s\": %.2f", (double)transactions_done / passed, records / passed,
         (double)transactions_done * batch.size / passed / 1e6);
  print_latencies("commit_", &commits);
  print_latencies("", &whole_transactions);
  puts("}");
}
