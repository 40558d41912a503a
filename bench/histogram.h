// Latencies in 64 steps to each doubling: a fixed size, however many there are, and a figure is at most 1.6 % off.
#pragma once
#include <stdint.h>
#include <stdio.h>

enum { STEPS = 64, DOUBLINGS = 40 };
typedef struct { int64_t steps[DOUBLINGS * STEPS], count; double max; } Histogram;

static inline void record(Histogram *h, double duration) {
  int64_t ns = (int64_t)(duration * 1e9);
  if (ns < STEPS) ns = STEPS;
  int doubling = 63 - __builtin_clzll((uint64_t)ns) - 6;
  int at = doubling * STEPS + (int)(ns >> doubling) - STEPS;
  h->steps[at < DOUBLINGS * STEPS ? at : DOUBLINGS * STEPS - 1]++;
  h->count++;
  if (duration > h->max) h->max = duration;
}
static inline double percentile_us(const Histogram *h, double share) {
  int64_t wanted = (int64_t)(share * (double)(h->count - 1)) + 1, seen = 0;
  for (int at = 0; h->count && at < DOUBLINGS * STEPS; at++)
    if ((seen += h->steps[at]) >= wanted) return ((double)(at % STEPS + STEPS) + 0.5) * (double)(1ll << at / STEPS) / 1e3;
  return 0;
}
static inline void print_latencies(const char *prefix, const Histogram *h) {
  printf(", \"%sp50_us\": %.1f, \"%sp90_us\": %.1f, \"%sp99_us\": %.1f, \"%sp999_us\": %.1f, \"%smax_us\": %.1f", prefix,
         percentile_us(h, .5), prefix, percentile_us(h, .9), prefix, percentile_us(h, .99), prefix, percentile_us(h, .999),
         prefix, h->max * 1e6);
}
