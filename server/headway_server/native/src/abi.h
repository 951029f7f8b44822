// SPDX-License-Identifier: Apache-2.0
// What crosses between Python and this library: plain structures, mirrored field by field in
// abi.py. Python owns all memory named here; the library keeps no pointer beyond a call.
#pragma once

#include <cstdint>

constexpr int PANEL = 16;        // columns of a weight panel
constexpr int BLOCK = 16;        // tokens of a KV block
constexpr int GROUP = 32;        // int8: inputs that share a scale
constexpr int GROUP_BYTES = GROUP * PANEL + PANEL * 4;  // int8 weights of a group, then scales

enum Kind : int32_t { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2 };
enum Activation : int32_t { SILU = 0, GELU_TANH = 1 };
enum Outcome : int32_t { DONE = 0, NO_MEMORY = 1, OUT_OF_RANGE = 2 };

extern "C" {

// A weight [outputs, inputs] in panels of PANEL outputs, each panel with its inputs in order.
struct Matrix {
  const void* panels;
  const float* bias;  // one a packed column, or null
  int32_t outputs;
  int32_t inputs;
  int32_t kind;
};

struct Layer {
  const float* attention_norm;
  const float* mlp_norm;
  const float* query_norm;  // [head_dim], or null
  const float* key_norm;
  Matrix qkv;
  Matrix out;
  Matrix gate_up;  // panels of gate and up in turn
  Matrix down;
  void* keys;    // [blocks, kv_heads, padded head_dim, BLOCK]
  void* values;  // [blocks, kv_heads, BLOCK, padded head_dim]
  float* key_scales;  // int8: [blocks, kv_heads, BLOCK]
  float* value_scales;
  float scaling;
  int32_t window;  // keys that a query sees, itself among them; 0: all
  int32_t rotates;
};

struct Model {
  int32_t layers;
  int32_t hidden;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t rotary_dim;
  int32_t ffn;
  int32_t vocabulary;
  int32_t positions;  // lines of the rotary tables
  int32_t embedding_kind;
  int32_t kv_kind;
  int32_t activation;
  float norm_epsilon;
  float embedding_scale;
  const void* embedding;  // [vocabulary, hidden]
  const float* cosines;   // [positions, rotary_dim / 2]
  const float* sines;
  const float* final_norm;
  Matrix head;
  const Layer* layer;
};

// Rows of tokens, one after the other. Row r owns tokens row_begin[r] .. row_begin[r + 1].
struct Batch {
  int32_t tokens;
  int32_t rows;
  int32_t table_stride;
  int32_t sampled;
  const int32_t* token_ids;
  const int32_t* positions;
  const int32_t* row_begin;
  const int32_t* block_tables;  // [rows, table_stride]
  const int32_t* sampled_at;    // [sampled], indices of tokens
  float* hidden;                // out: [sampled, hidden]
  float* logits;                // out: [sampled, vocabulary]
};
}
