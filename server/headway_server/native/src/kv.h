// SPDX-License-Identifier: Apache-2.0
// KV blocks: keys lie with a block's tokens side by side, values with a token's numbers side by
// side, which is how attention multiplies them. What is not finite becomes 0, so that one
// sequence's overflow cannot reach the next owner of the block.
#pragma once

#include "simd.h"

namespace ISA {

inline float finite(float value) { return value - value == 0 ? value : 0; }

inline float scale_of(const float* values, int size) {
  float largest = 0;
  for (int i = 0; i < size; ++i) {
    float value = __builtin_fabsf(finite(values[i]));
    largest = value > largest ? value : largest;
  }
  return largest / 127;
}

// `size` numbers into places `step` apart; number `line` of `scales` is written for int8.
inline void write_numbers(const float* values, int size, void* block, long at, int step, int kind,
                          float* scales, long line) {
  if (kind == INT8) {
    float scale = scales[line] = scale_of(values, size);
    float factor = scale > 0 ? 1 / scale : 0;
    int8_t* to = static_cast<int8_t*>(block) + at;
    for (int i = 0; i < size; ++i)
      to[static_cast<long>(i) * step] =
          static_cast<int8_t>(__builtin_lrintf(finite(values[i]) * factor));
  } else if (kind == BFLOAT16) {
    uint16_t* to = static_cast<uint16_t*>(block) + at;
    for (int i = 0; i < size; ++i) to[static_cast<long>(i) * step] = narrow_one(finite(values[i]));
  } else {
    float* to = static_cast<float*>(block) + at;
    for (int i = 0; i < size; ++i) to[static_cast<long>(i) * step] = finite(values[i]);
  }
}

inline void write_token(const Layer& layer, const Model& model, int block, int offset,
                        const float* keys, const float* values) {
  int dim = up(model.head_dim, PANEL);
  for (int head = 0; head < model.kv_heads; ++head) {
    long index = static_cast<long>(block) * model.kv_heads + head;
    long at = index * dim * BLOCK, line = index * BLOCK + offset;
    const float *key = keys + head * model.head_dim, *value = values + head * model.head_dim;
    write_numbers(key, model.head_dim, layer.keys, at + offset, BLOCK, model.kv_kind,
                  layer.key_scales, line);
    write_numbers(value, model.head_dim, layer.values, at + offset * dim, 1, model.kv_kind,
                  layer.value_scales, line);
  }
}

struct BlockFloats {
  const float* keys;    // [dim, BLOCK]
  const float* values;  // [BLOCK, dim]
};

// The floats of one head of a block: where they lie, or unpacked into `space` [2, dim * BLOCK].
inline BlockFloats read_block(const Layer& layer, const Model& model, int block, int head,
                              float* space) {
  int dim = up(model.head_dim, PANEL), size = dim * BLOCK;
  long index = static_cast<long>(block) * model.kv_heads + head, at = index * size;
  if (model.kv_kind == FLOAT32)
    return {static_cast<const float*>(layer.keys) + at, static_cast<const float*>(layer.values) + at};
  float *keys = space, *values = space + size;
  if (model.kv_kind == BFLOAT16) {
    for (int i = 0; i < size; i += LANES) {
      store(keys + i, widen(static_cast<const uint16_t*>(layer.keys) + at + i));
      store(values + i, widen(static_cast<const uint16_t*>(layer.values) + at + i));
    }
    return {keys, values};
  }
  const float* key_scales = layer.key_scales + index * BLOCK;
  const float* value_scales = layer.value_scales + index * BLOCK;
  for (int i = 0; i < size; i += LANES) {
    store(keys + i, widen(static_cast<const int8_t*>(layer.keys) + at + i) *
                        load(key_scales + i % BLOCK));
    store(values + i, widen(static_cast<const int8_t*>(layer.values) + at + i) *
                          value_scales[i / dim]);
  }
  return {keys, values};
}

}  // namespace ISA
