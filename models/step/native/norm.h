// Numbers of a row brought to one size, by their root mean square or, centred, by how far they are
// from their mean.
#pragma once

#include <vector>

#include "vector.h"

extern "C" {

// `count` float32 each; the bias may be null, and so may all be: no norm. They are copied.
struct NormWeights {
  const float *weight, *bias;
  int32_t count;
  int32_t together;  // so many numbers of a row are brought to one size
  int32_t centred;
  float epsilon;
};
}

class Norm {
 public:
  Norm() = default;
  explicit Norm(const NormWeights& w)
      : together_(w.together), centred_(w.centred), epsilon_(w.epsilon) {
    if (w.weight) weight_.assign(w.weight, w.weight + w.count);
    if (w.bias) bias_.assign(w.bias, w.bias + w.count);
  }

  bool none() const { return weight_.empty(); }

  // `count` numbers, which may stay in their place.
  void apply(const float* from, float* to, int count) const {
    const int weights = static_cast<int>(weight_.size());
    for (int at = 0; at < count; at += together_) {
      const float* weight = weight_.data() + at % weights;
      const float middle = centred_ ? mean(from + at) : 0;
      const float scale = 1 / deviation(from + at, middle);
      for (int i = 0; i < together_; ++i) to[at + i] = weight[i] * ((from[at + i] - middle) * scale);
      if (bias_.empty()) continue;
      for (int i = 0; i < together_; ++i) to[at + i] += bias_[at % weights + i];
    }
  }

 private:
  float mean(const float* x) const {
    return total(x, [](auto x) { return x; }) / together_;
  }
  float deviation(const float* x, float middle) const {
    const auto square = [middle](auto x) { return (x - middle) * (x - middle); };
    return std::sqrt(total(x, square) / together_ + epsilon_);
  }
  template <class Term>
  float total(const float* x, const Term& term) const {
    Floats lanes{};
    float rest = 0;
    int i = 0;
    for (; i + kLanes <= together_; i += kLanes) lanes += term(load<Floats>(x + i));
    for (; i < together_; ++i) rest += term(x[i]);
    return sum(lanes) + rest;
  }

  std::vector<float> weight_, bias_;
  int together_ = 0;
  bool centred_ = false;
  float epsilon_ = 0;
};
