#include "gated.h"

#include "joined.h"

void add_gate_up(Joined& rows, const GatedWeights& w, int first) {
  for (int i = first; i < first + w.inner; i += kLanes) {
    rows.add(w.gate, i, kLanes);
    rows.add(w.up, i, kLanes);
  }
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
