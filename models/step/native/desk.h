// A row of logits, and what one thread makes of it: weights, in strips, of which sums and tops are
// kept. Static, as all that only rows.cpp includes: so the compiler joins it, and draws a fifth faster.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "vector.h"

constexpr int kStrip = 64;  // logits whose sum and largest are kept

struct Candidate {
  float weight;
  int32_t token;

  // Falling by weight; equals in the vocabulary's order.
  bool operator<(const Candidate& other) const {
    return weight != other.weight ? weight > other.weight : token < other.token;
  }
};

// What one thread needs for a row.
struct Desk {
  std::vector<float> weights;  // e^((logit - largest) / temperature), padded with 0
  std::vector<float> sums, tops, sorted;  // of each strip
  std::vector<Candidate> candidates;  // the first `found`; what is behind them is left over
  size_t found = 0;

  Candidate* begin() { return candidates.data(); }
  Candidate* end() { return candidates.data() + found; }
};

static Floats load_some(const float* from, int count) {
  if (count >= kLanes) return load<Floats>(from);
  Floats value = floats(-std::numeric_limits<float>::infinity());
  for (int i = 0; i < count; ++i) value[i] = from[i];
  return value;
}

// Past what is no number.
static float largest_of(const float* row, int count) {
  Floats best[4];
  for (auto& one : best) one = floats(-std::numeric_limits<float>::infinity());
  int i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) best[j] = larger(load<Floats>(row + i + j * kLanes), best[j]);
  for (; i < count; i += kLanes) best[0] = larger(load_some(row + i, count - i), best[0]);
  return largest(larger(larger(best[0], best[1]), larger(best[2], best[3])));
}

static int first_equal(const float* row, int count, float value) {
  constexpr int kRun = 256;
  for (int start = 0; start < count; start += kRun) {
    const int stop = std::min(start + kRun, count);
    int found = 0;
    for (int i = start; i < stop; ++i) found |= row[i] == value;
    for (int i = start; found && i < stop; ++i)
      if (row[i] == value) return i;
  }
  return 0;
}

// Fills the desk; the sum of all weights.
static double weigh(const float* row, int count, float most, float temperature, Desk& desk) {
  const int strips = (count + kStrip - 1) / kStrip;
  desk.weights.resize(static_cast<size_t>(strips) * kStrip);
  desk.sums.resize(strips);
  desk.tops.resize(strips);
  const float scale = 1.0f / temperature;
  double total = 0;
  for (int strip = 0; strip < strips; ++strip) {
    Floats added = {}, top = {};
    for (int i = strip * kStrip; i < (strip + 1) * kStrip; i += kLanes) {
      const Floats weight = exponential((load_some(row + i, count - i) - most) * scale);
      store(&desk.weights[i], weight);
      added += weight;
      top = larger(weight, top);
    }
    desk.sums[strip] = sum(added);
    desk.tops[strip] = largest(top);
    total += desk.sums[strip];
  }
  return total;
}
