#include "gated.h"

#include "joined.h"

Gated::Gated(Team& team, const GatedWeights& w, int hidden, Held held, Buffer& inner)
    : gelu_(w.gelu), inner_(&inner) {
  Joined gate_up(hidden), down(w.inner);
  for (int first = 0; first < w.inner; first += kLanes) {  // a panel holds both of an output
    gate_up.add(w.gate, first, kLanes);
    gate_up.add(w.up, first, kLanes);
  }
  down.add(w.down, 0, hidden);
  gate_up_ = gate_up.packed(team, held);
  down_ = down.packed(team, held);
}
