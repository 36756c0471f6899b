// A feed-forward: down(act(gate(x)) * up(x)), or without gates down(act(x of one matrix)).
#pragma once

#include "adapters.h"

extern "C" {

enum class Curve : int32_t { kSigmoid, kGeluTanh, kGelu, kReluSquared };

// curve(gate) * up; for the sigmoid gate * sigmoid(slope * gate) * (up + shift), of numbers that are
// cut off at the limit.
struct Activation {
  Curve curve;
  float slope, limit, shift;

  Floats operator()(Floats gate, Floats up) const {
    if (curve == Curve::kGeluTanh) return gelu_tanh(gate) * up;
    if (curve == Curve::kGelu) return gelu(gate) * up;
    if (curve == Curve::kReluSquared) return larger(gate, Floats{}) * larger(gate, Floats{}) * up;
    gate = gate > limit ? floats(limit) : gate;
    up = up > limit ? floats(limit) : up < -limit ? floats(-limit) : up;
    return gate / (1.0f + exponential(-(slope * gate))) * (up + shift);
  }
};

struct GatedWeights {
  Weight gate, up, down;  // up may have no numbers: nothing gates
  int32_t inner;
  Activation activation;
};
}

class Joined;

// Rows of gate and up from the `first`, so that a panel holds both of an output.
void add_gate_up(Joined& rows, const GatedWeights& weights, int first);

class Gated {
 public:
  Gated() = default;
  // Between its matrices rows are in `inner`, which must outlive it and have room for them.
  Gated(Team& team, const GatedWeights& weights, int hidden, Held held, Buffer& inner);

  size_t bytes() const { return gate_up_.bytes() + down_.bytes(); }

  // Of so many; the largest rank.
  int set_adapter(Team& team, int adapter, int adapters, const AdapterWeights& weights);

  // Within team.run: `write(row, panel, low, high)` gets the 32 outputs of each panel and row.
  template <class Write>
  void run(Team& team, Format arithmetic, const Buffer& x, int rows, const Write& write,
           const Adapted& adapted = {}) {
    adapted.begin(team, gate_up_low_, x);
    matmul(team, gate_up_, x.rows(arithmetic), rows, gate_up_low_, adapted,
           [this](int row, int panel, Floats low, Floats high) {
             float* to = inner_->row(row) + panel * (gates_ ? kLanes : kPanel);
             store(to, activation_(low, gates_ ? high : floats(1)));
             if (!gates_) store(to + kLanes, activation_(high, floats(1)));
           });
    inner_->round_all(team, arithmetic, rows);
    adapted.begin(team, down_low_, *inner_);
    matmul(team, down_, inner_->rows(arithmetic), rows, down_low_, adapted, write);
  }

 private:
  Matrix gate_up_, down_;
  LowRanks gate_up_low_, down_low_;
  Activation activation_{};
  bool gates_ = true;
  Buffer* inner_ = nullptr;
};
