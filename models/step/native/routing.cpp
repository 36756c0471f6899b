#include "routing.h"

namespace {

// As torch does it: which of equals come first is for the standard library to say.
template <class T>
void best_first(std::vector<T>& all, int count) {
  const auto first = all.begin(), last = first + count;
  if (count * 64 <= static_cast<int>(all.size())) return std::partial_sort(first, last, all.end());
  std::nth_element(first, last - 1, all.end());
  std::sort(first, last - 1);
}

void to_sigmoids(float* logits, int count) {
  for (int i = 0; i < count; i += kLanes)
    store(logits + i, 1.0f / (1.0f + exponential(-load<Floats>(logits + i))));
}

void to_softmax(float* logits, int count) {
  std::fill(logits + count, logits + (count + kLanes - 1) / kLanes * kLanes, -INFINITY);
  Floats top = floats(-INFINITY), total{};
  for (int i = 0; i < count; i += kLanes) top = larger(load<Floats>(logits + i), top);
  const float most = largest(top);
  for (int i = 0; i < count; i += kLanes) {
    const Floats weight = exponential(load<Floats>(logits + i) - most);
    total += weight;
    store(logits + i, weight);
  }
  const float whole = sum(total);
  for (int i = 0; i < count; ++i) logits[i] /= whole;
}

}  // namespace

// Experts of the groups whose best two have the largest sums stay, all others come last.
void Router::leave_groups(std::vector<Scored>& all) const {
  const int size = rule_.experts / rule_.groups;
  static thread_local std::vector<Scored> groups;
  groups.clear();
  for (int group = 0; group < rule_.groups; ++group) {
    float best = -INFINITY, second = -INFINITY;
    for (int i = group * size; i < (group + 1) * size; ++i) {
      second = std::max(second, std::min(best, all[i].score));
      best = std::max(best, all[i].score);
    }
    groups.push_back({best + second, group});
  }
  best_first(groups, rule_.allowed);
  for (size_t g = rule_.allowed; g < groups.size(); ++g)
    for (int i = 0; i < size; ++i) all[groups[g].index * size + i].score = -INFINITY;
}

void Router::choose(float* logits, Choice* choices) const {
  if (rule_.sigmoid) to_sigmoids(logits, rule_.experts);
  else to_softmax(logits, rule_.experts);
  static thread_local std::vector<Scored> all;
  all.resize(rule_.experts);
  for (int i = 0; i < rule_.experts; ++i)
    all[i] = {logits[i] + (preference_.empty() ? 0 : preference_[i]), i};
  if (rule_.allowed < rule_.groups) leave_groups(all);
  best_first(all, rule_.chosen);
  float total = 0;
  for (int i = 0; i < rule_.chosen; ++i) total += logits[all[i].index];
  const float scale = rule_.normalised ? rule_.scale / std::max(total, kLeast) : rule_.scale;
  for (int i = 0; i < rule_.chosen; ++i)
    choices[i] = {all[i].index, logits[all[i].index] * scale};
}
