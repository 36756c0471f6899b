// A token from each row of logits, and how likely tokens were: each row by itself, on one thread,
// so that it is the same alone and among neighbours.
//
// Filters cut as in models/step/draw.py: min_p and top_k first, then the least set of what is left
// whose share reaches top_p. Nothing is sorted: what falls on which side of a cut is found by
// halving, and a token is drawn from the falling order in the same way.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "guard.h"
#include "team.h"
#include "vector.h"

namespace {

constexpr int kStrip = 64;  // logits whose sum and largest are kept
constexpr int kFew = 16;    // candidates that are sorted rather than halved
constexpr int kNear = 128;  // weights around a cut that are looked at one by one

struct Wish {  // as rows.py packs it
  double uniform;
  double top_p;       // 1: off
  float temperature;  // 0: greedy
  float min_p;        // 0: off
  int32_t top_k;      // 0: off
};

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

Floats load_some(const float* from, int count) {
  if (count >= kLanes) return load<Floats>(from);
  Floats value = floats(-std::numeric_limits<float>::infinity());
  for (int i = 0; i < count; ++i) value[i] = from[i];
  return value;
}

// Past what is no number.
float largest_of(const float* row, int count) {
  Floats best[4];
  for (auto& one : best) one = floats(-std::numeric_limits<float>::infinity());
  int i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) best[j] = larger(load<Floats>(row + i + j * kLanes), best[j]);
  for (; i < count; i += kLanes) best[0] = larger(load_some(row + i, count - i), best[0]);
  return largest(larger(larger(best[0], best[1]), larger(best[2], best[3])));
}

int first_equal(const float* row, int count, float value) {
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
double weigh(const float* row, int count, float most, float temperature, Desk& desk) {
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

int draw_from_all(const Desk& desk, double target) {
  int last = -1;  // the last strip that adds anything
  for (int strip = 0; strip < static_cast<int>(desk.sums.size()); ++strip) {
    if (desk.sums[strip] > 0) last = strip;
    if (desk.sums[strip] > target) break;
    target -= desk.sums[strip];
  }
  int token = 0;
  for (int i = last * kStrip; i < (last + 1) * kStrip; ++i) {
    if (!(desk.weights[i] > 0)) continue;
    token = i;
    if ((target -= desk.weights[i]) < 0) break;
  }
  return token;
}

// A number that at least `count` of the values reach, each the largest of its strip.
float reached_by(const std::vector<float>& tops, int count, std::vector<float>& sorted) {
  if (count > static_cast<int>(tops.size())) return -std::numeric_limits<float>::infinity();
  sorted = tops;
  std::nth_element(sorted.begin(), sorted.begin() + count - 1, sorted.end(), std::greater<>());
  return sorted[count - 1];
}

// The values from `least` to `most`.
void collect(const float* values, int count, float least, float most, Desk& desk) {
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

double mass(const Candidate* from, const Candidate* to) {
  double total = 0;
  for (; from < to; ++from) total += from->weight;
  return total;
}

// How many candidates, in falling order, weigh `target` or (`beyond`) more; all, if none do. They
// come first afterwards, the last of them at their end.
int reaching(Candidate* all, int count, double target, bool beyond) {
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
Heavier heavier(const Desk& desk, float least) {
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
int32_t bits_of(float value) { return load<int32_t>(&value); }
float of_bits(int32_t bits) { return load<float>(&bits); }

// The candidate at which the falling order's sum is `target` or (`beyond`) more, the last of those
// that weigh `least` if none is; `target` becomes the sum up to it.
Candidate fall(int vocab, float least, double& target, bool beyond, Desk& desk) {
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
void collect_heaviest(int vocab, int count, Desk& desk) {
  const float least = reached_by(desk.tops, count, desk.sorted);
  collect(desk.weights.data(), vocab, least, INFINITY, desk);
  std::nth_element(desk.begin(), desk.begin() + count - 1, desk.end());
  desk.found = count;
}

// Each filter keeps a part of the falling order from its start: so much, down to that weight.
int draw_filtered(const Wish& wish, int vocab, double total, Desk& desk) {
  // What weighs less than top_p needs is together less than what it leaves out.
  const auto spare = static_cast<float>((1 - wish.top_p) * total / vocab * 0.99);
  float least = std::max(wish.min_p, std::numeric_limits<float>::min());
  double kept = total;
  if (wish.min_p > 0) kept = heavier(desk, least).mass;
  else if (wish.top_k <= 0) least = std::max(least, spare);
  if (wish.top_k > 0 && wish.top_k < vocab) {
    collect_heaviest(vocab, wish.top_k, desk);
    const float last = desk.end()[-1].weight;
    if (last >= least) kept = mass(desk.begin(), desk.end()), least = last;
  }
  if (wish.top_p < 1) least = fall(vocab, least, kept *= wish.top_p, false, desk).weight;
  return fall(vocab, least, kept *= wish.uniform, true, desk).token;
}

int sample(const float* row, int vocab, const Wish& wish, Desk& desk) {
  const float most = largest_of(row, vocab);
  if (wish.temperature <= 0) return first_equal(row, vocab, most);
  const double total = weigh(row, vocab, most, wish.temperature, desk);
  // Logits that are no numbers, or none above -inf: any token will do.
  if (!(total > 0 && std::isfinite(total))) return first_equal(row, vocab, most);
  if (wish.top_p >= 1 && wish.top_k <= 0 && wish.min_p <= 0)
    return draw_from_all(desk, wish.uniform * total);
  return draw_filtered(wish, vocab, total, desk);
}

// Writes the chosen token's logarithm and rank, then those of the `top` likeliest with their ids.
void score(const float* row, int vocab, int64_t token, int top, float* values, int64_t* ids,
           Desk& desk) {
  const float most = largest_of(row, vocab);
  const double total = weigh(row, vocab, most, 1.0f, desk);
  const float shift = static_cast<float>(most + std::log(total));
  int64_t above = 0;
  for (int i = 0; i < vocab; ++i) above += row[i] > row[token];
  values[0] = row[token] - shift;
  ids[0] = above + 1;
  if (!top) return;
  for (size_t strip = 0; strip < desk.tops.size(); ++strip) {
    const int first = static_cast<int>(strip) * kStrip;
    desk.tops[strip] = largest_of(row + first, std::min(kStrip, vocab - first));
  }
  collect(row, vocab, reached_by(desk.tops, top, desk.sorted), INFINITY, desk);
  for (; desk.found < static_cast<size_t>(top); ++desk.found)  // where logits are no numbers
    desk.candidates[desk.found] = {shift, 0};
  Candidate* found = desk.begin();
  std::partial_sort(found, found + top, desk.end());
  for (int i = 0; i < top; ++i) {
    values[1 + i] = found[i].weight - shift;
    ids[1 + i] = found[i].token;
  }
}

constexpr int kAlone = 4;  // rows that are done before another thread would be awake

template <class Work>
void each_row(Team* team, int rows, const Work& work) {
  const auto one = [&](int row) {
    static thread_local Desk desk;
    work(row, desk);
  };
  if (team->size() < 2 || rows < kAlone)
    for (int row = 0; row < rows; ++row) one(row);
  else
    team->run([&] { team->share(rows, one); });
}

}  // namespace

extern "C" {

// `logits` [rows, stride]; a wish and a token for each row.
int rows_sample(Team* team, const float* logits, int64_t stride, int32_t rows, int32_t vocab,
                const Wish* wishes, int64_t* tokens) {
  return guarded([&] {
    each_row(team, rows, [&](int row, Desk& desk) {
      tokens[row] = sample(logits + row * stride, vocab, wishes[row], desk);
    });
  });
}

// `values` and `ids` [rows, 1 + top]: of `tokens`, then of the likeliest; ids[., 0] is the rank.
int rows_score(Team* team, const float* logits, int64_t stride, int32_t rows, int32_t vocab,
               const int64_t* tokens, int32_t top, float* values, int64_t* ids) {
  return guarded([&] {
    each_row(team, rows, [&](int row, Desk& desk) {
      score(logits + row * stride, vocab, tokens[row], top, values + row * (1 + top),
            ids + row * (1 + top), desk);
    });
  });
}
}
