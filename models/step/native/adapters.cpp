#include "adapters.h"

LowRankParts::LowRankParts(int inputs, std::initializer_list<const LowRankWeights*> parts)
    : inputs_(inputs) {
  for (const LowRankWeights* part : parts)
    if (part->rank && place(*part) == rank_) {
      inners_.push_back(part);
      rank_ += part->rank;
    }
}

// Several parts of one linear layer have the same inner matrix. Behind all others: not there.
int LowRankParts::place(const LowRankWeights& part) const {
  int first = 0;
  for (const LowRankWeights* other : inners_) {
    if (other->inner.numbers == part.inner.numbers) break;
    first += other->rank;
  }
  return first;
}

Weight LowRankParts::outer(const LowRankWeights& part, int outputs) {
  std::vector<float>& whole = outers_.emplace_back(static_cast<size_t>(outputs) * rank_);
  for (int i = 0; part.rank && i < outputs; ++i)
    read_row(row_of(part.outer, i, part.rank), part.rank, &whole[i * rank_ + place(part)]);
  return {whole.data(), nullptr, nullptr, nullptr, Numbers::kFloat32, 0};
}

LowRank LowRankParts::apart(Team& team, const Joined& outer) const {
  LowRank made;
  if (rank_) made.outer = outer.packed(team, Held::kExact);
  return made;
}

LowRank LowRankParts::beside(Team& team, const Joined& outer) const {
  LowRank made = apart(team, outer);
  if (!rank_) return made;
  Joined inner(inputs_);
  for (const LowRankWeights* part : inners_) {
    inner.add(part->inner, 0, part->rank);
    made.scales.insert(made.scales.end(), part->rank, part->scale);
  }
  made.inner = inner.packed(team, Held::kExact);
  made.scales.resize(made.inner.panels() * kPanel);
  return made;
}

void Narrow::reserve(Format arithmetic, int rows, int rank) {
  format_ = arithmetic == Format::kInt8 ? Format::kFloat32 : arithmetic;
  rows_.width = std::max(rows_.width, rank);
  rows_.reserve(format_, rows);
}

void Narrow::multiply(Team& team, const LowRanks& low, const AdaptedRuns& runs, const Buffer& x) {
  int panels = 0;
  for (const LowRank& one : low) panels = std::max(panels, one.inner.panels());
  const Rows from = x.rows(format_);
  team.share(static_cast<int>(runs.size()) * panels, [&](int item) {
    const AdaptedRun& run = runs[item / panels];
    const LowRank& own = low[run.adapter];
    if (item % panels >= own.inner.panels()) return;
    panel_of(own.inner, item % panels, from, run.first, run.count,
             [&](int row, int panel, Floats first, Floats second) {
               const Floats both[] = {first, second};
               for (int half = 0; half < 2; ++half) {
                 const int at = panel * kPanel + half * kLanes;
                 const Floats scaled = both[half] * load<Floats>(&own.scales[at]);
                 store(rows_.row(row) + at, scaled);
                 if (format_ == Format::kBFloat16)
                   store(&rows_.halves[row * rows_.stride + at], to_bfloat16(scaled));
               }
             });
  });
}

void Narrow::add(const LowRanks& low, const AdaptedRuns& runs, int panel, int row, int count,
                 Floats (*out)[2]) const {
  auto run = std::lower_bound(runs.begin(), runs.end(), row,
                              [](const AdaptedRun& one, int row) { return one.first < row; });
  for (; run != runs.end() && run->first < row + count; ++run) {
    const Matrix& outer = low[run->adapter].outer;
    if (!outer.n) continue;
    Floats more[kRun][2];
    products(outer, panel, rows_.rows(format_), run->first, run->count, more);
    for (int m = 0; m < run->count; ++m)
      for (int half = 0; half < 2; ++half) out[run->first - row + m][half] += more[m][half];
  }
}
