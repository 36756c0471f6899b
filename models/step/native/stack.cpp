// What a stack holds: weights as the kernels read them, and the blocks of keys and values.
#include "stack.h"

#include "guard.h"
#include "joined.h"
#include "units.h"

Stack::Stack(Team& team, const Shape& shape, const void* embedding)
    : shape_(shape), team_(team), embedding_(embedding), layers_(shape.layers) {
  const int attended = shape.heads * shape.head_dim;
  x_.width = normed_.width = held_.width = shape.hidden;
  qkv_.width = attended + 2 * shape.kv_heads * shape.head_dim;
  mixed_.width = attended;
}

void Stack::set_layer(int index, const LayerWeights& w) {
  const int hidden = shape_.hidden;
  const int q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
  Layer& layer = layers_[index];
  layer.norm = Norm(w.norm);
  layer.behind = Norm(w.behind);
  layer.inner_norm = Norm(w.inner_norm);
  layer.inner_behind = Norm(w.inner_behind);
  layer.q_norm = Norm(w.q_norm);
  layer.k_norm = Norm(w.k_norm);
  if (w.sinks) layer.sinks.assign(w.sinks, w.sinks + shape_.heads);
  layer.cosines = w.cosines;
  layer.sines = w.sines;
  layer.rotary_dim = w.rotary_dim;
  layer.norms_last = w.norms_last;
  layer.parallel = w.parallel;
  layer.window = w.window;
  layer.scale = w.scale;
  layer.cap = w.cap;

  Joined qkv(hidden), v(hidden), o(q);
  const bool alike = (w.q.kind == Numbers::kCodes) == (w.v.kind == Numbers::kCodes);
  const bool apart = shape_.held == Held::kInt4 || !alike;
  qkv.add(w.q, 0, q);
  qkv.add(w.k, 0, kv);
  (apart ? v : qkv).add(w.v, 0, kv);
  o.add(w.o, 0, hidden);
  layer.qkv = qkv.packed(team_, shape_.held);
  if (apart) layer.v = v.packed(team_, shape_.held == Held::kInt4 ? Held::kInt8 : shape_.held);
  layer.o = o.packed(team_, shape_.held);
}

Buffer& Stack::inner_of(const GatedWeights& w) {
  Buffer& inner = inners_[w.inner];
  inner.width = w.inner;
  return inner;
}

void Stack::set_gated(int index, const GatedWeights& w) {
  layers_[index].gated = Gated(team_, w, shape_.hidden, shape_.held, inner_of(w));
}

void Stack::set_experts(int index, const ExpertsWeights& w) {
  layers_[index].experts = std::make_unique<Experts>(team_, w, shape_.hidden, shape_.held, desk_,
                                                     inner_of(w.each), inner_of(w.shared));
}

void Stack::set_head(const NormWeights& norm, const Weight& weight) {
  norm_ = Norm(norm);
  Joined head(shape_.hidden);
  head.add(weight, 0, shape_.vocab);
  head_ = head.packed(team_, shape_.held == Held::kInt4 ? Held::kInt8 : shape_.held);
}

void Stack::set_adapter(int adapter, int adapters, int index, const AdapterWeights& w) {
  const int q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
  Layer& layer = layers_[index];
  for (LowRanks* low : {&layer.qkv_low, &layer.v_low, &layer.o_low}) low->resize(adapters);
  LowRankParts in(shape_.hidden, {&w.q, &w.k, &w.v}), out(q, {&w.o});
  Joined qkv(in.rank()), v(in.rank()), o(out.rank());
  qkv.add(in.outer(w.q, q), 0, q);
  qkv.add(in.outer(w.k, kv), 0, kv);
  (layer.v.n ? v : qkv).add(in.outer(w.v, kv), 0, kv);
  o.add(out.outer(w.o, shape_.hidden), 0, shape_.hidden);
  layer.qkv_low[adapter] = in.beside(team_, qkv);
  layer.v_low[adapter] = in.apart(team_, v);
  layer.o_low[adapter] = out.beside(team_, o);
  most_rank_ = std::max({most_rank_, in.rank(), out.rank()});
  if (layer.experts) return;
  most_rank_ = std::max(most_rank_, layer.gated.set_adapter(team_, adapter, adapters, w));
}

void Stack::round_to(Format arithmetic, KvFormat kv_format) {
  shape_.arithmetic = arithmetic;
  shape_.kv_format = kv_format;
}

size_t Stack::block_bytes() const {
  const size_t tokens = shape_.block_size;
  const size_t numbers = tokens * shape_.layers * shape_.kv_heads * shape_.head_dim * 2;
  return numbers * (shape_.kv_format == KvFormat::kFloat32 ? 4 : 2);
}

void Stack::allocate(int blocks) {
  prefault_.reset();
  pool_ = Memory(blocks * block_bytes());
  prefault_ = std::make_unique<Prefault>(pool_);
}

size_t Stack::weight_bytes() const {
  size_t bytes = head_.bytes();
  for (const Layer& layer : layers_) {
    bytes += layer.qkv.bytes() + layer.v.bytes() + layer.o.bytes();
    bytes += layer.experts ? layer.experts->bytes() : layer.gated.bytes();
  }
  return bytes;
}

extern "C" {

int stack_create(Team* team, const Shape* shape, const void* embedding, Stack** made) {
  return guarded([&] { *made = new Stack(*team, *shape, embedding); });
}
int stack_set_layer(Stack* stack, int index, const LayerWeights* weights) {
  return guarded([&] { stack->set_layer(index, *weights); });
}
int stack_set_gated(Stack* stack, int index, const GatedWeights* weights) {
  return guarded([&] { stack->set_gated(index, *weights); });
}
int stack_set_experts(Stack* stack, int index, const ExpertsWeights* weights) {
  return guarded([&] { stack->set_experts(index, *weights); });
}
int stack_set_head(Stack* stack, const NormWeights* norm, const Weight* weight) {
  return guarded([&] { stack->set_head(*norm, *weight); });
}
int stack_set_adapter(Stack* stack, int adapter, int adapters, int index,
                      const AdapterWeights* weights) {
  return guarded([&] { stack->set_adapter(adapter, adapters, index, *weights); });
}
int stack_round_to(Stack* stack, Format arithmetic, KvFormat kv_format) {
  return guarded([&] { stack->round_to(arithmetic, kv_format); });
}
int stack_allocate(Stack* stack, int blocks) {
  return guarded([&] { stack->allocate(blocks); });
}
int stack_forward(Stack* stack, const Step* step) {
  return guarded([&] { stack->forward(*step); });
}
int64_t stack_weight_bytes(const Stack* stack) {
  return static_cast<int64_t>(stack->weight_bytes());
}
const char* stack_instructions() {
  return has_units() ? "AVX-512 with VNNI and BF16, AMX" : instructions();
}
bool stack_multiplies_bfloat16() { return kMultipliesBFloat16; }
void stack_destroy(Stack* stack) { delete stack; }
}
