// SPDX-License-Identifier: Apache-2.0
// Causal attention over the paged KV, with softmax carried along tiles of key positions. Tiles lie
// at fixed positions and what a query does not see adds exact zeros, so that its result does not
// depend on which queries it was computed with.
#pragma once

#include "kv.h"
#include "lines.h"
#include "multiply.h"

namespace ISA {

constexpr int TILE_BLOCKS = 2;
constexpr int TILE_KEYS = TILE_BLOCKS * BLOCK;
constexpr int QUERIES = 48;  // computed together; they share a KV head
constexpr float HIDDEN_SCORE = -__builtin_inff();

// Queries of one KV head: `tokens` from token `first` on, each with `heads` query heads.
struct QuerySet {
  int row, kv_head, first, tokens, heads;
};

struct AttentionSpace {
  float *queries, *scores, *sums, *highest, *totals, *blocks;

  static long floats(int queries, int dim) {
    return static_cast<long>(queries) * (2 * dim + TILE_KEYS + 1 + LANES) +
           2L * TILE_BLOCKS * dim * BLOCK;
  }

  AttentionSpace(float* memory, int count, int dim) {
    queries = memory;
    sums = queries + static_cast<long>(count) * dim;
    scores = sums + static_cast<long>(count) * dim;
    totals = scores + static_cast<long>(count) * TILE_KEYS;
    blocks = totals + static_cast<long>(count) * LANES;
    highest = blocks + 2L * TILE_BLOCKS * dim * BLOCK;
  }
};

inline int queries_together(const Model& model) {
  return larger(QUERIES, model.heads / model.kv_heads);
}

// Scores of keys outside [lowest, position] are hidden.
inline void hide(float* scores, int first_key, int lowest, int position) {
  for (int i = 0; i < TILE_KEYS; ++i)
    if (first_key + i < lowest || first_key + i > position) scores[i] = HIDDEN_SCORE;
}

// Turns a query's scores into weights and scales what was summed before to the new highest score.
inline void soften(float* scores, float* highest_score, float* totals, float* sums, int dim) {
  Floats most = load(scores);
  for (int i = LANES; i < TILE_KEYS; i += LANES) most = maximum(load(scores + i), most);
  float before = *highest_score, now = highest(most);
  now = now > before ? now : before;
  if (now == HIDDEN_SCORE) {
    memset(scores, 0, TILE_KEYS * sizeof(float));
    return;
  }
  if (now > before) {
    float change = before == HIDDEN_SCORE ? 0 : exponential(splat(before - now))[0];
    for (int i = 0; i < dim; i += LANES) store(sums + i, load(sums + i) * change);
    store(totals, load(totals) * change);
    *highest_score = now;
  }
  Floats total = load(totals);
  for (int i = 0; i < TILE_KEYS; i += LANES) {
    Floats distance = load(scores + i) - now;
    Floats weight = distance < -87.0f ? Floats{} : exponential(distance);
    total += weight;
    store(scores + i, weight);
  }
  store(totals, total);
}

inline void attend_tile(const Model& model, const Layer& layer, const Batch& batch, QuerySet set,
                        int tile, AttentionSpace space) {
  int dim = up(model.head_dim, PANEL), count = set.tokens * set.heads;
  int last_block = batch.positions[set.first + set.tokens - 1] / BLOCK;
  const int32_t* table = batch.block_tables + static_cast<long>(set.row) * batch.table_stride;
  int from = tile * TILE_BLOCKS, blocks = smaller(TILE_BLOCKS, last_block + 1 - from);
  BlockFloats floats[TILE_BLOCKS];
  for (int b = 0; b < blocks; ++b) {
    floats[b] = read_block(layer, model, table[from + b], set.kv_head,
                           space.blocks + 2L * b * dim * BLOCK);
    tiles<FloatLine>(space.queries, floats[b].keys, count, dim, space.scores + b * BLOCK,
                     {dim, BLOCK, TILE_KEYS}, false);
  }
  for (int q = 0; q < count; ++q) {
    int position = batch.positions[set.first + q / set.heads];
    int lowest = layer.window > 0 ? larger(0, position - layer.window + 1) : 0;
    float* scores = space.scores + static_cast<long>(q) * TILE_KEYS;
    if (tile * TILE_KEYS < lowest || (tile + 1) * TILE_KEYS > position)
      hide(scores, tile * TILE_KEYS, lowest, position);
    soften(scores, space.highest + q, space.totals + static_cast<long>(q) * LANES,
           space.sums + static_cast<long>(q) * dim, dim);
  }
  for (int b = 0; b < blocks; ++b)
    for (int column = 0; column < dim; column += PANEL)
      tiles<FloatLine>(space.scores + b * BLOCK, floats[b].values + column, count, BLOCK,
                       space.sums + column, {TILE_KEYS, dim, dim}, true);
}

inline void attend_set(const Model& model, const Layer& layer, const Batch& batch, QuerySet set,
                       const float* qkv, long qkv_stride, float* output, AttentionSpace space) {
  int dim = up(model.head_dim, PANEL), count = set.tokens * set.heads;
  memset(space.queries, 0, sizeof(float) * count * dim);
  memset(space.sums, 0, sizeof(float) * count * dim);
  memset(space.totals, 0, sizeof(float) * count * LANES);
  for (int q = 0; q < count; ++q) {
    int head = set.kv_head * set.heads + q % set.heads;
    const float* query = qkv + (set.first + q / set.heads) * qkv_stride + head * model.head_dim;
    float* to = space.queries + static_cast<long>(q) * dim;
    for (int i = 0; i < model.head_dim; ++i) to[i] = query[i] * layer.scaling;
    space.highest[q] = HIDDEN_SCORE;
  }
  int first_position = batch.positions[set.first];
  int lowest = layer.window > 0 ? larger(0, first_position - layer.window + 1) : 0;
  int last_tile = batch.positions[set.first + set.tokens - 1] / TILE_KEYS;
  for (int tile = lowest / TILE_KEYS; tile <= last_tile; ++tile)
    attend_tile(model, layer, batch, set, tile, space);
  for (int q = 0; q < count; ++q) {
    int head = set.kv_head * set.heads + q % set.heads;
    long width = static_cast<long>(model.heads) * model.head_dim;
    float* to = output + (set.first + q / set.heads) * width + head * model.head_dim;
    float total = sum(load(space.totals + static_cast<long>(q) * LANES));
    for (int i = 0; i < model.head_dim; ++i)
      to[i] = space.sums[static_cast<long>(q) * dim + i] / total;
  }
}

// Norms and turns one token's queries and keys, and writes its keys and values to the cache.
inline void place_token(const Model& model, const Layer& layer, const Batch& batch, int row,
                        int token, float* line) {
  int position = batch.positions[token], half = model.rotary_dim / 2;
  for (int head = 0; head < model.heads + model.kv_heads; ++head) {
    float* numbers = line + head * model.head_dim;
    const float* norm = head < model.heads ? layer.query_norm : layer.key_norm;
    if (norm) normalise(numbers, norm, model.head_dim, model.norm_epsilon, numbers);
    if (layer.rotates)
      rotate(numbers, model.cosines + static_cast<long>(position) * half,
             model.sines + static_cast<long>(position) * half, half);
  }
  const float* keys = line + model.heads * model.head_dim;
  int block = batch.block_tables[static_cast<long>(row) * batch.table_stride + position / BLOCK];
  write_token(layer, model, block, position % BLOCK, keys, keys + model.kv_heads * model.head_dim);
}

// `sets`: the batch's queries cut into units of work; [tokens, heads * head_dim] into `output`.
inline void attend(Pool* pool, const Model& model, const Layer& layer, const Batch& batch,
                   const int32_t* row_of, const QuerySet* sets, int count, float* qkv,
                   float* output, float* memory, long memory_stride) {
  long stride = static_cast<long>(model.heads + 2 * model.kv_heads) * model.head_dim;
  for_lines(pool, batch.tokens, [=, &model, &layer, &batch](int token) {
    place_token(model, layer, batch, row_of[token], token, qkv + token * stride);
  });
  int dim = up(model.head_dim, PANEL), together = queries_together(model);
  parallel(pool, count, [=, &model, &layer, &batch](int index, int worker) {
    AttentionSpace space(memory + worker * memory_stride, together, dim);
    attend_set(model, layer, batch, sets[index], qkv, stride, output, space);
  });
}

// Writes the batch's query sets to `sets` if it is not null; returns how many there are.
inline int query_sets(const Model& model, const Batch& batch, QuerySet* sets) {
  int heads = model.heads / model.kv_heads, step = larger(1, QUERIES / heads), count = 0;
  for (int row = 0; row < batch.rows; ++row)
    for (int first = batch.row_begin[row]; first < batch.row_begin[row + 1]; first += step)
      for (int kv_head = 0; kv_head < model.kv_heads; ++kv_head, ++count)
        if (sets)
          sets[count] = {row, kv_head, first, smaller(step, batch.row_begin[row + 1] - first), heads};
  return count;
}

}  // namespace ISA
