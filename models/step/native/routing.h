// Which experts a row goes to, and how much of what each makes of it counts.
#pragma once

#include <algorithm>
#include <vector>

#include "vector.h"

extern "C" {

struct RoutingRule {
  int32_t experts, chosen;  // of all, and for each row
  int32_t sigmoid;          // 1: an expert's score is the sigmoid of its logit; 0: their softmax
  int32_t normalised;       // 1: shares are of the sum of the chosen scores
  int32_t groups, allowed;  // only experts of so many groups are chosen
  float scale;              // of the shares
};
}

struct Choice {
  int expert;
  float share;
};

class Router {
 public:
  Router() = default;
  // `preference` is added to the experts' scores to choose by; it may be null.
  Router(const RoutingRule& rule, const float* preference) : rule_(rule) {
    if (preference) preference_.assign(preference, preference + rule.experts);
  }

  const RoutingRule& rule() const { return rule_; }

  // The best experts of a row, best first. Its logits are lost, and so is what follows them up to a
  // multiple of 16.
  void choose(float* logits, Choice* choices) const;

 private:
  static constexpr float kLeast = 1e-20f;  // sum of scores

  struct Scored {
    float score;
    int index;
    bool operator<(const Scored& other) const {
      return (std::isnan(score) && !std::isnan(other.score)) || score > other.score;
    }
  };

  void leave_groups(std::vector<Scored>& all) const;

  RoutingRule rule_{};
  std::vector<float> preference_;
};
