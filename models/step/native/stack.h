// A decoder-only transformer, as one pass over all tokens of a step.
//
// x += r * behind(o(attention(rope(qkv(norm(x)))))); x += r * inner_behind(down(act(gate) * up)) of
// inner_norm(x); the head. A norm that a layer does not have changes nothing.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "buffer.h"
#include "experts.h"
#include "norm.h"
#include "prefault.h"
#include "unit_attention.h"

// How keys and values are held.
enum class KvFormat : int32_t { kFloat32, kBFloat16, kFloat16 };

extern "C" {

struct Shape {
  int32_t layers, hidden, heads, kv_heads, head_dim, vocab;
  Format arithmetic;       // of products with matrices
  Held held;               // the matrices
  int32_t half_embedding;  // 1: the embedding is bfloat16, else float32
  KvFormat kv_format;
  int32_t block_size;
  float embedding_scale, residual_scale, logit_scale;
  float logit_cap;  // a logit is cap * tanh(logit / cap); 0: as it is
};

// Norms are copied.
struct LayerWeights {
  Weight q, k, v, o;
  NormWeights norm, behind, inner_norm, inner_behind, q_norm, k_norm;
  const float* sinks;            // [heads], or null: what a row's scores are softened with
  const float *cosines, *sines;  // [positions, rotary_dim / 2]
  int32_t rotary_dim;            // the first so many numbers of a head are rotated
  int32_t norms_last;            // 1: queries and keys are normed once they are rotated
  int32_t parallel;  // 1: the feed-forward half reads what attention read, not what it added to
  int32_t window;    // a query sees the last so many keys; 0: all
  float scale;       // of the scores
  float cap;         // a score is cap * tanh(score / cap); 0: as it is
};

// `count` tokens of one sequence from position `start`; its blocks from `table` of the step's.
struct Span {
  int32_t flat, start, count, table;
};

struct Step {
  const int64_t* ids;
  const Span* spans;
  const int32_t* adapters;  // of each sequence; -1: none
  const int32_t* tables;
  const int64_t* keep;  // flat tokens whose logits are wanted, each once
  float* logits;        // [kept, vocab]
  int32_t tokens, sequences, kept;
};
}

struct Layer {
  Matrix qkv, o;
  Matrix v;     // where it is not with them: to round it to 4 bit would cost the most
  LowRanks qkv_low, v_low, o_low;
  Gated gated;  // unless there are experts
  std::unique_ptr<Experts> experts;
  Norm norm, behind, inner_norm, inner_behind, q_norm, k_norm;
  std::vector<float> sinks;
  const float *cosines, *sines;
  int rotary_dim;
  bool norms_last, parallel;
  int window;
  float scale, cap;
};

class Stack {
 public:
  // The team, `embedding` [tokens, hidden], the layers' tables, and weights that are held in place
  // must outlive it.
  Stack(Team& team, const Shape& shape, const void* embedding);
  void set_layer(int index, const LayerWeights& weights);
  void set_gated(int index, const GatedWeights& weights);
  void set_experts(int index, const ExpertsWeights& weights);
  void set_head(const NormWeights& norm, const Weight& weight);
  // Of so many, beside a layer without experts, or with nothing beside these.
  void set_adapter(int adapter, int adapters, int index, const AdapterWeights& weights);
  // Without a pool. The weights stay as they are, so those of 8 bit need it before and after.
  void round_to(Format arithmetic, KvFormat kv_format);
  void allocate(int blocks);
  void forward(const Step& step);
  // Bytes of all weights that a step reads.
  size_t weight_bytes() const;

 private:
  struct Work {  // queries of a part in the order of its rows, each row's heads of one key head
    int span, head, query, count;
  };
  // Rows of x, by flat token, and the attention of their queries.
  struct Part {
    std::vector<int> rows;
    std::vector<Work> works;
    AdaptedRuns runs;
  };

  Buffer& inner_of(const GatedWeights& weights);
  void embed(int row, int32_t id);
  void divide(Part& part);
  void find_runs(const Step& step, Part& part) const;
  void plan(const Step& step);
  size_t block_bytes() const;  // of all layers
  void normalise(const Norm& norm, int row, const float* from);
  void run_layer(Layer& layer, const Step& step, const Part& part);
  void add_back(const Norm& norm, int row, float* to);
  void turn(const Layer& layer, const Norm& norm, float* heads, int count, int position) const;
  template <class T>
  Pages<T> pages_of(const Layer& layer, const Step& step, const Span& span) const;
  template <class T>
  void place(const Layer& layer, const Step& step, int row);
  template <class T>
  void attend_to(const Layer& layer, const Step& step, const Part& part, const Work& work);

  Shape shape_;
  Team& team_;
  const void* embedding_;
  std::vector<Layer> layers_;
  Norm norm_;
  Matrix head_;
  Buffer x_, normed_, qkv_, mixed_;
  Buffer held_;  // rows of what a half of a layer adds, until all of it is known
  std::map<int, Buffer> inners_;  // by width
  ExpertsDesk desk_;
  Narrow narrow_;
  int most_rank_ = 0;  // of adapters
  std::vector<int> span_of_;  // by flat token
  Part all_, kept_;           // after the last layer's keys only the kept rows matter
  std::vector<Lines<float>> scores_;  // by member of the team
  Memory pool_;                             // of blocks, each with all layers
  std::unique_ptr<Prefault> prefault_;      // ends before the pool does
};
