#include "experts.h"

#include "joined.h"

Experts::Experts(Team& team, const ExpertsWeights& w, int hidden, Held held, ExpertsDesk& desk,
                 Buffer& inner, Buffer& shared_inner)
    : router_(w.rule, w.preference),
      activation_(w.each.activation),
      shares_whole_(!w.shared_share.numbers),
      desk_(desk),
      inner_(inner) {
  const int experts = w.rule.experts;
  Joined logits(hidden), gate_up(hidden), down(w.each.inner);
  logits.add(w.router, 0, experts);
  if (!shares_whole_) logits.add(w.shared_share, 0, 1);
  for (int expert = 0; expert < experts; ++expert) {
    add_gate_up(gate_up, w.each, expert * w.step);
    down.add(w.each.down, expert * hidden, hidden);
  }
  logits_ = logits.packed(team, held == Held::kInPlace ? held : Held::kExact);
  gate_up_ = gate_up.packed(team, held);
  down_ = down.packed(team, held);
  if (w.shared.gate.numbers)
    shared_ = std::make_unique<Gated>(team, w.shared, hidden, held, shared_inner);
  desk.gathered.width = desk.made.width = hidden;
  desk.logits.width = std::max(desk.logits.width, logits_.n);
}

size_t Experts::bytes() const {
  return logits_.bytes() + gate_up_.bytes() + down_.bytes() + (shared_ ? shared_->bytes() : 0);
}

void Experts::reserve(Format arithmetic, int rows) {
  const int choices = rows * router_.rule().chosen;
  desk_.lineup.reserve(rows, router_.rule().chosen);
  desk_.logits.reserve(Format::kFloat32, rows);
  desk_.gathered.reserve(arithmetic, choices);
  desk_.made.reserve(Format::kFloat32, choices + rows);
  if (desk_.shared.size() < static_cast<size_t>(rows)) desk_.shared.resize(rows);
  inner_.reserve(arithmetic, choices);
}

// Copies of each row lie where its experts' rows are.
void Experts::line_up(Team& team, Format arithmetic, const Buffer& x, int rows) {
  matmul(team, logits_, x.rows(Format::kFloat32), rows, into(desk_.logits, 0));
  team.share(rows, [&](int row) { choose(row); });
  team.share(1, [&](int) { desk_.lineup.arrange(router_.rule(), rows, kBlock); });
  team.share(rows * router_.rule().chosen, [&](int place) {
    desk_.gathered.copy(arithmetic, place, x, desk_.lineup.row_at(place));
  });
}

void Experts::choose(int row) {
  float* logits = desk_.logits.row(row);
  desk_.shared[row] = shares_whole_ ? 1 : 1 / (1 + std::exp(-logits[router_.rule().experts]));
  router_.choose(logits, desk_.lineup.choices() + row * router_.rule().chosen);
}
