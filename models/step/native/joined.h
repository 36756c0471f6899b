// Rows of several weights that become one matrix.
#pragma once

#include <vector>

#include "matmul.h"

class Joined {
 public:
  explicit Joined(int inputs) : inputs_(inputs) {}

  // `count` of a weight's rows from the `first`; its bias may be null.
  void add(const float* weight, const float* bias, int first, int count) {
    for (int i = first; i < first + count; ++i) {
      rows_.push_back(weight + static_cast<size_t>(i) * inputs_);
      biases_.push_back(bias ? bias[i] : 0);
    }
  }

  Matrix packed(Team& team, Format arithmetic) const {
    const int count = static_cast<int>(rows_.size());
    return pack(team, rows_.data(), count, inputs_, biases_.data(), arithmetic);
  }

 private:
  int inputs_;
  std::vector<const float*> rows_;
  std::vector<float> biases_;
};
