// SPDX-License-Identifier: Apache-2.0
// A whole forward pass of a ragged batch, compiled once for each instruction set.
#include "attention.h"
#include "engine.h"

namespace ISA {

// Cuts one reserved piece of memory up; with none it only counts.
struct Cutter {
  char* memory = nullptr;
  size_t used = 0;

  template <class T>
  T* take(long count) {
    T* piece = memory ? reinterpret_cast<T*>(memory + used) : nullptr;
    used += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
};

struct StepMemory {
  float *stream, *normed, *qkv, *attended, *inner, *attention;
  long attention_stride;
  QuerySet* sets;
  int32_t* row_of;
  Workspace space;
};

inline int widest_input(const Model& model) {
  return larger(larger(model.hidden, model.heads * model.head_dim), up(model.ffn, PANEL));
}

inline Workspace cut_workspace(Cutter& cutter, int threads, int rows, int widest) {
  Workspace space;
  space.worker_stride = up(static_cast<int>(worker_floats(rows)), 16);
  space.by_worker = cutter.take<float>(space.worker_stride * threads);
  space.numbers = cutter.take<int16_t>(static_cast<long>(rows) * up(widest, GROUP));
  space.scales = cutter.take<float>(static_cast<long>(rows) * (up(widest, GROUP) / GROUP));
  return space;
}

inline StepMemory cut(Cutter& cutter, const Model& model, const Batch& batch, int threads,
                      int sets) {
  long tokens = batch.tokens;
  int dim = up(model.head_dim, PANEL);
  StepMemory memory;
  memory.stream = cutter.take<float>(tokens * model.hidden);
  memory.normed = cutter.take<float>(tokens * model.hidden);
  memory.qkv = cutter.take<float>(tokens * (model.heads + 2 * model.kv_heads) * model.head_dim);
  memory.attended = cutter.take<float>(tokens * model.heads * model.head_dim);
  memory.inner = cutter.take<float>(tokens * up(model.ffn, PANEL));
  memory.attention_stride = (AttentionSpace::floats(queries_together(model), dim) + 15) / 16 * 16;
  memory.attention = cutter.take<float>(memory.attention_stride * threads);
  memory.sets = cutter.take<QuerySet>(sets);
  memory.row_of = cutter.take<int32_t>(tokens);
  memory.space = cut_workspace(cutter, threads, batch.tokens, widest_input(model));
  return memory;
}

inline bool reserve(Engine* engine, const Model& model, const Batch& batch, StepMemory& memory,
                    int& sets) {
  int threads = pool_threads(engine->pool);
  sets = query_sets(model, batch, nullptr);
  Cutter counting;
  cut(counting, model, batch, threads, sets);
  Cutter cutter{engine_reserve(engine, counting.used)};
  if (!cutter.memory) return false;
  memory = cut(cutter, model, batch, threads, sets);
  query_sets(model, batch, memory.sets);
  for (int row = 0; row < batch.rows; ++row)
    for (int token = batch.row_begin[row]; token < batch.row_begin[row + 1]; ++token)
      memory.row_of[token] = row;
  return true;
}

inline bool in_range(const Model& model, const Batch& batch) {
  for (int token = 0; token < batch.tokens; ++token)
    if (batch.token_ids[token] < 0 || batch.token_ids[token] >= model.vocabulary ||
        batch.positions[token] < 0 || batch.positions[token] >= model.positions)
      return false;
  return true;
}

inline void normalise_all(Pool* pool, const Model& model, const float* weight, int tokens,
                          const float* input, float* output) {
  for_lines(pool, tokens, [=, &model](int token) {
    long at = static_cast<long>(token) * model.hidden;
    normalise(input + at, weight, model.hidden, model.norm_epsilon, output + at);
  });
}

inline void run_layer(Pool* pool, const Model& model, const Layer& layer, const Batch& batch,
                      const StepMemory& memory, int sets) {
  int tokens = batch.tokens;
  long width = static_cast<long>(model.heads) * model.head_dim;
  long qkv_width = width + 2L * model.kv_heads * model.head_dim, inner = up(model.ffn, PANEL);
  Lines normed{memory.normed, tokens, model.hidden};
  normalise_all(pool, model, layer.attention_norm, tokens, memory.stream, memory.normed);
  multiply_into(pool, layer.qkv, normed, memory.space, memory.qkv, qkv_width, false);
  attend(pool, model, layer, batch, memory.row_of, memory.sets, sets, memory.qkv, memory.attended,
         memory.attention, memory.attention_stride);
  multiply_into(pool, layer.out, {memory.attended, tokens, width}, memory.space, memory.stream,
                model.hidden, true);
  normalise_all(pool, model, layer.mlp_norm, tokens, memory.stream, memory.normed);
  multiply_gated(pool, layer.gate_up, normed, memory.space, model.activation, memory.inner, inner);
  multiply_into(pool, layer.down, {memory.inner, tokens, inner}, memory.space, memory.stream,
                model.hidden, true);
}

static int forward(Engine* engine, const Model* model, const Batch* batch) {
  if (!in_range(*model, *batch)) return OUT_OF_RANGE;
  StepMemory memory;
  int sets;
  if (!reserve(engine, *model, *batch, memory, sets)) return NO_MEMORY;
  Pool* pool = engine->pool;
  for_lines(pool, batch->tokens, [&](int token) {
    embed(*model, batch->token_ids[token], memory.stream + static_cast<long>(token) * model->hidden);
  });
  for (int index = 0; index < model->layers; ++index)
    run_layer(pool, *model, model->layer[index], *batch, memory, sets);
  for_lines(pool, batch->sampled, [&](int line) {
    normalise(memory.stream + static_cast<long>(batch->sampled_at[line]) * model->hidden,
              model->final_norm, model->hidden, model->norm_epsilon,
              batch->hidden + static_cast<long>(line) * model->hidden);
  });
  if (batch->sampled > 0)
    multiply_into(pool, model->head, {batch->hidden, batch->sampled, model->hidden}, memory.space,
                  batch->logits, model->vocabulary, false);
  return DONE;
}

static int multiply_alone(Engine* engine, const Matrix* matrix, const float* input, int rows,
                          float* output) {
  Cutter counting;
  int threads = pool_threads(engine->pool);
  cut_workspace(counting, threads, rows, matrix->inputs);
  Cutter cutter{engine_reserve(engine, counting.used)};
  if (!cutter.memory) return NO_MEMORY;
  Workspace space = cut_workspace(cutter, threads, rows, matrix->inputs);
  multiply_into(engine->pool, *matrix, {input, rows, matrix->inputs}, space, output,
                matrix->outputs, false);
  return DONE;
}

static int attend_alone(Engine* engine, const Model* model, int layer, const Batch* batch,
                        float* qkv, float* output) {
  if (!in_range(*model, *batch)) return OUT_OF_RANGE;
  StepMemory memory;
  int sets;
  if (!reserve(engine, *model, *batch, memory, sets)) return NO_MEMORY;
  attend(engine->pool, *model, model->layer[layer], *batch, memory.row_of, memory.sets, sets, qkv,
         output, memory.attention, memory.attention_stride);
  return DONE;
}

static void normalise_alone(const float* input, const float* weight, int size, float epsilon,
                            float* output) {
  normalise(input, weight, size, epsilon, output);
}

#define NAME_OF(isa) NAME_TEXT(isa)
#define NAME_TEXT(isa) #isa

extern const Kernels kernels;
const Kernels kernels{NAME_OF(ISA), forward, multiply_alone, attend_alone, normalise_alone};

}  // namespace ISA
