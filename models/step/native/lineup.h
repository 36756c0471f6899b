// The rows of a step by the experts that they go to.
#pragma once

#include <atomic>
#include <vector>

#include "routing.h"

// Places that one expert's rows have in a row.
struct Run {
  int expert, first, count;
};

class Lineup {
 public:
  void reserve(int rows, int chosen) {
    const size_t size = static_cast<size_t>(rows) * chosen;
    if (choices_.size() < size) choices_.resize(size), places_.resize(size), rows_.resize(size);
  }

  // Of each row, one after another.
  Choice* choices() { return choices_.data(); }

  // Gives each choice of `rows` rows a place, by expert; no run is longer than `longest`.
  void arrange(const RoutingRule& rule, int rows, int longest) {
    const int count = rows * rule.chosen;
    starts_.assign(rule.experts + 1, 0);
    for (int i = 0; i < count; ++i) ++starts_[choices_[i].expert + 1];
    for (int expert = 0; expert < rule.experts; ++expert) starts_[expert + 1] += starts_[expert];
    runs_.clear();
    for (int expert = 0; expert < rule.experts; ++expert)
      for (int first = starts_[expert], end = starts_[expert + 1]; first < end; first += longest)
        runs_.push_back({expert, first, std::min(longest, end - first)});
    for (int i = 0; i < count; ++i) {
      const int place = starts_[choices_[i].expert]++;
      places_[i] = place;
      rows_[place] = i / rule.chosen;
    }
    count_ = static_cast<int>(runs_.size());
  }

  // Never 0 once rows were arranged: a member of the team that is late may ask at any time.
  int runs() const { return count_; }
  const Run& run(int index) const { return runs_[index]; }
  int place(int choice) const { return places_[choice]; }
  int row_at(int place) const { return rows_[place]; }

 private:
  std::vector<Choice> choices_;
  std::vector<int> starts_, places_, rows_;
  std::vector<Run> runs_;
  std::atomic<int> count_{0};
};
