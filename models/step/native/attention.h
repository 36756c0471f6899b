// Attention over blocks of keys and values, for single new tokens and long chunks alike.
//
// A block has tiles of 16 positions for each layer. Of each tile and head the keys lie transposed,
// [head_dim][16], so that 16 scores are summed side by side; the values follow as [16][head_dim].
// Formats that are multiplied two together hold keys as [head_dim/2][16][2], the two being of two
// dimensions, and values as [8][head_dim][2], of two positions.
// Each query goes over its keys in one order, so it does not matter what shares its step or chunk.
#pragma once

#include <algorithm>

#include "units.h"

#if defined(__AVX512F__)
constexpr int kQueries = 6;  // that read a tile together
#else
constexpr int kQueries = 2;
#endif

// One layer's part of each block, seen through one sequence's block table.
template <class T>
struct Pages {
  using Stored = typename T::Stored;
  Stored* first;      // of block 0
  size_t block_tiles;  // of all layers: from one block to the next
  const int32_t* table;
  int block_size, kv_heads, head_dim;

  size_t half() const { return static_cast<size_t>(kLanes) * head_dim; }
  Stored* keys(int position, int head) const {
    const size_t tile = table[position / block_size] * block_tiles + position % block_size / kLanes;
    return first + (tile * kv_heads + head) * 2 * half();
  }
  Stored* values(int position, int head) const { return keys(position, head) + half(); }

  // `last` of what is known of the sequence.
  void write(int position, int head, const float* key, const float* value, bool last) const {
    if constexpr (T::kTogether == 2) return write_pairs(position, head, key, value, last);
    Stored* column = keys(position, head) + position % kLanes;
    Stored* row = values(position, head) + position % kLanes * head_dim;
    for (int i = 0; i < head_dim; i += kLanes) {
      const auto keys = T::stored(load<Floats>(key + i));
      for (int lane = 0; lane < kLanes; ++lane) column[(i + lane) * kLanes] = keys[lane];
      store(row + i, T::stored(load<Floats>(value + i)));
    }
  }

  // What is multiplied with the last value's partner is 0: so it may not be left as it was.
  void write_pairs(int position, int head, const float* key, const float* value, bool last) const {
    const int lane = position % kLanes;
    Stored* column = keys(position, head) + 2 * lane;
    Stored* row = values(position, head) + lane / 2 * 2 * head_dim + lane % 2;
    for (int i = 0; i < head_dim; i += kLanes) {
      const auto keys = T::stored(load<Floats>(key + i));
      const auto values = T::stored(load<Floats>(value + i));
      for (int at = 0; at < kLanes; ++at) {
        column[(i + at) / 2 * 2 * kLanes + at % 2] = keys[at];
        row[2 * (i + at)] = values[at];
        if (last && lane % 2 == 0) row[2 * (i + at) + 1] = 0;
      }
    }
    // Units multiply whole tiles.
    Stored* behind = values(position, head) + (lane / 2 + 1) * 2 * head_dim;
    if (last && has_units()) std::fill(behind, values(position, head) + half(), 0);
  }
};

// A query, already scaled, rotated and settled; it sees positions [first, end) of its sequence.
struct Query {
  const float* values;
  float* out;
  int first, end;
  float sink;  // a score that takes its part of the weights, and has no value; -inf: none
};

// With few queries memory is slower than the core: while keys are scored it brings the values that
// follow them, which are read once all are scored.
template <class T, int R, int N>
inline void score(const Query* queries, const typename T::Stored* const* tiles, int head_dim,
                  float* scores, int stride) {
  Floats sums[R][N] = {};
  for (int i = 0; i < head_dim; i += T::kTogether) {
    typename T::Lanes keys[N];
    for (int n = 0; n < N; ++n) {
      keys[n] = T::read(tiles[n] + i * kLanes);
      if constexpr (R < kQueries) __builtin_prefetch(tiles[n] + (head_dim + i) * kLanes, 0, 2);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const auto part = T::factor(queries[r].values, i);
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) sums[r][n] = T::add(sums[r][n], keys[n], part);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) store(scores + r * stride + n * kLanes, sums[r][n]);
}

// Scores to weights, in place, as values are multiplied with; 0 where the query does not see.
// Returns what they are parts of.
template <class T>
float soften(const Query& query, float cap, float* scores, int start, int stop) {
  const Ints lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const auto seen = [&](int at) { return (lane + at >= query.first) & (lane + at < query.end); };
  Floats top = floats(-INFINITY);
  for (int at = start; at < stop; at += kLanes) {
    const Floats score = capped(load<Floats>(scores + at - start), cap);
    const Floats s = seen(at) ? score : floats(-INFINITY);
    store(scores + at - start, s);
    top = larger(s, top);
  }
  const float most = std::max(largest(top), query.sink);
  Floats total{};
  for (int at = start; at < stop; at += kLanes) {
    const Floats weight = exponential(load<Floats>(scores + at - start) - most);
    T::settle(scores, at - start, weight);
    total += weight;
  }
  return sum(total) + std::exp(query.sink - most);
}

template <class T, int R, int S>
inline void mix(const Pages<T>& pages, int head, const Query* queries, const float* weights,
                int stride, const float* totals, int start, int stop, int column) {
  Floats sums[R][S] = {};
  for (int at = start; at < stop; at += kLanes) {
    const auto* row = pages.values(at, head) + T::kTogether * column;
    for (int p = 0; p < kLanes && at + p < stop; p += T::kTogether) {
      typename T::Lanes values[S];
      for (int s = 0; s < S; ++s) values[s] = T::read(row + s * T::kTogether * kLanes);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const auto weight = T::factor(weights + r * stride, at - start + p);
#pragma GCC unroll 4
        for (int s = 0; s < S; ++s) sums[r][s] = T::add(sums[r][s], values[s], weight);
      }
      row += T::kTogether * pages.head_dim;
    }
  }
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) store(queries[r].out + column + s * kLanes, sums[r][s] / totals[r]);
}

template <class T, int R>
void attend_rows(const Pages<T>& pages, int head, const Query* queries, float cap,
                 float* weights) {
  int start = queries[0].first, end = queries[0].end;
  for (int r = 1; r < R; ++r) {
    start = std::min(start, queries[r].first);
    end = std::max(end, queries[r].end);
  }
  start = start / kLanes * kLanes;
  const int stride = (end - start + kLanes - 1) / kLanes * kLanes;

  int at = start;
  for (; at + kLanes < end; at += 2 * kLanes) {
    const typename T::Stored* tiles[] = {pages.keys(at, head), pages.keys(at + kLanes, head)};
    score<T, R, 2>(queries, tiles, pages.head_dim, &weights[at - start], stride);
  }
  if (at < end) {
    const typename T::Stored* tiles[] = {pages.keys(at, head)};
    score<T, R, 1>(queries, tiles, pages.head_dim, &weights[at - start], stride);
  }
  float totals[R];
  for (int r = 0; r < R; ++r)
    totals[r] = soften<T>(queries[r], cap, &weights[r * stride], start, start + stride);

  int column = 0;
  for (; column + 4 * kLanes <= pages.head_dim; column += 4 * kLanes)
    mix<T, R, 4>(pages, head, queries, weights, stride, totals, start, end, column);
  for (; column < pages.head_dim; column += kLanes)
    mix<T, R, 1>(pages, head, queries, weights, stride, totals, start, end, column);
}

// At most kQueries queries of one sequence and key head; `weights` has room for all their keys and
// a tile more, for each.
template <class T, int R = kQueries>
void attend(const Pages<T>& pages, int head, const Query* queries, int count, float cap,
            float* weights) {
  if constexpr (R > 0) {
    if (count == R) return attend_rows<T, R>(pages, head, queries, cap, weights);
    attend<T, R - 1>(pages, head, queries, count, cap, weights);
  }
}
