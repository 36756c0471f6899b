// A token from each row of logits, and how likely tokens were: each row by itself, on one thread,
// so that it is the same alone and among neighbours.
//
// Filters cut as in models/step/draw.py: min_p and top_k first, then the least set of what is left
// whose share reaches top_p. A token is drawn from the falling order in the same way.
#include <algorithm>
#include <cmath>
#include <limits>

#include "falling.h"
#include "guard.h"
#include "team.h"

namespace {

struct Wish {  // as rows.py packs it
  double uniform;
  double top_p;       // 1: off
  float temperature;  // 0: greedy
  float min_p;        // 0: off
  int32_t top_k;      // 0: off
};

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
