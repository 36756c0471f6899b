// A decoder-only transformer of the common shape, as one pass over all tokens of a step.
//
// x += o(attention(rope(qkv(norm(x))))); x += down(act(gate(norm(x))) * up(norm(x))); the head.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "attention.h"
#include "buffer.h"
#include "gated.h"
#include "prefault.h"

// How keys and values are held.
enum class KvFormat : int32_t { kFloat32, kBFloat16, kFloat16 };

extern "C" {

struct Shape {
  int32_t layers, hidden, heads, kv_heads, head_dim, rotary_dim, vocab;
  Format arithmetic;       // of products with matrices
  int32_t half_embedding;  // 1: the embedding is bfloat16, else float32
  KvFormat kv_format;
  int32_t block_size;
  float epsilon;
};

// Row-major float32; biases, q_norm and k_norm may be null. They are copied.
struct LayerWeights {
  const float *norm, *q, *k, *v, *o, *inner_norm;
  const float *q_bias, *k_bias, *v_bias, *o_bias;
  const float *q_norm, *k_norm;
  float scale;     // of the scores
  int32_t window;  // a query sees the last so many keys; 0: all
};

// `count` tokens of one sequence from position `start`; its blocks from `table` of the step's.
struct Span {
  int32_t flat, start, count, table;
};

struct Step {
  const int64_t* ids;
  const Span* spans;
  const int32_t* tables;
  const int64_t* keep;  // flat tokens whose logits are wanted, each once
  float* logits;        // [kept, vocab]
  int32_t tokens, sequences, kept;
};
}

struct Layer {
  Matrix qkv, o;
  Gated gated;
  std::vector<float> norm, inner_norm, q_norm, k_norm;
  float scale;
  int window;
};

class Stack {
 public:
  // The team, `embedding` [tokens, hidden] and the tables [positions, rotary_dim / 2] must outlive
  // it.
  Stack(Team& team, const Shape& shape, const void* embedding, const float* cosines,
        const float* sines);
  void set_layer(int index, const LayerWeights& weights);
  void set_gated(int index, const GatedWeights& weights);
  void set_head(const float* norm, const float* weight, const float* bias);
  // Without a pool. The weights stay as they are, so neither before nor after may be 8 bit.
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
  };

  void embed(int row, int32_t id);
  void divide(Part& part);
  void plan(const Step& step);
  size_t block_bytes() const;  // of all layers
  void normalise(const std::vector<float>& weight, int row, const float* from);
  void run_layer(Layer& layer, const Step& step, const Part& part);
  void rotate(float* head, const float* norm, int position, float scale) const;
  template <class T>
  Pages<T> pages_of(const Layer& layer, const Step& step, const Span& span) const;
  template <class T>
  void place(const Layer& layer, const Step& step, int row);
  template <class T>
  void attend_to(const Layer& layer, const Step& step, const Part& part, const Work& work);

  Shape shape_;
  Team& team_;
  const void* embedding_;
  const float *cosines_, *sines_;
  std::vector<Layer> layers_;
  std::vector<float> norm_;
  Matrix head_;
  Buffer x_, normed_, qkv_, mixed_;
  std::map<int, Buffer> inners_;  // by width
  std::vector<int> span_of_;  // by flat token
  Part all_, kept_;           // after the last layer's keys only the kept rows matter
  std::vector<std::vector<float>> scores_;  // by member of the team
  Memory pool_;                             // of blocks, each with all layers
  std::unique_ptr<Prefault> prefault_;      // ends before the pool does
};
