// The falling order of a row's weights, which are not sorted: what falls on which side of a cut is
// found by halving.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "desk.h"

constexpr int kFew = 16;    // candidates that are sorted rather than halved
constexpr int kNear = 128;  // weights around a cut that are looked at one by one

// A number that at least `count` of the values reach, each the largest of its strip.
static float reached_by(const std::vector<float>& tops, int count, std::vector<float>& sorted) {
  if (count > static_cast<int>(tops.size())) return -std::numeric_limits<float>::infinity();
  sorted = tops;
  std::nth_element(sorted.begin(), sorted.begin() + count - 1, sorted.end(), std::greater<>());
  return sorted[count - 1];
}

// The values from `least` to `most`.
static void collect(const float* values, int count, float least, float most, Desk& desk) {
  // Never made smaller: to fill it anew would cost as much as to look through the row.
  if (desk.candidates.size() <= static_cast<size_t>(count)) desk.candidates.resize(count + 1);
  Candidate* out = desk.begin();
  const auto within = [=](float value) { return (value >= least) & (value <= most); };
  for (size_t strip = 0; strip < desk.tops.size(); ++strip) {
    if (!(desk.tops[strip] >= least)) continue;
    const int first = static_cast<int>(strip) * kStrip, stop = std::min(first + kStrip, count);
    int found = 0;
    for (int i = first; i < stop; ++i) found |= within(values[i]);
    for (int i = first; found && i < stop; ++i) {
      *out = {values[i], i};
      out += within(values[i]);
    }
  }
  desk.found = out - desk.begin();
}

static double mass(const Candidate* from, const Candidate* to) {
  double total = 0;
  for (; from < to; ++from) total += from->weight;
  return total;
}

// How many candidates, in falling order, weigh `target` or (`beyond`) more; all, if none do. They
// come first afterwards, the last of them at their end.
static int reaching(Candidate* all, int count, double target, bool beyond) {
  Candidate *low = all, *high = low + count;
  while (high - low > kFew) {
    Candidate* middle = low + (high - low) / 2;
    const Candidate pivot = std::max(std::min(*low, *middle),
                                     std::min(std::max(*low, *middle), high[-1]));
    Candidate* split =
        std::partition(low, high, [&](const Candidate& one) { return !(pivot < one); });
    const double heavier = mass(low, split);
    if (beyond ? heavier > target : heavier >= target) {
      high = split;
    } else {
      target -= heavier;
      low = split;
    }
  }
  std::sort(low, high);
  for (Candidate* one = low; one < high; ++one) {
    target -= one->weight;
    if (beyond ? target < 0 : target <= 0) return static_cast<int>(one + 1 - all);
  }
  return static_cast<int>(high - all);
}

using Doubles = double __attribute__((vector_size(128)));

struct Heavier {
  double mass = 0;
  int count = 0;
};

// Of the weights from `least` up.
static Heavier heavier(const Desk& desk, float least) {
  Doubles mass{};
  Ints count{};
  for (size_t strip = 0; strip < desk.tops.size(); ++strip) {
    if (!(desk.tops[strip] >= least)) continue;
    Floats added{};
    for (size_t i = strip * kStrip; i < (strip + 1) * kStrip; i += kLanes) {
      const Floats weight = load<Floats>(&desk.weights[i]);
      added += weight >= least ? weight : Floats{};
      count -= weight >= least;
    }
    mass += __builtin_convertvector(added, Doubles);
  }
  double lanes[kLanes];
  std::memcpy(lanes, &mass, sizeof lanes);
  return {folded<kLanes>(lanes, [](double a, double b) { return a + b; }), sum(count)};
}

// Weights are in the order of their bits.
static int32_t bits_of(float value) { return load<int32_t>(&value); }
static float of_bits(int32_t bits) { return load<float>(&bits); }

// The candidate at which the falling order's sum is `target` or (`beyond`) more, the last of those
// that weigh `least` if none is; `target` becomes the sum up to it.
static Candidate fall(int vocab, float least, double& target, bool beyond, Desk& desk) {
  int32_t low = bits_of(least), high = bits_of(1.0f) + 1;
  Heavier within = heavier(desk, least), above;
  while (high - low > 1 && within.count - above.count > kNear) {
    const int32_t middle = low + (high - low) / 2;
    const Heavier part = heavier(desk, of_bits(middle));
    const bool enough = beyond ? part.mass > target : part.mass >= target;
    const bool holds = enough || part.count == within.count;  // there is always one in between
    (holds ? low : high) = middle;
    (holds ? within : above) = part;
  }
  collect(desk.weights.data(), vocab, of_bits(low), of_bits(high - 1), desk);
  const int found = static_cast<int>(desk.found);
  const int count = reaching(desk.begin(), found, target - above.mass, beyond);
  target = above.mass + mass(desk.begin(), desk.begin() + count);
  return desk.begin()[count - 1];
}

// Leaves the `count` heaviest as candidates, the last of them at their end.
static void collect_heaviest(int vocab, int count, Desk& desk) {
  const float least = reached_by(desk.tops, count, desk.sorted);
  collect(desk.weights.data(), vocab, least, INFINITY, desk);
  std::nth_element(desk.begin(), desk.begin() + count - 1, desk.end());
  desk.found = count;
}
