// The feed-forward half of a layer whose rows go through a few of many experts and, where there is
// one, through an expert that all of them share.
//
// Rows lie by expert, so that each matrix is read once a step for all of its rows. What the experts
// make of a row is added up in the order in which it chose them, whatever else there is.
#pragma once

#include <memory>

#include "gated.h"
#include "lineup.h"

extern "C" {

// What experts have lies one after another's. Of what they share there may be no numbers.
struct ExpertsWeights {
  RoutingRule rule;
  Weight router;
  const float* preference;  // [experts], or null
  GatedWeights each;
  int32_t step;  // rows from one expert's gate, and up, to the next one's
  GatedWeights shared;
  Weight shared_share;  // [1, hidden]: the logit of how much of what is shared counts
};
}

// Where rows are between the parts of such a layer.
struct ExpertsDesk {
  Lineup lineup;
  std::vector<float> shared;  // shares of each row's shared expert
  Buffer logits, gathered, made;
};

class Experts {
 public:
  // The desk and the rows between matrices must outlive it, and have room for a step's rows.
  Experts(Team& team, const ExpertsWeights& weights, int hidden, Held held,
          ExpertsDesk& desk, Buffer& inner, Buffer& shared_inner);

  size_t bytes() const;
  void reserve(Format arithmetic, int rows);

  // Within team.run: `write(row, panel, low, high)` gets the 32 outputs of each panel and row.
  template <class Write>
  void run(Team& team, Format arithmetic, const Buffer& x, int rows, const Write& write) {
    if (rows == 0) return;
    line_up(team, arithmetic, x, rows);
    const int choices = rows * router_.rule().chosen;
    multiply(team, gate_up_, desk_.gathered.rows(arithmetic),
             [this](int place, int panel, Floats gate, Floats up) {
               store(inner_.row(place) + panel * kLanes, activation_(gate, up));
             });
    inner_.round_all(team, arithmetic, choices);
    multiply(team, down_, inner_.rows(arithmetic), into(desk_.made, 0));
    if (shared_) shared_->run(team, arithmetic, x, rows, into(desk_.made, choices));
    team.share(rows, [&](int row) { add_up(row, rows, write); });
  }

 private:
  void line_up(Team& team, Format arithmetic, const Buffer& x, int rows);
  void choose(int row);

  // Each run's rows with the matrix of its expert.
  template <class Write>
  void multiply(Team& team, const Matrix& w, const Rows& x, const Write& write) {
    const int panels = w.panels() / router_.rule().experts;
    team.share(desk_.lineup.runs() * panels, [&](int item) {
      const Run& run = desk_.lineup.run(item / panels);
      const int first = run.expert * panels;
      panel_of(w, first + item % panels, x, run.first, run.count,
               [&](int place, int panel, Floats low, Floats high) {
                 write(place, panel - first, low, high);
               });
    });
  }

  template <class Write>
  void add_up(int row, int rows, const Write& write) {
    const int chosen = router_.rule().chosen, panels = desk_.made.width / kPanel;
    const Choice* choices = desk_.lineup.choices() + row * chosen;
    for (int panel = 0; panel < panels; ++panel) {
      Floats low{}, high{};
      const auto add = [&](int place, float share) {
        const float* from = desk_.made.row(place) + panel * kPanel;
        low += share * load<Floats>(from);
        high += share * load<Floats>(from + kLanes);
      };
      for (int i = 0; i < chosen; ++i) add(desk_.lineup.place(row * chosen + i), choices[i].share);
      if (shared_) add(rows * chosen + row, desk_.shared[row]);
      write(row, panel, low, high);
    }
  }

  Router router_;
  Matrix logits_, gate_up_, down_;
  Activation activation_;
  std::unique_ptr<Gated> shared_;
  bool shares_whole_;  // of the shared expert
  ExpertsDesk& desk_;
  Buffer& inner_;
};
