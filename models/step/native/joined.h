// Rows of several weights that become one matrix.
#pragma once

#include "matrix.h"

class Joined {
 public:
  explicit Joined(int inputs) : inputs_(inputs) {}

  // `count` of a weight's rows from the `first`.
  void add(const Weight& weight, int first, int count) {
    for (int i = first; i < first + count; ++i) rows_.push_back(row_of(weight, i, inputs_));
  }

  Matrix packed(Team& team, Held held) const { return pack(team, rows_, inputs_, held); }

 private:
  int inputs_;
  std::vector<WeightRow> rows_;
};
