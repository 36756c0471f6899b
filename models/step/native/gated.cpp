#include "gated.h"

#include "joined.h"

namespace {

void alternate(Joined& rows, const Weight& gate, const Weight& up, int first, int inner) {
  for (int i = first; i < first + inner; i += kLanes) {
    rows.add(gate, i, kLanes);
    rows.add(up, i, kLanes);
  }
}

}  // namespace

void add_gate_up(Joined& rows, const GatedWeights& w, int first) {
  alternate(rows, w.gate, w.up, first, w.inner);
}

Gated::Gated(Team& team, const GatedWeights& w, int hidden, Held held, Buffer& inner)
    : activation_(w.activation), gates_(w.up.numbers), inner_(&inner) {
  Joined gate_up(hidden), down(w.inner);
  if (gates_) add_gate_up(gate_up, w, 0);
  else gate_up.add(w.gate, 0, w.inner);
  down.add(w.down, 0, hidden);
  gate_up_ = gate_up.packed(team, held);
  down_ = down.packed(team, held);
}

int Gated::set_adapter(Team& team, int adapter, int adapters, const AdapterWeights& w) {
  gate_up_low_.resize(adapters);
  down_low_.resize(adapters);
  LowRankParts wide(gate_up_.k, {&w.gate, &w.up}), narrow(down_.k, {&w.down});
  Joined gate_up(wide.rank()), down(narrow.rank());
  const Weight gate = wide.outer(w.gate, down_.k), up = wide.outer(w.up, down_.k);
  if (gates_) alternate(gate_up, gate, up, 0, down_.k);
  else gate_up.add(gate, 0, down_.k);
  down.add(narrow.outer(w.down, down_.n), 0, down_.n);
  gate_up_low_[adapter] = wide.beside(team, gate_up);
  down_low_[adapter] = narrow.beside(team, down);
  return std::max(wide.rank(), narrow.rank());
}
