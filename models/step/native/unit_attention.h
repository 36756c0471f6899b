// Attention by a processor's matrix units, where it has them and blocks are of bfloat16.
//
// Of what a query is multiplied with a tile sums sixteen dimensions or positions, those of even and
// of odd ones apart. They multiply all queries, since a single one would otherwise be summed in
// another order.
#pragma once

#include <vector>

#include "attention.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__)

constexpr int kMostQueries = 2 * kUnitRows;
constexpr int kTilePairs = kLanes / 2;  // of dimensions or positions
constexpr int kKeysAhead = 4 * kLanes;  // positions

template <class T>
bool by_units() {
  return T::kTogether == 2 && has_units();
}

// Room for the scores of one query with so many keys, in tiles of two: queries' are never a power
// of two apart, whose lines would push each other out of the core's cache.
inline int score_stride(int keys) { return round_up(keys, 2 * kLanes) + kLanes; }

// The queries' numbers one after another.
inline const uint16_t* gather(const Query* queries, int count, int head_dim) {
  static thread_local std::vector<uint16_t> gathered;
  gathered.resize(static_cast<size_t>(kMostQueries) * head_dim);
  for (int i = 0; i < count; ++i)
    std::memcpy(&gathered[static_cast<size_t>(i) * head_dim], queries[i].values, 2 * head_dim);
  written(gathered.data());
  return gathered.data();
}

// Few queries wait for memory: while keys are multiplied it brings their values, and keys further on.
template <class Lower, class T>
inline void ask_for_tile(Lower, const Pages<T>& pages, int head, int at, int end) {
  if constexpr (Lower::value) return;
  const auto ask = [&](const auto* numbers) {
    for (size_t i = 0; i < pages.half(); i += kLine / sizeof *numbers)
      __builtin_prefetch(numbers + i, 0, 2);
  };
  if (at < end) ask(pages.values(at, head));
  if (at + kKeysAhead < end) ask(pages.keys(at + kKeysAhead, head));
}

template <class Lower, class T>
void score_units(Lower lower, const Pages<T>& pages, int head, const uint16_t* queries,
                 float* scores, int stride, int start, int end) {
  for (int at = start; at < end; at += 2 * kLanes) {
    const auto* keys = pages.keys(at, head);
    const auto* next = at + kLanes < end ? pages.keys(at + kLanes, head) : keys;
    ask_for_tile(lower, pages, head, at, end);
    ask_for_tile(lower, pages, head, at + kLanes, end);
    zero_units(lower);
    for (int i = 0; i < pages.head_dim; i += kLanes)
      add_unit(lower, keys + i * kLanes, next + i * kLanes, kLine, queries + i, pages.head_dim);
    store_units(lower, scores + at - start, sizeof(float) * stride);
  }
}

template <class Lower, class T>
void mix_units(Lower lower, const Pages<T>& pages, int head, const Query* queries, int count,
               const float* weights, int stride, const float* totals, int start, int end) {
  written(weights);
  const auto* pairs = reinterpret_cast<const uint16_t*>(weights);
  for (int column = 0; column < pages.head_dim; column += 2 * kLanes) {
    const bool both = column + kLanes < pages.head_dim;
    zero_units(lower);
    for (int at = start; at < end; at += kLanes) {
      const auto* low = pages.values(at, head) + 2 * column;
      add_unit(lower, low, both ? low + 2 * kLanes : low, 4 * pages.head_dim, pairs + at - start,
               2 * stride);
    }
    Floats sums[kMostQueries][2];
    store_units(lower, sums);
    for (int i = 0; i < count; ++i)
      for (int half = 0; half <= both; ++half)
        store(queries[i].out + column + half * kLanes, sums[i][half] / totals[i]);
  }
}

template <class Lower, class T>
void attend_units(Lower lower, const Pages<T>& pages, int head, const Query* queries, int count,
                  float cap, float* weights) {
  int start = queries[0].first, end = queries[0].end;
  for (int i = 1; i < count; ++i) {
    start = std::min(start, queries[i].first);
    end = std::max(end, queries[i].end);
  }
  start = start / kLanes * kLanes;
  const int stop = start + round_up(end - start, kLanes), stride = score_stride(end - start);
  const UnitTiles tiles(count, kTilePairs);
  score_units(lower, pages, head, gather(queries, count, pages.head_dim), weights, stride, start,
              end);
  float totals[kMostQueries];
  for (int i = 0; i < count; ++i)
    totals[i] = soften<T>(queries[i], cap, weights + static_cast<size_t>(i) * stride, start, stop);
  mix_units(lower, pages, head, queries, count, weights, stride, totals, start, end);
}

// At most kMostQueries queries of one sequence and key head; `weights` has room for all their keys
// and a tile more, for each.
template <class T>
void attend_by_units(const Pages<T>& pages, int head, const Query* queries, int count, float cap,
                     float* weights) {
  if constexpr (T::kTogether == 2) {
    if (count > kUnitRows)
      attend_units(std::true_type{}, pages, head, queries, count, cap, weights);
    else attend_units(std::false_type{}, pages, head, queries, count, cap, weights);
  }
}

#else

constexpr int kMostQueries = kQueries;

template <class T>
constexpr bool by_units() {
  return false;
}

inline int score_stride(int keys) { return round_up(keys, kLanes); }

template <class T>
void attend_by_units(const Pages<T>&, int, const Query*, int, float, float*) {}

#endif

// Queries that read a tile together.
inline int queries_together(bool halves) {
  return halves && by_units<BFloat16>() ? kMostQueries : kQueries;
}
