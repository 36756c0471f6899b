// What adapters add to the products of a step's rows: outer * (scale * (inner * x)), of few numbers.
//
// A row's is summed as other products are, so it does not depend on its neighbours, to the bit. Rows
// that have no adapter cost nothing, and those that have the same are multiplied together.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "buffer.h"
#include "joined.h"
#include "matmul.h"

extern "C" {

// Beside one linear layer; of rank 0 where the adapter leaves it alone.
struct LowRankWeights {
  Weight inner, outer;  // [rank, inputs] and [outputs, rank]
  int32_t rank;
  float scale;
};

// Beside a layer's.
struct AdapterWeights {
  LowRankWeights q, k, v, o, gate, up, down;
};
}

// Rows one after another that have the same adapter: within kRun of each other, so within a block.
struct AdaptedRun {
  int adapter, first, count;
};
constexpr int kRun = 32;
static_assert(kBlock % kRun == 0);

using AdaptedRuns = std::vector<AdaptedRun>;

// Beside a matrix, whose outputs may be of several linear layers.
struct LowRank {
  Matrix inner;               // [ranks of all of them, k]; none where nothing is added
  Matrix outer;               // [n, ranks]: zeros where a rank is of another layer's outputs
  std::vector<float> scales;  // of inner's outputs, up to whole panels
};

// By adapter.
using LowRanks = std::vector<LowRank>;

// Puts together what stands beside the linear layers of one matrix, all of the same inputs.
class LowRankParts {
 public:
  LowRankParts(int inputs, std::initializer_list<const LowRankWeights*> parts);

  // A part's matrix [outputs, ranks of all], good while this is.
  Weight outer(const LowRankWeights& part, int outputs);
  // With the outer matrices joined as the matrix is that they stand beside.
  LowRank beside(Team& team, const Joined& outer) const;
  // Of no matrix of its own: what it is multiplied with is there already.
  LowRank apart(Team& team, const Joined& outer) const;
  int rank() const { return rank_; }

 private:
  int place(const LowRankWeights& part) const;

  int inputs_, rank_ = 0;
  std::vector<const LowRankWeights*> inners_;  // each once
  std::vector<std::vector<float>> outers_;
};

// Where adapted rows are between the two matrices.
class Narrow {
 public:
  void reserve(Format arithmetic, int rows, int rank);

  // Within team.run: the rows of the runs, by their adapters' inner matrices.
  void multiply(Team& team, const LowRanks& low, const AdaptedRuns& runs, const Buffer& x);

  // Adds what the outer matrices make of them to the outputs of a block of rows.
  void add(const LowRanks& low, const AdaptedRuns& runs, int panel, int row, int count,
           Floats (*out)[2]) const;

 private:
  Format format_ = Format::kFloat32;
  Buffer rows_;
};

// The adapted rows among those that are multiplied.
struct Adapted {
  Narrow* narrow = nullptr;
  const AdaptedRuns* runs = nullptr;

  bool any(const LowRanks& low) const { return runs && !runs->empty() && !low.empty(); }

  // Within team.run, before the products with x of the matrices that `low` stands beside.
  void begin(Team& team, const LowRanks& low, const Buffer& x) const {
    if (any(low)) narrow->multiply(team, low, *runs, x);
  }
};

// The same with what adapters add, who have begun.
template <class Write>
void matmul(Team& team, const Matrix& w, const Rows& x, int rows, const LowRanks& low,
            const Adapted& adapted, const Write& write) {
  if (!adapted.any(low)) return matmul(team, w, x, rows, write);
  const int panels = w.panels(), blocks = (rows + kBlock - 1) / kBlock;
  team.share(panels * blocks, [&](int item) {
    const int panel = item % panels, row = item / panels * kBlock;
    const int count = std::min(kBlock, rows - row);
    Floats out[kBlock][2];
    products(w, panel, x, row, count, out);
    adapted.narrow->add(low, *adapted.runs, panel, row, count, out);
    for (int m = 0; m < count; ++m) write(row + m, panel, out[m][0], out[m][1]);
  });
}
