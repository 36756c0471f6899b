// A gated feed-forward: down(act(gate(x)) * up(x)).
#pragma once

#include "buffer.h"
#include "matmul.h"

extern "C" {

struct GatedWeights {
  Weight gate, up, down;
  int32_t inner;
  int32_t gelu;  // of the gate: 0 is silu, 1 is gelu by tanh
};
}

class Gated {
 public:
  Gated() = default;
  // Between its matrices rows are in `inner`, which must outlive it and have room for them.
  Gated(Team& team, const GatedWeights& weights, int hidden, Held held, Buffer& inner);

  size_t bytes() const { return gate_up_.bytes() + down_.bytes(); }

  // Within team.run: `write(row, panel, low, high)` gets the 32 outputs of each panel and row.
  template <class Write>
  void run(Team& team, Format arithmetic, const Buffer& x, int rows, const Write& write) {
    matmul(team, gate_up_, x.rows(arithmetic), rows,
           [this](int row, int panel, Floats gate, Floats up) {
             store(inner_->row(row) + panel * kLanes, (gelu_ ? gelu_tanh(gate) : silu(gate)) * up);
           });
    inner_->round_all(team, arithmetic, rows);
    matmul(team, down_, inner_->rows(arithmetic), rows, write);
  }

 private:
  Matrix gate_up_, down_;
  bool gelu_ = false;
  Buffer* inner_ = nullptr;
};
