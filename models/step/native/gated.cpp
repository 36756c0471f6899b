#include "gated.h"

#include "joined.h"

Gated::Gated(Team& team, const GatedWeights& w, int hidden, Format arithmetic, Buffer& inner)
    : gelu_(w.gelu), inner_(&inner) {
  Joined gate_up(hidden), down(w.inner);
  for (int first = 0; first < w.inner; first += kLanes) {  // a panel holds both of an output
    gate_up.add(w.gate, w.gate_bias, first, kLanes);
    gate_up.add(w.up, w.up_bias, first, kLanes);
  }
  down.add(w.down, w.down_bias, 0, hidden);
  gate_up_ = gate_up.packed(team, arithmetic);
  down_ = down.packed(team, arithmetic);
}
